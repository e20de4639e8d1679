// Kafka's own Java client while brokers are killed: an idempotent producer, a transactional one and a member of a group.
//
// Commands come on standard input, one a line, and each is answered with one line:
//   more   every partition has more acknowledgements, and more transactions have ended
//   pause  the longest time in ms without an acknowledgement of some partition, and without the end of a transaction, since last asked
//   end    what became of everything: counts, "name=value" each

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;

public class UnderKills {
    private static final int PARTITIONS = 6;
    private static final int MORE = 20;
    private static final long PATIENCE_MS = 120_000;
    private static final String NUMBERS = "numbers";
    private static final String SUMS = "sums";
    private static String bootstrap;
    private static String requestTimeoutMs;
    private static volatile boolean isEnding;
    private static volatile boolean isOver;  // the last acknowledgements come after isEnding, and the group reads those messages too

    private static final List<ConcurrentLinkedQueue<Long>> acknowledged = new ArrayList<>();
    private static final ConcurrentLinkedQueue<String> failed = new ConcurrentLinkedQueue<>();
    private static final Map<Long, String> placed = new ConcurrentHashMap<>();
    private static final Set<Long> seenByGroup = ConcurrentHashMap.newKeySet();
    private static final ConcurrentLinkedQueue<String> readByGroup = new ConcurrentLinkedQueue<>();
    private static final Set<Long> committed = ConcurrentHashMap.newKeySet();
    private static final Set<Long> aborted = ConcurrentHashMap.newKeySet();
    private static final Clock sends = new Clock(PARTITIONS);
    private static final Clock transactions = new Clock(1);

    /** When something last happened in each of several places, and the longest time that it did not. */
    static class Clock {
        private final long[] last;
        private long longest;

        Clock(int places) {
            last = new long[places];
            for (int place = 0; place < places; place++) {
                last[place] = System.nanoTime();
            }
        }

        synchronized void note(int place) {
            long now = System.nanoTime();
            longest = Math.max(longest, now - last[place]);
            last[place] = now;
        }

        synchronized long takeLongestMs() {
            long now = System.nanoTime();
            for (long at : last) {
                longest = Math.max(longest, now - at);
            }
            long found = longest;
            longest = 0;
            return found / 1_000_000;
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        requestTimeoutMs = arguments[1];
        for (int partition = 0; partition < PARTITIONS; partition++) {
            acknowledged.add(new ConcurrentLinkedQueue<>());
        }
        try (Admin admin = Admin.create(settings())) {
            List<NewTopic> topics = List.of(new NewTopic(NUMBERS, PARTITIONS, (short) 3), new NewTopic(SUMS, PARTITIONS, (short) 3));
            admin.createTopics(topics).all().get();
        }
        Thread sender = started(UnderKills::send);
        Thread transactor = started(UnderKills::transact);
        Thread member = started(UnderKills::consume);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            switch (command) {
                case "more" -> System.out.println(more());
                case "pause" -> System.out.println(sends.takeLongestMs() + " " + transactions.takeLongestMs());
                default -> {
                    isEnding = true;
                    sender.join();
                    transactor.join();
                    String outcome = outcome();
                    isOver = true;
                    member.join();
                    System.out.println(outcome);
                    System.exit(0);
                }
            }
        }
    }

    private static Thread started(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static Map<String, Object> settings(String... pairs) {
        Map<String, Object> made = new HashMap<>();
        made.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < pairs.length; at += 2) {
            made.put(pairs[at], pairs[at + 1]);
        }
        return made;
    }

    private static KafkaProducer<Long, Long> producer(String... pairs) {
        Map<String, Object> made = settings(pairs);
        made.put("acks", "all");
        made.put("linger.ms", "0");
        made.put("enable.idempotence", "true");
        made.put("request.timeout.ms", requestTimeoutMs);
        made.put("delivery.timeout.ms", String.valueOf(PATIENCE_MS));
        made.put("max.block.ms", String.valueOf(PATIENCE_MS));
        made.put("reconnect.backoff.max.ms", "500");
        return new KafkaProducer<>(made, new LongSerializer(), new LongSerializer());
    }

    private static KafkaConsumer<Long, Long> consumer(String... pairs) {
        Map<String, Object> made = settings(pairs);
        made.put("auto.offset.reset", "earliest");
        made.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(made, new LongDeserializer(), new LongDeserializer());
    }

    private static void send() {
        try (KafkaProducer<Long, Long> producer = producer()) {
            for (long number = 0; !isEnding; number++) {
                long sent = number;
                int partition = (int) (number % PARTITIONS);
                producer.send(new ProducerRecord<>(NUMBERS, partition, null, sent), (metadata, problem) -> {
                    if (problem != null) {
                        failed.add(String.valueOf(problem));
                    } else {
                        sends.note(partition);
                        placed.put(sent, partition + ":" + metadata.offset());
                        acknowledged.get(partition).add(sent);
                    }
                });
                pause(5);
            }
        }
    }

