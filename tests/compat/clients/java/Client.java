// Uses Penstock through Kafka's own Java client: one line for every step, "ok NAME" or "failed NAME: why".

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Client {
    private static final int COUNT = 100;
    private static final Duration TURN = Duration.ofMillis(200);
    private static final long PATIENCE_MS = 40_000;
    private static String bootstrap;
    private static String prefix;

    interface Step {
        void run(String topic) throws Exception;
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        prefix = arguments[1];
        step("topics", Client::topics);
        step("messages", Client::messages);
        step("compression", Client::compression);
        step("group", topic -> group(topic, "classic"));
        step("new_group", topic -> group(topic, "consumer"));
        step("transactions", Client::transactions);
        step("exactly_once", Client::exactlyOnce);
        System.exit(0);
    }

    private static void step(String name, Step step) {
        try {
            step.run(prefix + "-" + name);
            System.out.println("ok " + name);
        } catch (Throwable problem) {
            System.out.println("failed " + name + ": " + String.valueOf(problem).replace('\n', ' '));
        }
    }

    private static Map<String, Object> settings(String... pairs) {
        Map<String, Object> made = new HashMap<>();
        made.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < pairs.length; at += 2) {
            made.put(pairs[at], pairs[at + 1]);
        }
        return made;
    }

    private static KafkaProducer<String, String> producer(String... pairs) {
        return new KafkaProducer<>(settings(pairs), new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String... pairs) {
        Map<String, Object> made = settings(pairs);
        made.put("auto.offset.reset", "earliest");
        made.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer());
    }

    private static void create(String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        }
    }

    private static List<String> values(String topic) {
        List<String> made = new ArrayList<>();
        for (int number = 0; number < COUNT; number++) {
            made.add(String.format("%s-%03d", topic, number));
        }
        return made;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, List<String> values) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) {
            ProducerRecord<String, String> record = new ProducerRecord<>(topic, value, value);
            record.headers().add("kind", "test".getBytes());
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    @SafeVarargs
    private static void receive(List<String> wanted, KafkaConsumer<String, String>... consumers) {
        List<String> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (found.size() < wanted.size()) {
            for (KafkaConsumer<String, String> consumer : consumers) {
                for (ConsumerRecord<String, String> record : consumer.poll(TURN)) {
                    found.add(record.value());
                }
            }
            check(System.currentTimeMillis() < deadline, found.size() + " messages came, " + wanted.size() + " were sent");
        }
        List<String> sorted = new ArrayList<>(wanted);
        Collections.sort(sorted);
        Collections.sort(found);
        check(found.equals(sorted), "what came is not what was sent: " + found.size() + " messages of " + sorted.size());
    }

    @SafeVarargs
    private static void share(int partitions, KafkaConsumer<String, String>... members) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        boolean isShared = false;
        while (!isShared) {
            check(System.currentTimeMillis() < deadline, "members do not get " + partitions + " partitions each");
            isShared = true;
            for (KafkaConsumer<String, String> member : members) {
                check(member.poll(TURN).isEmpty(), "a message came before one was sent");
                isShared &= member.assignment().size() == partitions;
            }
        }
    }

    private static void check(boolean holds, String problem) {
        if (!holds) {
            throw new IllegalStateException(problem);
        }
    }

    private static void topics(String topic) throws Exception {
        create(topic, 3);
        try (Admin admin = Admin.create(settings())) {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            int found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            check(found == 5, "the topic has " + found + " partitions");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            String kept = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value();
            check(kept.equals("604800000"), "retention.ms is " + kept);
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    private static void messages(String topic) throws Exception {
        create(topic, 3);
        List<String> wanted = values(topic);
        try (KafkaProducer<String, String> producer = producer(); KafkaConsumer<String, String> consumer = consumer()) {
            send(producer, topic, wanted);
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(one -> all.add(new TopicPartition(topic, one.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            receive(wanted, consumer);
        }
    }

    private static void compression(String topic) throws Exception {
        create(topic, 1);
        List<String> all = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            List<String> wanted = values(topic + codec);
            try (KafkaProducer<String, String> producer = producer("compression.type", codec, "linger.ms", "20")) {
                send(producer, topic, wanted);
            }
            all.addAll(wanted);
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", topic)) {
            consumer.subscribe(List.of(topic));
            receive(all, consumer);
        }
    }

    private static void group(String topic, String protocol) throws Exception {
        create(topic, 4);
        List<String> wanted = values(topic);
        List<String> more = values(topic + "-more");
        String[] options = {"group.id", topic, "group.protocol", protocol};
        try (KafkaProducer<String, String> producer = producer(); KafkaConsumer<String, String> first = consumer(options)) {
            try (KafkaConsumer<String, String> second = consumer(options)) {
                first.subscribe(List.of(topic));
                second.subscribe(List.of(topic));
                share(2, first, second);
                send(producer, topic, wanted);
                receive(wanted, first, second);
                first.commitSync();
                second.commitSync();
            }
            // The second has left: the first goes on where it stopped. Only then, since it would read again what it has not
            // committed before.
            share(4, first);
            send(producer, topic, more);
            receive(more, first);
            first.commitSync();
        }
        try (Admin admin = Admin.create(settings())) {
            long total = 0;
            for (OffsetAndMetadata one : admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().values()) {
                total += one.offset();
            }
            check(total == 2 * COUNT, "the group has committed " + total);
        }
    }

    private static void transactions(String topic) throws Exception {
        create(topic, 2);
        List<String> wanted = values(topic);
        try (KafkaProducer<String, String> producer = producer("transactional.id", topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic, values(topic + "-aborted"));
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, topic, wanted);
            producer.commitTransaction();
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", topic, "isolation.level", "read_committed")) {
            consumer.subscribe(List.of(topic));
            receive(wanted, consumer);
        }
    }

    private static void exactlyOnce(String topic) throws Exception {
        String source = topic + "-from";
        String target = topic + "-to";
        create(source, 2);
        create(target, 2);
        List<String> wanted = values(topic);
        try (KafkaProducer<String, String> producer = producer()) {
            send(producer, source, wanted);
        }
        String[] reading = {"group.id", topic, "isolation.level", "read_committed"};
        try (KafkaProducer<String, String> producer = producer("transactional.id", topic);
                KafkaConsumer<String, String> consumer = consumer(reading)) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            int copied = 0;
            while (copied < COUNT) {
                ConsumerRecords<String, String> records = consumer.poll(TURN);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.value()));
                    positions.put(
                        new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
                producer.commitTransaction();
                copied += records.count();
            }
        }
        try (KafkaConsumer<String, String> consumer = consumer("group.id", topic + "-check", "isolation.level", "read_committed")) {
            consumer.subscribe(List.of(target));
            receive(wanted, consumer);
        }
    }
}
