// What the node does now: throughput, lag, storage, and what needs attention.
import { html } from "../../vendor/htm-preact.js";
import { HistoryChart, RangeChoice } from "../charts.js";
import { Bytes, BytesRate, Count, CountRate, bytes, bytesPerSecond, countPerSecond, duration, integer, sentence } from "../format.js";
import { useLive } from "../live.js";
import { Bone, Card, Command, Empty, Failure, Meter, Notice, PageHead, Tile } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { useCluster } from "../shell.js";

const Alerts = ({ alerts }) => (alerts.length === 0
  ? html`<${Notice} tone="good">Nothing needs attention.<//>`
  : html`<div class="stack">${alerts.map((alert) => html`<${Notice} key=${alert.code + alert.message} tone=${alert.level === "critical" ? "bad" : "warn"} title=${sentence(alert.message)}>
      ${sentence(alert.what_to_do)}. ${alert.link && alert.link !== "/" && html`<a href=${alert.link}>Show</a>`}<//>`)}</div>`);

const First = () => html`<${Card} label="First steps"><${Empty} title="No topics yet">
  Any Kafka client can write here, and so can this command. A topic is made when something is first written to it.<//>
  <div class="stack"><${Command} label="Write a message" text="echo hello | penstock produce greetings" />
  <${Command} label="Read it" text="penstock consume greetings --follow" /></div><//>`;

const Storage = ({ storage }) => {
  const share = storage?.total ? 1 - storage.free / storage.total : null;
  return html`<${Tile} label="Storage used" href="/storage" note=${storage?.total ? `${bytes(storage.free)} free` : null}>
    ${storage ? html`<${Bytes} value=${storage.used} />` : html`<${Bone} />`}<${Meter} share=${share} label="Share of the disks that is taken" /><//>`;
};

export default function Overview() {
  const { query } = useLocation();
  const cluster = useCluster();
  const { data, error, refresh } = useLive("/overview", {}, { every: 2000 });
  const range = query.range ?? "10m";
  const worst = data?.lag_max;
  return html`<div class="page">
    <${PageHead} title="Overview" note=${cluster ? `Up for ${duration(Date.now() - cluster.started_ms)}, erasure ${cluster.erasure}, durability ${cluster.durability}` : "\u00a0"}><${RangeChoice} value=${range} /><//>
    <${Failure} error=${error} again=${refresh} what="The overview" />
    ${data && html`<${Alerts} alerts=${data.alerts} />`}
    <div class="tiles">
      <${Tile} label="Written" note=${data ? html`messages: <${CountRate} value=${data.produce.messages_per_s} />` : null}>${data ? html`<${BytesRate} value=${data.produce.bytes_per_s} />` : html`<${Bone} />`}<//>
      <${Tile} label="Read" note=${data ? html`messages: <${CountRate} value=${data.fetch.messages_per_s} />` : null}>${data ? html`<${BytesRate} value=${data.fetch.bytes_per_s} />` : html`<${Bone} />`}<//>
      <${Tile} label="Largest lag, messages" href=${worst?.consumer ? pathOf("consumers", worst.consumer) : "/consumers"}
        note=${worst?.consumer ? html`<span title=${`${worst.consumer} in ${worst.topic}`}>${worst.consumer}</span>` : data ? "every consumer is up to date" : null}>${data ? html`<${Count} value=${worst?.messages ?? 0} />` : html`<${Bone} />`}<//>
      <${Tile} label="Topics" href="/topics" note=${data ? `${integer(data.partitions)} partitions, ${integer(data.consumers)} consumers` : null}>${data ? html`<${Count} value=${data.topics} />` : html`<${Bone} />`}<//>
      <${Storage} storage=${data?.storage} />
    </div>
    ${data && data.topics === 0 && html`<${First} />`}
    <div class="grid">
      <${HistoryChart} title="Throughput" unit="bytes" range=${range} format=${bytesPerSecond} lines=${[{ query: { metric: "produce_bytes" }, label: "written" }, { query: { metric: "fetch_bytes" }, label: "read" }]} />
      <${HistoryChart} title="Messages" range=${range} format=${countPerSecond} lines=${[{ query: { metric: "produce_messages" }, label: "written" }, { query: { metric: "fetch_messages" }, label: "read" }]} />
      <${HistoryChart} title="Time taken, 99th percentile" unit="ms" range=${range} format=${duration} lines=${[{ query: { metric: "request_ms_p99" }, label: "request" }, { query: { metric: "fsync_ms_p99" }, label: "fsync" }]} />
      <${HistoryChart} title="Storage used" unit="bytes" range=${range} format=${bytes} lines=${[{ query: { metric: "storage_used" }, label: "used" }]} />
    </div>
  </div>`;
}