    private static void transact() {
        KafkaProducer<Long, Long> producer = null;
        for (long number = 0; !isEnding; number++) {
            try {
                if (producer == null) {
                    producer = producer("transactional.id", "adder");
                    producer.initTransactions();
                }
                producer.beginTransaction();
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    producer.send(new ProducerRecord<>(SUMS, partition, null, number));
                }
                if (number % 5 == 4) {
                    producer.abortTransaction();
                    aborted.add(number);
                } else {
                    commit(producer);
                    committed.add(number);
                }
                transactions.note(0);
            } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException problem) {
                failed.add("transaction " + number + ": " + problem);
                producer.close(Duration.ZERO);
                producer = null;
            } catch (KafkaException problem) {
                try {
                    producer.abortTransaction();
                    aborted.add(number);
                } catch (KafkaException worse) {
                    producer.close(Duration.ZERO);  // whether it was committed is not known: it must be so as a whole
                    producer = null;
                }
            }
            pause(20);
        }
        if (producer != null) {
            producer.close();
        }
    }

    private static void commit(KafkaProducer<Long, Long> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException problem) {
                // The same commit is asked for again.
            }
        }
    }

    private static void consume() {
        try (KafkaConsumer<Long, Long> member = consumer("group.id", "readers")) {
            member.subscribe(List.of(NUMBERS));
            while (!isOver) {
                for (ConsumerRecord<Long, Long> record : member.poll(Duration.ofMillis(200))) {
                    seenByGroup.add(record.value());
                    String place = record.partition() + ":" + record.offset();
                    readByGroup.add(place + " is " + record.value() + " of leader epoch " + record.leaderEpoch().orElse(-1));
                }
                try {
                    member.commitSync();
                } catch (KafkaException problem) {
                    // It is committed with the next messages.
                }
            }
        }
    }

    private static boolean hasSeenAll() {
        return acknowledged.stream().allMatch(seenByGroup::containsAll);
    }

    private static String more() {
        List<Integer> wanted = new ArrayList<>();
        acknowledged.forEach(told -> wanted.add(told.size() + MORE));
        int ended = committed.size() + 2;
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < deadline && failed.isEmpty()) {
            boolean isDone = committed.size() >= ended;
            for (int partition = 0; partition < PARTITIONS; partition++) {
                isDone &= acknowledged.get(partition).size() >= wanted.get(partition);
            }
            if (isDone) {
                return "ok";
            }
            pause(20);
        }
        return failed.isEmpty() ? "nothing more is acknowledged" : failed.peek();
    }

    private static String outcome() {
        int lost = 0;
        int doubled = 0;
        int misordered = 0;
        List<List<Long>> numbers = read(NUMBERS, "read_uncommitted");
        for (int partition = 0; partition < PARTITIONS; partition++) {
            List<Long> found = numbers.get(partition);
            Set<Long> once = new HashSet<>(found);
            doubled += found.size() - once.size();
            for (long number : acknowledged.get(partition)) {
                lost += once.contains(number) ? 0 : 1;
            }
            for (int at = 1; at < found.size(); at++) {
                misordered += found.get(at) > found.get(at - 1) ? 0 : 1;
            }
        }
        int broken = 0;
        List<List<Long>> sums = read(SUMS, "read_committed");
        Map<Long, Integer> counts = new HashMap<>();
        sums.forEach(found -> found.forEach(number -> counts.merge(number, 1, Integer::sum)));
        for (Map.Entry<Long, Integer> entry : counts.entrySet()) {
            broken += entry.getValue() == PARTITIONS && !aborted.contains(entry.getKey()) ? 0 : 1;
        }
        for (long number : committed) {
            broken += counts.containsKey(number) ? 0 : 1;
        }
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!hasSeenAll() && System.currentTimeMillis() < deadline) {
            pause(50);
        }
        long count = acknowledged.stream().mapToLong(ConcurrentLinkedQueue::size).sum();
        List<Long> unread = new ArrayList<>();
        acknowledged.forEach(told -> told.stream().filter(number -> !seenByGroup.contains(number)).forEach(unread::add));
        for (long number : unread) {
            System.err.println("the group did not read " + number + ", acknowledged at " + placed.get(number) + "; what it read there:");
            readByGroup.stream().filter(read -> read.startsWith(placed.get(number) + " ")).forEach(System.err::println);
        }
        return "acknowledged=" + count + " lost=" + lost + " doubled=" + doubled + " misordered=" + misordered + " failed=" + failed.size()
            + " committed=" + committed.size() + " broken=" + broken + " unread=" + unread.size();
    }

    private static List<List<Long>> read(String topic, String isolation) {
        List<List<Long>> found = new ArrayList<>();
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            found.add(new ArrayList<>());
            partitions.add(new TopicPartition(topic, partition));
        }
        try (KafkaConsumer<Long, Long> reader = consumer("isolation.level", isolation)) {
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> reader.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<Long, Long> record : reader.poll(Duration.ofMillis(200))) {
                    found.get(record.partition()).add(record.value());
                }
            }
        }
        return found;
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException problem) {
            throw new IllegalStateException(problem);
        }
    }
}
