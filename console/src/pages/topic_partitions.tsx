// The partitions of a topic: offsets, sizes and storage.
import { type Schemas, apiPath } from "../api";
import { Ago, Bytes, Count, integer } from "../format";
import { State } from "../parts";
import { type Place, href, pathOf } from "../router";
import { type Column, LongTable } from "../tables";

export const Partitions = ({ name, query }: { name: string; query: Place["query"] }) => {
  const columns: Column<Schemas["PartitionView"]>[] = [
    {
      key: "partition",
      title: "Partition",
      width: "96px",
      show: (row) => (
        <a class="name-link num" data-row href={href(pathOf("topics", name), { partition: row.partition })} title="Its messages">
          {row.partition}
        </a>
      ),
    },
    { key: "state", title: "State", width: "110px", show: (row) => <State of={row.state} /> },
    { key: "start", title: "Start offset", end: true, wide: true, show: (row) => integer(row.start) },
    { key: "end", title: "End offset", end: true, show: (row) => integer(row.end) },
    { key: "messages", title: "Messages", end: true, show: (row) => <Count value={row.end - row.start} /> },
    { key: "bytes", title: "Size", end: true, show: (row) => <Bytes value={row.bytes} /> },
    {
      key: "head_bytes",
      title: "Head",
      end: true,
      wide: true,
      about: "recent messages, in small pieces",
      show: (row) => <Bytes value={row.head_bytes} />,
    },
    {
      key: "body_bytes",
      title: "Body",
      end: true,
      wide: true,
      about: "older messages, in large blobs",
      show: (row) => <Bytes value={row.body_bytes} />,
    },
    {
      key: "leader_epoch",
      title: "Leader epoch",
      end: true,
      wide: true,
      about: "the generation of its tablet: it rises with every start",
      show: (row) => integer(row.leader_epoch),
    },
    {
      key: "last_append_ms",
      title: "Last message",
      about: "when the last message was produced",
      end: true,
      wide: true,
      show: (row) => <Ago value={row.last_append_ms} />,
    },
  ];
  return (
    <div class="list-height">
      <LongTable
        label={`Partitions of ${name}`}
        noun="partition"
        columns={columns}
        path={apiPath("/topics/{name}/partitions", { name })}
        at={query.at}
        keyOf={(row) => row.partition}
        empty={null}
      />
    </div>
  );
};
