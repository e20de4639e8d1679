// What the Queue Agent knows of a queue: rates over a minute, an hour and a day, registered consumers, trimming.
import { useState } from "preact/hooks";
import { type Schemas, apiPath } from "../api";
import { Bytes, BytesRate, Count, Duration, Moment, duration, integer } from "../format";
import { useLive } from "../live";
import { Badge, Bone, Card, Empty, Facts, Failure, Notice, State } from "../parts";
import { pathOf } from "../router";
import { useRights } from "../rights";
import { useCluster } from "../shell";
import { adminCommand, quoted } from "../snippets";
import { type Column, Table } from "../tables";
import { WindowRate } from "./queue_rate";
import { Register, SetTrimming, Unregister } from "./queue_actions";
import type { Queue, QueuePartition, Registration } from "./queue_status";

type Rates = Schemas["Rates"];

const SPANS: [key: keyof Rates, text: string][] = [
  ["current", "now"],
  ["1m", "1 min"],
  ["1h", "1 h"],
  ["1d", "1 d"],
];

/** Rates over several spans, a line for rows and one for their weight. */
const RateTable = ({ rows, weights, label }: { rows: Rates; weights: Rates; label: string }) => (
  <div class="table-scroll" tabindex={0} role="region" aria-label={label}>
    <table class="table">
      <caption class="spoken">{label}</caption>
      <thead>
        <tr>
          <th scope="col">
            <span class="spoken">What</span>
          </th>
          {SPANS.map(([key, text]) => (
            <th key={key} scope="col" class="end">
              {text}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        <tr>
          <th scope="row">Rows</th>
          {SPANS.map(([key]) => (
            <td key={key} class="end">
              <WindowRate rates={rows} span={key} />
            </td>
          ))}
        </tr>
        <tr>
          <th scope="row">Data</th>
          {SPANS.map(([key]) => (
            <td key={key} class="end">
              {rows[key] > 0 && !weights[key] ? (
                <span class="muted" title="Rows that were not written by YT's clients carry no weight">
                  –
                </span>
              ) : (
                <WindowRate rates={weights} span={key} shown={BytesRate} />
              )}
            </td>
          ))}
        </tr>
      </tbody>
    </table>
  </div>
);

const parsed = (iso: string | undefined) => {
  const ms = Date.parse(iso ?? "");
  return ms > 0 ? ms : null;
};
const unreadRows = (partitions: NonNullable<Registration["partitions"]>) =>
  partitions.reduce((total, partition) => total + (partition.unread_row_count ?? 0), 0);
const pathIn = (consumer: string) => consumer.slice(consumer.indexOf(":") + 1);

/** The name a consumer has on its own page: a group of Kafka's by its name, one of YT by its path. */
const pageOf = (consumer: string) => pathOf("consumers", pathIn(consumer).replace(/^\/\/groups\//, ""));

const registrationColumns = (end: (registration: Registration) => void): Column<Registration>[] => [
  {
    key: "consumer",
    title: "Consumer",
    show: (row) =>
      row.status ? (
        <a class="name-link clip" data-row href={pageOf(row.consumer)}>
          {row.consumer}
        </a>
      ) : (
        <span class="clip">{row.consumer}</span>
      ),
  },
  {
    key: "vital",
    title: "Vital",
    show: (row) =>
      row.vital ? (
        <Badge plain tone="accent" title="Messages are not trimmed before it has read them">
          vital
        </Badge>
      ) : (
        <span class="muted">no</span>
      ),
  },
  {
    key: "unread",
    title: "Unread rows",
    end: true,
    show: (row) => (row.partitions ? <Count value={unreadRows(row.partitions)} /> : "–"),
  },
  {
    key: "lag",
    title: "Lag in time",
    end: true,
    show: (row) =>
      row.partitions ? <Duration value={Math.max(0, ...row.partitions.map(({ processing_lag: lag }) => lag ?? 0))} /> : "–",
  },
  ...SPANS.slice(1).map(([key, text]): Column<Registration> => ({
    key,
    title: `Read, ${text}`,
    end: true,
    wide: true,
    show: (row) => <WindowRate rates={row.status?.read_row_count_rate} span={key} />,
  })),
  {
    key: "error",
    title: "State",
    show: (row) =>
      row.status?.error ? (
        <span class="bad-text wrap">{row.status.error.message}</span>
      ) : row.status ? (
        <Badge tone="good">active</Badge>
      ) : (
        <span class="muted">on another cluster</span>
      ),
  },
  {
    key: "end",
    end: true,
    show: (row) =>
      row.status && (
        <button
          type="button"
          class="button small"
          aria-label={`Unregister ${row.consumer}`}
          onClick={() => end(row)}
        >
          Unregister
        </button>
      ),
  },
];

type NumberedPartition = QueuePartition & { number: number };

const PARTITIONS: Column<NumberedPartition>[] = [
  { key: "number", title: "Partition", show: (row) => row.number },
  { key: "lower_row_index", title: "First row", end: true, wide: true, show: (row) => integer(row.lower_row_index) },
  { key: "upper_row_index", title: "Next row", end: true, show: (row) => integer(row.upper_row_index) },
  { key: "available_row_count", title: "Rows", end: true, show: (row) => <Count value={row.available_row_count} /> },
  {
    key: "available_data_weight",
    title: "Data weight",
    end: true,
    wide: true,
    show: (row) => <Bytes value={row.available_data_weight} />,
  },
  ...SPANS.slice(1).map(([key, text]): Column<NumberedPartition> => ({
    key,
    title: `Written, ${text}`,
    end: true,
    wide: true,
    show: (row) => <WindowRate rates={row.write_row_count_rate} span={key} />,
  })),
  {
    key: "last_row_commit_time",
    title: "Last write",
    end: true,
    show: (row) =>
      row.error ? <span class="bad-text wrap">{row.error.message}</span> : <Moment value={parsed(row.last_row_commit_time)} />,
  },
];

const Trimming = ({ queue }: { queue: Queue }) => {
  const { trim } = queue;
  const vital = queue.registrations.filter((row) => row.vital);
  return (
    <div class="stack">
      <Facts
        of={[
          ["Automatic trimming", trim.enable ? <Badge tone="good">on</Badge> : <Badge>off</Badge>],
          [
            "Waits for",
            vital.length ? (
              vital.map(({ consumer }) => consumer).join(", ")
            ) : (
              <span class="muted">no vital consumer, so nothing is trimmed</span>
            ),
          ],
          [
            "Retained",
            trim.retained_rows || trim.retained_lifetime_ms ? (
              [
                trim.retained_rows && `the last ${integer(trim.retained_rows)} rows`,
                trim.retained_lifetime_ms && `rows of the last ${duration(trim.retained_lifetime_ms)}`,
              ]
                .filter(Boolean)
                .join(" and ")
            ) : (
              <span class="muted">only what vital consumers have not read</span>
            ),
          ],
        ]}
      />
    </div>
  );
};

type OpenDialog = { act: "register" } | { act: "trimming" } | { act: "unregister"; registration: Registration };

export const QueueView = ({ name }: { name: string }) => {
  const { data, error, refresh } = useLive(apiPath("/queues/{name}", { name }));
  const [opened, setDialog] = useState<OpenDialog | null>(null);
  const cluster = useCluster();
  const refusal = useRights("topic", (data as Queue | null)?.topic ?? name);
  const queue = data as Queue | null;
  if (!queue)
    return (
      <>
        <Failure error={error} again={refresh} what="The queue" />
        {!error && (
          <div class="card card-body">
            <Bone width="60%" />
          </div>
        )}
      </>
    );
  const dialog = { queue, onClose: () => setDialog(null), onDone: refresh };
  return (
    <div class="stack">
      <Failure error={error} again={refresh} what="The queue" />
      {queue.alerts.map((alert) => (
        <Notice key={alert.name} tone="warn" title={alert.name.replace(/_/g, " ")}>
          {alert.message}
        </Notice>
      ))}
      <div class="grid">
        <Card title="Written" bare>
          <RateTable label="Write rates" rows={queue.write_row_count_rate} weights={queue.write_data_weight_rate} />
        </Card>
        <Card
          title="Trimming"
          actions={
            <>
              <State of={queue.mount_state} />
              <button
                type="button"
                class="button small"
                disabled={Boolean(refusal("ALTER"))}
                title={refusal("ALTER") ?? undefined}
                onClick={() => setDialog({ act: "trimming" })}
              >
                Change…
              </button>
            </>
          }
        >
          <Trimming queue={queue} />
        </Card>
      </div>
      <Card
        title="Registered consumers"
        bare
        actions={
          <button type="button" class="button small" onClick={() => setDialog({ act: "register" })}>
            Register…
          </button>
        }
      >
        {queue.registrations.length ? (
          <Table
            label="Registered consumers"
            tall
            columns={registrationColumns((registration) => setDialog({ act: "unregister", registration }))}
            rows={queue.registrations}
            keyOf={(row) => row.consumer}
          />
        ) : (
          <Empty title="No consumer is registered" command={adminCommand(cluster, `penstock queue register ${quoted(queue.name)} my-group --vital`)}>
            The Queue Agent monitors registered consumers. Messages that a vital consumer has not read are not trimmed.
          </Empty>
        )}
      </Card>
      {queue.exports && (
        <Card title="Exports">
          <pre class="plain-text">{JSON.stringify(queue.exports, null, 2)}</pre>
        </Card>
      )}
      <Card title="Partitions" bare>
        <Table
          label="Partitions"
          columns={PARTITIONS}
          rows={queue.partition_list.map((row, number) => ({ ...row, number }))}
          keyOf={(row) => row.number}
        />
      </Card>
      {opened?.act === "register" && <Register {...dialog} />}
      {opened?.act === "unregister" && <Unregister {...dialog} registration={opened.registration} />}
      {opened?.act === "trimming" && <SetTrimming {...dialog} />}
    </div>
  );
};
