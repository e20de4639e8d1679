// What is on the screen as a command or a program, to be pasted elsewhere.
import type { Schemas } from "./api";

type Cluster = Schemas["ClusterView"] | null;
type Message = Pick<Schemas["MessageView"], "partition" | "offset">;

/** The messages that a page shows. */
export interface MessageView {
  topic: string;
  start: string;
  partition: number | null;
  partitions: number;
  limit: number;
  live: boolean;
  search: string;
}

export const quoted = (text: string) => (/^[A-Za-z0-9._/:=@%+-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

const USUAL = "127.0.0.1:9092";

const bootstrapOf = (cluster: Cluster) => cluster?.listeners.kafka ?? USUAL;
const identity = (cluster: Cluster) =>
  (cluster?.user ? ` --user ${quoted(cluster.user)}` : "") + (cluster?.security.tls ? " --tls-ca ca.pem" : "");
const connection = (cluster: Cluster) =>
  (bootstrapOf(cluster) === USUAL ? "" : ` --bootstrap ${bootstrapOf(cluster)}`) + identity(cluster);

/** A command with the options that lead it to this node. */
export const command = (cluster: Cluster, text: string) => text + connection(cluster);

/** The same for commands that use the admin API. */
export const adminCommand = (cluster: Cluster, text: string) =>
  text + (location.protocol === "http:" && location.host === "127.0.0.1:8080" ? "" : ` --http ${location.origin}`) + identity(cluster);

function fromOf(start: string): string {
  const [kind, value] = start.split(":");
  if (kind === "offset") return ` --from ${value}`;
  if (kind === "time") return ` --from ${new Date(Number(value)).toISOString()}`;
  return "";
}

/** `penstock consume …` for what the page of messages shows. */
export function consumeCommand(cluster: Cluster, { topic, start, partition, limit, live, search }: MessageView): string {
  const where = start === "newest" ? (live ? " --from latest" : ` --last ${limit}`) : fromOf(start);
  const some = partition === null ? "" : ` -p ${partition}`;
  const how = live ? " --follow" : start === "newest" ? "" : ` -n ${limit}`;
  return `penstock consume ${quoted(topic)}${where}${some}${how} --format json${connection(cluster)}${search ? ` | grep -iF ${quoted(search)}` : ""}`;
}

export const messageCommand = (cluster: Cluster, topic: string, { partition, offset }: Message) =>
  `penstock consume ${quoted(topic)} -p ${partition} --from ${offset} -n 1 --format json${connection(cluster)}`;

const secured = (cluster: Cluster) =>
  cluster?.security.sasl
    ? `    "security.protocol": "${cluster.security.tls ? "SASL_SSL" : "SASL_PLAINTEXT"}",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "${cluster.user ?? "…"}",
    "sasl.password": os.environ["PENSTOCK_PASSWORD"],
`
    : "";

function program(cluster: Cluster, assigned: string, body: string): string {
  const beginning = assigned.includes("OFFSET_BEGINNING") ? "OFFSET_BEGINNING, " : "";
  return `${cluster?.security.sasl ? "import os\n\n" : ""}from confluent_kafka import ${beginning}Consumer, TopicPartition

consumer = Consumer({
    "bootstrap.servers": "${bootstrapOf(cluster)}",
    "group.id": "from-the-console",
    "enable.auto.commit": False,
${secured(cluster)}})
${assigned}
${body}
consumer.close()
`;
}

/** A program that reads what the page shows. */
export function consumeProgram(cluster: Cluster, { topic, start, partition, partitions, limit }: MessageView): string {
  const [kind, value] = start.split(":");
  const name = JSON.stringify(topic);
  const numbers = partition === null ? `range(${partitions})` : `[${partition}]`;
  const begin = kind === "offset" ? value : kind === "time" ? value : "OFFSET_BEGINNING";
  const listed = `[TopicPartition(${name}, number, ${begin}) for number in ${numbers}]`;
  const newest = `parts = []
for number in ${numbers}:
    first, after_last = consumer.get_watermark_offsets(TopicPartition(${name}, number))
    parts.append(TopicPartition(${name}, number, max(first, after_last - ${limit})))
consumer.assign(parts)`;
  const assigned =
    kind === "newest"
      ? newest
      : kind === "time"
        ? `consumer.assign(consumer.offsets_for_times(${listed}))`
        : `consumer.assign(${listed})`;
  return program(
    cluster,
    assigned,
    `for message in consumer.consume(${limit}, timeout=5):
    print(message.partition(), message.offset(), message.key(), message.value())`,
  );
}

export const messageProgram = (cluster: Cluster, topic: string, { partition, offset }: Message) =>
  program(
    cluster,
    `consumer.assign([TopicPartition(${JSON.stringify(topic)}, ${partition}, ${offset})])`,
    "message = consumer.poll(5)\nprint(message.headers(), message.key(), message.value())",
  );
