// What the node does now: throughput, lag, storage, and what needs attention.
import { html, useState } from "../preact.js";
import { HistoryChart, RangeChoice } from "../charts.js";
import {
  Bytes,
  BytesRate,
  Count,
  CountRate,
  bytes,
  bytesPerSecond,
  countPerSecond,
  duration,
  integer,
  sentence,
} from "../format.js";
import { useLive } from "../live.js";
import { Bone, Card, Command, Empty, Failure, Meter, Notice, PageHead, Tile } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { useCluster } from "../shell.js";

const SHOWN = 3;
const toneOf = ({ level }) => (level === "critical" ? "bad" : "warn");

const Alert = ({ alert }) =>
  html`<${Notice} tone=${toneOf(alert)} title=${sentence(alert.message)} role="note">
    ${sentence(alert.what_to_do)}. ${alert.link && alert.link !== "/" && html`<a href=${alert.link}>Show</a>`}<//
  >`;

/** The gravest first; of many, the rest on demand. */
const Alerts = ({ alerts }) => {
  const [all, setAll] = useState(false);
  if (alerts.length === 0) return html`<${Notice} tone="good">Nothing needs attention.<//>`;
  const sorted = [...alerts].sort((a, b) => (a.level === b.level ? 0 : a.level === "critical" ? -1 : 1));
  const hidden = sorted.length - SHOWN;
  return html`<section class="stack tight" aria-label="Alerts">
    ${sorted.slice(0, all ? undefined : SHOWN).map((alert) => html`<${Alert} key=${`${alert.code} ${alert.name}`} alert=${alert} />`)}
    ${hidden > 0 && html`<button type="button" class="button small fit" aria-expanded=${String(all)} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show ${hidden} more`}</button>`}
  </section>`;
};

const First = () =>
  html`<${Card} label="First steps"
    ><${Empty} title="No topics yet">
      Any Kafka client can write here, and so can this command. A topic is made when something is first written to it.<//
    >
    <div class="stack">
      <${Command} label="Write a message" text="echo hello | penstock produce greetings" />
      <${Command} label="Read it" text="penstock consume greetings --follow" /></div
  ><//>`;

const Storage = ({ storage }) => {
  const share = storage?.total ? 1 - storage.free / storage.total : null;
  return html`<${Tile} label="Storage used" href="/storage" note=${storage?.total ? `${bytes(storage.free)} free` : null}>
    ${storage ? html`<${Bytes} value=${storage.used} />` : html`<${Bone} />`}<${Meter}
      share=${share}
      label="Share of the disks that is taken"
  /><//>`;
};

const line = (metric, label) => ({ query: { metric }, label });

/** Drawn once there is an answer, so that alerts do not push everything down a moment later. */
const Figures = ({ data, range }) => {
  const worst = data?.lag_max;
  const known = (value) => (data ? value : html`<${Bone} />`);
  return html`${data && html`<${Alerts} alerts=${data.alerts} />`}
    <div class="tiles">
      <${Tile} label="Written" note=${data && html`messages: <${CountRate} value=${data.produce.messages_per_s} />`}
        >${known(html`<${BytesRate} value=${data?.produce.bytes_per_s} />`)}<//
      >
      <${Tile} label="Read" note=${data && html`messages: <${CountRate} value=${data.fetch.messages_per_s} />`}
        >${known(html`<${BytesRate} value=${data?.fetch.bytes_per_s} />`)}<//
      >
      <${Tile}
        label="Largest lag, messages"
        href=${worst ? pathOf("consumers", worst.consumer) : "/consumers"}
        note=${worst ? html`<span title=${`${worst.consumer} in ${worst.topic}`}>${worst.consumer}</span>` : "every consumer is up to date"}
        >${known(html`<${Count} value=${worst?.messages ?? 0} />`)}<//
      >
      <${Tile}
        label="Topics"
        href="/topics"
        note=${data && `${integer(data.partitions)} partitions, ${integer(data.consumers)} consumers`}
        >${known(html`<${Count} value=${data?.topics} />`)}<//
      >
      <${Storage} storage=${data?.storage} />
    </div>
    ${data?.topics === 0 && html`<${First} />`}
    <div class="grid">
      <${HistoryChart}
        title="Throughput"
        unit="bytes"
        range=${range}
        format=${bytesPerSecond}
        lines=${[line("produce_bytes", "written"), line("fetch_bytes", "read")]}
      />
      <${HistoryChart}
        title="Messages"
        range=${range}
        format=${countPerSecond}
        lines=${[line("produce_messages", "written"), line("fetch_messages", "read")]}
      />
      <${HistoryChart}
        title="Time taken, 99th percentile"
        unit="ms"
        range=${range}
        format=${duration}
        lines=${[line("request_ms_p99", "request"), line("fsync_ms_p99", "fsync")]}
      />
      <${HistoryChart} title="Storage used" unit="bytes" range=${range} format=${bytes} lines=${[line("storage_used", "used")]} />
    </div>`;
};

export default function Overview() {
  const { query } = useLocation();
  const cluster = useCluster();
  const { data, error, refresh } = useLive("/overview", {}, { every: 2000 });
  const range = query.range ?? "10m";
  return html`<div class="page">
    <${PageHead}
      title="Overview"
      note=${cluster ? `Up for ${duration(Date.now() - cluster.started_ms)}, erasure ${cluster.erasure}, durability ${cluster.durability}` : "\u00a0"}
      ><${RangeChoice} value=${range}
    /><//>
    <${Failure} error=${error} again=${refresh} what="The overview" />
    ${(data || error) && html`<${Figures} data=${data} range=${range} />`}
  </div>`;
}
