// Uses Penstock through kafkajs: one line for every step, "ok NAME" or "failed NAME: why".
"use strict";

const { Kafka, logLevel, CompressionTypes, Partitioners } = require("kafkajs");

const [bootstrap, prefix] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const COUNT = 100;
const PATIENCE_MS = 40_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const values = (topic) => Array.from({ length: COUNT }, (_, number) => `${topic}-${String(number).padStart(3, "0")}`);
const asMessages = (wanted) => wanted.map((value) => ({ key: value, value, headers: { kind: "test" } }));

function check(holds, problem) {
  if (!holds) throw new Error(problem);
}

function same(found, wanted) {
  const isSame = JSON.stringify([...found].sort()) === JSON.stringify([...wanted].sort());
  check(isSame, `what came is not what was sent: ${found.length} messages of ${wanted.length}`);
}

async function withClient(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

const create = (topic, partitions) =>
  withClient(kafka.admin(), (admin) => admin.createTopics({ topics: [{ topic, numPartitions: partitions }] }));

const makeProducer = (options) => kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...options });

const send = (topic, wanted, options = {}) =>
  withClient(makeProducer(), (producer) => producer.send({ topic, messages: asMessages(wanted), acks: -1, ...options }));

async function join(group, topic, options = {}) {
  const consumer = kafka.consumer({ groupId: group, ...options });
  const found = [];
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
  await consumer.run({ eachMessage: async ({ message }) => found.push(message.value.toString()) });
  await joined;
  return { consumer, found };
}

async function wait(wanted, ...members) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = members.flatMap((member) => member.found);
    if (found.length >= wanted.length) return same(found, wanted);
    check(Date.now() < deadline, `${found.length} messages came, ${wanted.length} were sent`);
    await pause(50);
  }
}

async function receive(topic, wanted, options = {}) {
  const member = await join(`${topic}-check`, topic, options);
  try {
    await wait(wanted, member);
  } finally {
    await member.consumer.disconnect();
  }
}

async function topics(topic) {
  await create(topic, 3);
  await withClient(kafka.admin(), async (admin) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
    const described = await admin.fetchTopicMetadata({ topics: [topic] });
    check(described.topics[0].partitions.length === 5, "the topic has not grown");
    const configs = await admin.describeConfigs({ resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }] });
    check(configs.resources[0].configEntries[0].configValue === "604800000", "retention.ms is not as it should be");
    await admin.deleteTopics({ topics: [topic] });
    check(!(await admin.listTopics()).includes(topic), "the topic is still there");
  });
}

async function messages(topic) {
  await create(topic, 3);
  await send(topic, values(topic));
  await receive(topic, values(topic));
}

async function compression(topic) {
  await create(topic, 1);
  const all = [];
  // The others need packages that kafkajs does not bring along.
  for (const codec of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const wanted = values(`${topic}${codec}`);
    await send(topic, wanted, { compression: codec });
    all.push(...wanted);
  }
  await receive(topic, all);
}

async function group(topic) {
  await create(topic, 4);
  await send(topic, values(topic));
  const first = await join(topic, topic);
  await wait(values(topic), first);
  await first.consumer.disconnect(); // commits; the next member continues from there
  const more = values(`${topic}-more`);
  await send(topic, more);
  const members = await Promise.all([join(topic, topic), join(topic, topic)]);
  await wait(more, ...members);
  await Promise.all(members.map((member) => member.consumer.disconnect()));
  await withClient(kafka.admin(), async (admin) => {
    const [offsets] = await admin.fetchOffsets({ groupId: topic, topics: [topic] });
    const total = offsets.partitions.reduce((sum, one) => sum + Number(one.offset), 0);
    check(total === 2 * COUNT, `the group has committed ${total}`);
  });
}

async function transactions(topic) {
  await create(topic, 2);
  await withClient(makeProducer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true }), async (producer) => {
    const aborted = await producer.transaction();
    await aborted.send({ topic, messages: asMessages(values(`${topic}-aborted`)) });
    await aborted.abort();
    const committed = await producer.transaction();
    await committed.send({ topic, messages: asMessages(values(topic)) });
    await committed.commit();
  });
  await receive(topic, values(topic));
}

async function exactlyOnce(topic) {
  const [source, target] = [`${topic}-from`, `${topic}-to`];
  await create(source, 1);
  await create(target, 1);
  await send(source, values(topic));
  await withClient(makeProducer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true }), async (producer) => {
    const consumer = kafka.consumer({ groupId: topic });
    let copied = 0;
    await consumer.connect();
    await consumer.subscribe({ topic: source, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        const transaction = await producer.transaction();
        await transaction.send({ topic: target, messages: batch.messages.map(({ value }) => ({ value })) });
        const partitions = [{ partition: batch.partition, offset: String(Number(batch.lastOffset()) + 1) }];
        await transaction.sendOffsets({ consumerGroupId: topic, topics: [{ topic: source, partitions }] });
        await transaction.commit();
        copied += batch.messages.length;
      },
    });
    const deadline = Date.now() + PATIENCE_MS;
    while (copied < COUNT) {
      check(Date.now() < deadline, `${copied} messages were copied, ${COUNT} were sent`);
      await pause(50);
    }
    await consumer.disconnect();
  });
  await receive(target, values(topic));
}

async function main() {
  const steps = { topics, messages, compression, group, transactions, exactly_once: exactlyOnce };
  for (const [name, step] of Object.entries(steps)) {
    try {
      await step(`${prefix}-${name}`);
      console.log(`ok ${name}`);
    } catch (problem) {
      console.log(`failed ${name}: ${String(problem).replace(/\n/g, " ")}`);
    }
  }
  process.exit(0);
}

main();
