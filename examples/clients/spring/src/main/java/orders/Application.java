package orders;

import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;

/** Produces three orders and consumes them in a consumer group, with Spring for Apache Kafka. */
@SpringBootApplication
public class Application implements CommandLineRunner {
    record Order(String customer, String item) {}

    private static final List<Order> ORDERS =
            List.of(new Order("ada", "tea"), new Order("bob", "coffee"), new Order("ada", "cake"));

    private final KafkaTemplate<String, String> template;
    private final CountDownLatch remaining = new CountDownLatch(ORDERS.size());

    public Application(KafkaTemplate<String, String> template) {
        this.template = template;
    }

    @KafkaListener(topics = "orders")
    public void ship(ConsumerRecord<String, String> order) {
        System.out.printf("consumed %s: %s%n", order.key(), order.value());
        remaining.countDown();
    }

    @Override
    public void run(String... arguments) throws Exception {
        for (Order order : ORDERS) {
            var written = template.send("orders", order.customer(), order.item()).get().getRecordMetadata();
            System.out.printf("produced to partition %d at offset %d%n", written.partition(), written.offset());
        }
        if (!remaining.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(remaining.getCount() + " orders were not consumed within 30 s");
        }
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Application.class, arguments).close();
    }
}
