// Streams: subjects with their sequences and durable consumers.
import type { ComponentChildren } from "preact";
import { type Schemas, apiPath, isNotFound } from "../api";
import { Bytes, Count, integer } from "../format";
import { useLive, useSettled } from "../live";
import { Bone, Card, Empty, Failure, PageHead, Search, Tile } from "../parts";
import { pathOf, useLocation } from "../router";
import { useCluster } from "../shell";
import { type Column, LongTable, Table } from "../tables";
import { HistoryTab } from "./topic_metrics";

const COLUMNS: Column<Schemas["SubjectView"]>[] = [
  {
    key: "subject",
    title: "Subject",
    show: (row) => (
      <a class="name-link clip" data-row href={pathOf("streams", row.subject)} title={row.subject}>
        {row.subject}
      </a>
    ),
  },
  { key: "last_sequence", title: "Last sequence", end: true, width: "112px", show: (row) => integer(row.last_sequence) },
  { key: "messages", title: "Messages", end: true, width: "92px", show: (row) => <Count value={row.messages} /> },
  {
    key: "bytes",
    title: "Size in the log",
    end: true,
    wide: true,
    width: "140px",
    about: "without payloads, which are stored separately",
    show: (row) => <Bytes value={row.bytes} />,
  },
  {
    key: "consumers",
    title: "Consumers",
    end: true,
    wide: true,
    width: "120px",
    show: (row) => <Count value={row.consumers} />,
  },
];
const DURABLES: Column<Schemas["DurableConsumerView"]>[] = [
  {
    key: "name",
    title: "Durable consumer",
    show: (row) => (
      <a class="name-link clip" data-row href={pathOf("consumers", `stream:${row.name}`)}>
        {row.name}
      </a>
    ),
  },
  { key: "position", title: "Acknowledged up to", end: true, show: (row) => integer(row.position) },
  { key: "lag_messages", title: "Lag", end: true, show: (row) => <Count value={row.lag_messages} /> },
  { key: "lag_bytes", title: "Bytes", end: true, wide: true, show: (row) => <Bytes value={row.lag_bytes} /> },
];

/** The --stream option of commands, if the listener is not the default one. */
const serverOption = (cluster: Schemas["ClusterView"] | null) =>
  cluster?.listeners.stream && cluster.listeners.stream !== "127.0.0.1:50051" ? ` --stream ${cluster.listeners.stream}` : "";

const Subject = ({ name }: { name: string }) => {
  const { query } = useLocation();
  const cluster = useCluster();
  const { data, error, refresh } = useLive(apiPath("/streams/{subject}", { subject: name }));
  const crumbs = (
    <>
      <a href="/streams">Streams</a> /
    </>
  );
  if (isNotFound(error))
    return (
      <div class="page">
        <PageHead title={name} crumbs={crumbs} />
        <Empty title="There is no such subject">
          Nothing was published to it, or streams are off. <a href="/streams">All subjects</a>
        </Empty>
      </div>
    );
  const known = (value: ComponentChildren) => (data ? value : <Bone />);
  return (
    <div class="page">
      <PageHead title={name} crumbs={crumbs}>
        <a class="button" href={pathOf("topics", name)}>
          Messages
        </a>
      </PageHead>
      <Failure error={error} again={refresh} what="The subject" />
      <div class="tiles">
        <Tile label="Last sequence" note="of the newest message">
          {known(integer(data?.last_sequence))}
        </Tile>
        <Tile label="Messages" note="retained">
          {known(<Count value={data?.messages} />)}
        </Tile>
        <Tile label="Size in the log" note="without large payloads">
          {known(<Bytes value={data?.bytes} />)}
        </Tile>
        <Tile label="Large payloads" note={data?.payload_bytes === null ? "too many to add up" : "stored beside the log"}>
          {known(<Bytes value={data?.payload_bytes} />)}
        </Tile>
      </div>
      {data && (
        <Card title="Durable consumers" bare>
          {data.consumers.length ? (
            <Table label="Durable consumers" columns={DURABLES} rows={data.consumers} keyOf={(row) => row.name} />
          ) : (
            <Empty
              title="No durable consumers"
              command={`penstock stream fetch ${name} --durable my-name${serverOption(cluster)}`}
            >
              A durable consumer keeps its position in the subject.
            </Empty>
          )}
        </Card>
      )}
      <HistoryTab name={name} query={query} />
    </div>
  );
};

const List = () => {
  const { query } = useLocation();
  const cluster = useCluster();
  const search = useSettled(query.search ?? "", 150);
  const isOff = cluster && !cluster.listeners.stream && !cluster.listeners.stream_http;
  const nothing = isOff ? (
    <Empty title="Streams are off" command="penstock up --stream-port 50051">
      A subject holds numbered messages with payloads of any size. To turn streams on, set a port:
    </Empty>
  ) : search ? (
    <Empty title="No matching subjects">
      Change the search, or <a href="/streams">show all</a>.
    </Empty>
  ) : (
    <Empty title="No subjects yet" command={`echo hello | penstock stream publish greetings${serverOption(cluster)}`}>
      The first message published to a subject creates it.
    </Empty>
  );
  return (
    <div class="page fill">
      <PageHead title="Streams" note="Subjects with numbered messages, and payloads of any size." />
      <div class="row">
        <Search label="Search subjects" value={query.search} />
      </div>
      <LongTable
        label="Subjects"
        noun="subject"
        columns={COLUMNS}
        path={apiPath("/streams")}
        query={{ search }}
        at={query.at}
        keyOf={(row) => row.subject}
        empty={nothing}
      />
    </div>
  );
};

export default function Streams() {
  const { segments } = useLocation();
  return segments[1] ? <Subject name={segments[1]} /> : <List />;
}
