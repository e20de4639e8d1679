import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces three orders and consumes them in a consumer group, with Kafka's own client. */
public class Orders {
    record Order(String customer, String item) {}

    static final List<Order> ORDERS =
            List.of(new Order("ada", "tea"), new Order("bob", "coffee"), new Order("ada", "cake"));

    public static void main(String[] args) throws Exception {
        String bootstrap = args.length > 0 ? args[0] : "127.0.0.1:9092";
        produce(bootstrap);
        consume(bootstrap);
    }

    static void produce(String bootstrap) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", true);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (Order order : ORDERS) {
                var written = producer.send(new ProducerRecord<>("orders", order.customer(), order.item())).get();
                System.out.printf("produced to partition %d at offset %d%n", written.partition(), written.offset());
            }
        }
    }

    static void consume(String bootstrap) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", "shipping-java",
                "group.protocol", "consumer", // the broker assigns partitions (KIP-848)
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            for (int seen = 0; seen < ORDERS.size(); ) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.printf("consumed %s: %s%n", record.key(), record.value());
                    seen++;
                }
                consumer.commitSync();
            }
        }
    }
}
