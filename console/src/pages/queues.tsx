// All topics as queues, as the Queue Agent sees them.
import { type Schemas, apiPath } from "../api";
import { BytesRate, Count } from "../format";
import { useSettled } from "../live";
import { Badge, Empty, PageHead, Search, State } from "../parts";
import { pathOf, useLocation } from "../router";
import { useCluster } from "../shell";
import { command } from "../snippets";
import { type Column, LongTable } from "../tables";
import { WindowRate } from "./queue_rate";

type Queue = Schemas["QueueView"];

const rate = (span: keyof Schemas["Rates"]) => (row: Queue) => <WindowRate rates={row.write_row_count_rate} span={span} />;
const COLUMNS: Column<Queue>[] = [
  {
    key: "name",
    title: "Queue",
    show: (row) => (
      <a class="name-link clip" data-row href={pathOf("queues", row.name)} title={row.path}>
        {row.name}
      </a>
    ),
  },
  { key: "1m", title: "Rows, 1 min", end: true, width: "98px", show: rate("1m") },
  { key: "1h", title: "1 h", end: true, wide: "wider", width: "90px", show: rate("1h") },
  { key: "1d", title: "1 d", end: true, wide: "wider", width: "90px", show: rate("1d") },
  {
    key: "weight",
    title: "Data, 1 min",
    end: true,
    wide: "wider",
    width: "116px",
    show: (row) =>
      row.write_row_count_rate["1m"] > 0 && !row.write_data_weight_rate["1m"] ? (
        <span class="muted" title="Rows that were not written by YT's clients carry no weight">
          –
        </span>
      ) : (
        <BytesRate value={row.write_data_weight_rate["1m"]} />
      ),
  },
  {
    key: "registrations",
    title: "Consumers",
    end: true,
    wide: true,
    width: "104px",
    show: (row) => <Count value={row.registrations} />,
  },
  { key: "vital", title: "Vital", end: true, wide: "wider", width: "70px", show: (row) => <Count value={row.vital} /> },
  {
    key: "trim",
    title: "Trimming",
    wide: true,
    width: "104px",
    show: (row) => (row.trim.enable ? <Badge tone="good">on</Badge> : <span class="muted">off</span>),
  },
  {
    key: "mount_state",
    title: "State",
    width: "124px",
    show: (row) =>
      row.alerts ? (
        <Badge tone="warn">{row.alerts === 1 ? "1 alert" : `${row.alerts} alerts`}</Badge>
      ) : (
        <State of={row.mount_state} />
      ),
  },
];

export default function Queues() {
  const { query } = useLocation();
  const search = useSettled(query.search ?? "", 150);
  const cluster = useCluster();
  const nothing = search ? (
    <Empty title="No matching queues">
      Change the search, or <a href="/queues">show all</a>.
    </Empty>
  ) : (
    <Empty title="No queues yet" command={command(cluster, "echo hello | penstock produce greetings")}>
      Every topic is a queue; the first message creates it.
    </Empty>
  );
  return (
    <div class="page fill">
      <PageHead title="Queues" note="Topics as the Queue Agent sees them: rates, registered consumers, trimming." />
      <div class="row">
        <Search label="Search queues" value={query.search} />
      </div>
      <LongTable
        label="Queues"
        noun="queue"
        columns={COLUMNS}
        path={apiPath("/queues")}
        query={{ search }}
        at={query.at}
        keyOf={(row) => row.path}
        empty={nothing}
      />
    </div>
  );
}
