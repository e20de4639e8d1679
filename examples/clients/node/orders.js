// Produces three orders and consumes them in a consumer group, with KafkaJS: node orders.js [BOOTSTRAP]
import { Kafka, logLevel } from "kafkajs";

const orders = [
  { key: "ada", value: "tea" },
  { key: "bob", value: "coffee" },
  { key: "ada", value: "cake" },
];
const kafka = new Kafka({ brokers: [process.argv[2] ?? "127.0.0.1:9092"], logLevel: logLevel.ERROR });

const producer = kafka.producer({ idempotent: true });
await producer.connect();
for (const order of orders) {
  const [written] = await producer.send({ topic: "orders", messages: [order] });
  console.log(`produced to partition ${written.partition} at offset ${written.baseOffset}`);
}
await producer.disconnect();

const consumer = kafka.consumer({ groupId: "shipping-node" });
await consumer.connect();
await consumer.subscribe({ topic: "orders", fromBeginning: true });
let remaining = orders.length;
await new Promise((done, failed) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
  consumer.run({
    eachMessage: async ({ message }) => {
      console.log(`consumed ${message.key}: ${message.value}`);
      if (--remaining === 0) done();
    },
  });
});
await consumer.disconnect();
