// The overview: throughput, lag, storage, and alerts.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type Schemas, apiPath } from "../api";
import { HistoryChart, type Line, RangeChoice } from "../charts";
import {
  Bytes,
  BytesRate,
  Count,
  CountRate,
  bytes,
  bytesPerSecond,
  countPerSecond,
  duration,
  plural,
  sentence,
} from "../format";
import { useLive } from "../live";
import { Bone, Card, Command, Empty, Failure, Meter, Notice, PageHead, Tile } from "../parts";
import { pathOf, useLocation } from "../router";
import { useCluster } from "../shell";
import { command } from "../snippets";
import { Flow, WholeFlow } from "./flow";

const SHOWN = 3;
type Alert = Schemas["Alert"];

const toneOf = ({ level }: Alert) => (level === "critical" ? "bad" : "warn");

const AlertNotice = ({ alert }: { alert: Alert }) => (
  <Notice tone={toneOf(alert)} title={sentence(alert.message)} role="note">
    {sentence(alert.what_to_do)}. {alert.link && alert.link !== "/" && <a href={alert.link}>Show</a>}
  </Notice>
);

/** Critical alerts first; only the first few unless expanded. */
const Alerts = ({ alerts }: { alerts: Alert[] }) => {
  const [all, setAll] = useState(false);
  if (alerts.length === 0) return <Notice tone="good">Nothing needs attention.</Notice>;
  const sorted = [...alerts].sort((a, b) => (a.level === b.level ? 0 : a.level === "critical" ? -1 : 1));
  const hidden = sorted.length - SHOWN;
  return (
    <section class="stack tight" aria-label="Alerts">
      {sorted.slice(0, all ? undefined : SHOWN).map((alert) => (
        <AlertNotice key={`${alert.code} ${alert.name}`} alert={alert} />
      ))}
      {hidden > 0 && (
        <button type="button" class="button small fit" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Show fewer" : `Show ${hidden} more`}
        </button>
      )}
    </section>
  );
};

const First = ({ cluster }: { cluster: Schemas["ClusterView"] | null }) => (
  <Card label="First steps">
    <Empty title="No topics yet">
      Any Kafka client can produce here, and so can this command. A topic is created by the first message.
    </Empty>
    <div class="stack">
      <Command label="Produce a message" text={command(cluster, "echo hello | penstock produce greetings")} />
      <Command label="Consume it" text={command(cluster, "penstock consume greetings --follow")} />
    </div>
  </Card>
);

const Storage = ({ storage }: { storage: Schemas["SpaceView"] | null | undefined }) => {
  const share = storage?.total ? 1 - storage.free / storage.total : null;
  return (
    <Tile
      label="Storage used by Penstock"
      href="/storage"
      note={
        storage?.total ? (
          <span title={`${bytes(Math.max(0, storage.total - storage.free - storage.used))} are used by other files`}>
            {bytes(storage.free)} free
          </span>
        ) : null
      }
    >
      {storage ? <Bytes value={storage.used} /> : <Bone />}
      <Meter
        share={share}
        own={storage?.total ? storage.used / storage.total : 0}
        label="Share of the disks in use, by Penstock and by other files"
      />
    </Tile>
  );
};

const line = (metric: Line["query"]["metric"], label: string): Line => ({ query: { metric }, label });

/** Drawn once there is an answer, so that alerts do not shift the layout. */
const Figures = ({ data, range }: { data: Schemas["Overview"] | null; range: string }) => {
  const cluster = useCluster();
  // The node tells its storage only to users who may describe the cluster.
  const isRestricted = Boolean(data && !data.storage && cluster?.user);
  const worst = data?.lag_max;
  const known = (value: ComponentChildren) => (data ? value : <Bone />);
  return (
    <>
      {isRestricted && (
        <Notice title={`You are signed in as ${cluster?.user}, and see what you have rights to`}>
          Storage, charts and alerts of the node need DESCRIBE on the cluster. An administrator can allow it:{" "}
          <code>penstock access allow --cluster {cluster?.user} describe</code>
        </Notice>
      )}
      {data && (data.alerts.length > 0 || !isRestricted) && <Alerts alerts={data.alerts} />}
      <div class="tiles">
        <Tile
          label="Produced"
          note={
            data && (
              <>
                messages: <CountRate value={data.produce.messages_per_s} />
              </>
            )
          }
        >
          {known(<BytesRate value={data?.produce.bytes_per_s} />)}
        </Tile>
        <Tile
          label="Consumed"
          note={
            data && (
              <>
                messages: <CountRate value={data.fetch.messages_per_s} />
              </>
            )
          }
        >
          {known(<BytesRate value={data?.fetch.bytes_per_s} />)}
        </Tile>
        <Tile
          label="Largest lag, messages"
          href={worst ? pathOf("consumers", worst.consumer) : "/consumers"}
          note={
            worst ? <span title={`${worst.consumer} in ${worst.topic}`}>{worst.consumer}</span> : "no group is behind"
          }
        >
          {known(<Count value={worst?.messages ?? 0} />)}
        </Tile>
        <Tile
          label="Topics"
          href="/topics"
          note={data && `${plural(data.partitions, "partition")}, ${plural(data.consumers, "group")}`}
        >
          {known(<Count value={data?.topics} />)}
        </Tile>
        {!isRestricted && <Storage storage={data?.storage} />}
      </div>
      {data?.topics === 0 && <First cluster={cluster} />}
      {data && data.topics > 0 && (isRestricted ? <Flow produce={data.produce} count={data.topics} /> : <WholeFlow produce={data.produce} count={data.topics} />)}
      {!isRestricted && (
        <div class="grid">
          <HistoryChart
            title="Throughput"
            unit="bytes"
            range={range}
            format={bytesPerSecond}
            lines={[line("produce_bytes", "produced"), line("fetch_bytes", "consumed")]}
          />
          <HistoryChart
            title="Messages"
            range={range}
            format={countPerSecond}
            lines={[line("produce_messages", "produced"), line("fetch_messages", "consumed")]}
          />
          <HistoryChart
            title="Latency, 99th percentile"
            unit="ms"
            range={range}
            format={duration}
            lines={[line("request_ms_p99", "request"), line("fsync_ms_p99", "fsync")]}
          />
          <HistoryChart title="Storage used" unit="bytes" range={range} format={bytes} lines={[line("storage_used", "used")]} />
        </div>
      )}
    </>
  );
};

export default function Overview() {
  const { query } = useLocation();
  const cluster = useCluster();
  const { data, error, refresh } = useLive(apiPath("/overview"), {}, { every: 2000 });
  const range = query.range ?? "10m";
  return (
    <div class="page">
      <PageHead
        title="Overview"
        note={
          cluster
            ? `Up for ${duration(Date.now() - cluster.started_ms)}, erasure ${cluster.erasure}, durability ${cluster.durability}`
            : "\u00a0"
        }
      >
        <RangeChoice value={range} />
      </PageHead>
      <Failure error={error} again={refresh} what="The overview" />
      {(data || error) && <Figures data={data} range={range} />}
    </div>
  );
}
