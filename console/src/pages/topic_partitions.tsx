// The partitions of a topic: where they are, offsets, sizes and storage.
import { type Schemas, apiPath } from "../api";
import { Ago, Bytes, Count, integer } from "../format";
import { State } from "../parts";
import { type Place, href, pathOf } from "../router";
import { type Column, LongTable } from "../tables";
import { PartitionMap } from "./partition_map";

interface PartitionsProps {
  name: string;
  topic: Schemas["TopicView"];
  query: Place["query"];
}

export const Partitions = ({ name, topic, query }: PartitionsProps) => {
  const columns: Column<Schemas["PartitionView"]>[] = [
    {
      key: "partition",
      title: "Partition",
      width: "84px",
      show: (row) => (
        <a class="name-link num" data-row href={href(pathOf("topics", name), { partition: row.partition })} title="Its messages">
          {row.partition}
        </a>
      ),
    },
    { key: "state", title: "State", width: "104px", show: (row) => <State of={row.state} /> },
    { key: "start", title: "Start offset", end: true, wide: true, show: (row) => integer(row.start) },
    { key: "end", title: "End offset", end: true, wide: true, show: (row) => integer(row.end) },
    { key: "messages", title: "Messages", end: true, show: (row) => <Count value={row.end - row.start} /> },
    { key: "bytes", title: "Size", end: true, show: (row) => <Bytes value={row.bytes} /> },
    {
      key: "head_bytes",
      title: "Head",
      end: true,
      wide: "widest",
      about: "recent messages, in small pieces",
      show: (row) => <Bytes value={row.head_bytes} />,
    },
    {
      key: "body_bytes",
      title: "Body",
      end: true,
      wide: "widest",
      about: "older messages, in large blobs",
      show: (row) => <Bytes value={row.body_bytes} />,
    },
    {
      key: "leader",
      title: "Leader",
      end: true,
      wide: true,
      show: (row) => (row.leader === null ? <span class="bad-text">none</span> : integer(row.leader)),
    },
    {
      key: "replicas",
      title: "Replicas",
      end: true,
      wide: "wider",
      about: "the nodes with copies, as Kafka clients are told; those not in sync are struck out",
      show: (row) =>
        row.replicas.map((node, index) => (
          <>
            {index > 0 && ", "}
            {row.in_sync.includes(node) ? node : <del class="warn-text">{node}</del>}
          </>
        )),
    },
    {
      key: "lag",
      title: "Largest lag",
      end: true,
      wide: true,
      about: "of a consumer group in this partition",
      show: (row) =>
        row.lag === null ? (
          <span class="muted">–</span>
        ) : (
          <span title={row.lag_group ?? undefined}>
            <Count value={row.lag} />
          </span>
        ),
    },
    {
      key: "leader_epoch",
      title: "Epoch",
      end: true,
      wide: "widest",
      about: "leader epoch: the generation of its tablet: it rises with every start",
      show: (row) => integer(row.leader_epoch),
    },
    {
      key: "last_append_ms",
      title: "Last message",
      about: "when the last message was produced",
      end: true,
      wide: true,
      width: "118px",
      show: (row) => <Ago value={row.last_append_ms} />,
    },
  ];
  return (
    <div class="stack">
      <PartitionMap topic={name} />
      <LongTable
        label={`Partitions of ${name}`}
        noun="partition"
        columns={columns}
        path={apiPath("/topics/{name}/partitions", { name })}
        at={query.at}
        keyOf={(row) => row.partition}
        empty={null}
        expected={topic.partitions}
      />
    </div>
  );
};
