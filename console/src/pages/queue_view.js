// What the Queue Agent knows of a queue: rates over a minute, an hour and a day, registered consumers, trimming.
import { html, useState } from "../preact.js";
import { apiPath } from "../api.js";
import { Bytes, BytesRate, Count, CountRate, Duration, Moment, duration, integer } from "../format.js";
import { useLive } from "../live.js";
import { Badge, Bone, Card, Empty, Facts, Failure, Notice, State } from "../parts.js";
import { pathOf } from "../router.js";
import { quoted } from "../snippets.js";
import { Table } from "../tables.js";
import { Register, SetTrimming, Unregister } from "./queue_actions.js";

const SPANS = [
  ["current", "now"],
  ["1m", "1 min"],
  ["1h", "1 h"],
  ["1d", "1 d"],
];

/** Rates over several spans, a line for rows and one for their weight. */
const Rates = ({ rows, weights, label }) =>
  html`<div class="table-scroll" tabindex="0" role="region" aria-label=${label}>
    <table class="table">
      <caption class="spoken">
        ${label}
      </caption>
      <thead>
        <tr>
          <th scope="col"><span class="spoken">What</span></th>
          ${SPANS.map(([key, text]) => html`<th key=${key} scope="col" class="end">${text}</th>`)}
        </tr>
      </thead>
      <tbody>
        <tr>
          <th scope="row">Rows</th>
          ${SPANS.map(([key]) => html`<td key=${key} class="end"><${CountRate} value=${rows[key]} /></td>`)}
        </tr>
        <tr>
          <th scope="row">Data</th>
          ${SPANS.map(([key]) => html`<td key=${key} class="end">${rows[key] > 0 && !weights[key] ? html`<span class="muted" title="Rows that were not written by YT's clients carry no weight">–</span>` : html`<${BytesRate} value=${weights[key]} />`}</td>`)}
        </tr>
      </tbody>
    </table>
  </div>`;

const parsed = (iso) => {
  const ms = Date.parse(iso);
  return ms > 0 ? ms : null;
};
const sum = (list, key) => (list ?? []).reduce((total, one) => total + (one[key] ?? 0), 0);
const pathIn = (consumer) => consumer.slice(consumer.indexOf(":") + 1);

/** The name a consumer has on its own page: a group of Kafka's by its name, one of YT by its path. */
const pageOf = (consumer) => pathOf("consumers", pathIn(consumer).replace(/^\/\/groups\//, ""));

const readers = (end) => [
  {
    key: "consumer",
    title: "Consumer",
    show: (one) =>
      one.status
        ? html`<a class="name-link clip" data-row href=${pageOf(one.consumer)}>${one.consumer}</a>`
        : html`<span class="clip">${one.consumer}</span>`,
  },
  {
    key: "vital",
    title: "Vital",
    show: (one) =>
      one.vital
        ? html`<${Badge} plain tone="accent" title="What it has not read is not trimmed">vital<//>`
        : html`<span class="muted">no</span>`,
  },
  {
    key: "unread",
    title: "Unread rows",
    end: true,
    show: (one) => (one.partitions ? html`<${Count} value=${sum(one.partitions, "unread_row_count")} />` : "–"),
  },
  {
    key: "lag",
    title: "Behind by",
    end: true,
    show: (one) =>
      one.partitions
        ? html`<${Duration} value=${Math.max(0, ...one.partitions.map(({ processing_lag: lag }) => lag ?? 0))} />`
        : "–",
  },
  ...SPANS.slice(1).map(([key, text]) => ({
    key,
    title: `Read, ${text}`,
    end: true,
    wide: true,
    show: (one) => html`<${CountRate} value=${one.status?.read_row_count_rate?.[key]} />`,
  })),
  {
    key: "error",
    title: "State",
    show: (one) =>
      one.status?.error
        ? html`<span class="bad-text wrap">${one.status.error.message}</span>`
        : one.status
          ? html`<${Badge} tone="good">reads<//>`
          : html`<span class="muted">on another cluster</span>`,
  },
  {
    key: "end",
    end: true,
    show: (one) =>
      one.status &&
      html`<button type="button" class="button small" aria-label=${`End the registration of ${one.consumer}`} onClick=${() => end(one)}>
        End
      </button>`,
  },
];

const PARTITIONS = [
  { key: "number", title: "Partition", show: (one) => one.number },
  { key: "lower_row_index", title: "First row", end: true, wide: true, show: (one) => integer(one.lower_row_index) },
  { key: "upper_row_index", title: "Next row", end: true, show: (one) => integer(one.upper_row_index) },
  { key: "available_row_count", title: "Rows", end: true, show: (one) => html`<${Count} value=${one.available_row_count} />` },
  {
    key: "available_data_weight",
    title: "Data weight",
    end: true,
    wide: true,
    show: (one) => html`<${Bytes} value=${one.available_data_weight} />`,
  },
  ...SPANS.slice(1).map(([key, text]) => ({
    key,
    title: `Written, ${text}`,
    end: true,
    wide: true,
    show: (one) => html`<${CountRate} value=${one.write_row_count_rate?.[key]} />`,
  })),
  {
    key: "last_row_commit_time",
    title: "Last write",
    end: true,
    show: (one) =>
      one.error
        ? html`<span class="bad-text wrap">${one.error.message}</span>`
        : html`<${Moment} value=${parsed(one.last_row_commit_time)} />`,
  },
];

const Trimming = ({ queue }) => {
  const { trim } = queue;
  const vital = queue.registrations.filter((one) => one.vital);
  return html`<div class="stack">
    <${Facts}
      of=${[
        ["Automatic trimming", trim.enable ? html`<${Badge} tone="good">on<//>` : html`<${Badge}>off<//>`],
        [
          "Waits for",
          vital.length
            ? vital.map(({ consumer }) => consumer).join(", ")
            : html`<span class="muted">no vital consumer, so nothing is trimmed by it</span>`,
        ],
        [
          "Always kept",
          trim.retained_rows || trim.retained_lifetime_ms
            ? [
                trim.retained_rows && `the last ${integer(trim.retained_rows)} rows`,
                trim.retained_lifetime_ms && `rows of the last ${duration(trim.retained_lifetime_ms)}`,
              ]
                .filter(Boolean)
                .join(" and ")
            : html`<span class="muted">nothing beyond what vital consumers have not read</span>`,
        ],
      ]}
    />
  </div>`;
};

export const QueueView = ({ name }) => {
  const { data: queue, error, refresh } = useLive(apiPath("queues", name));
  const [asked, setAsked] = useState(null);
  const dialog = { queue, onClose: () => setAsked(null), onDone: refresh };
  if (!queue)
    return html`<${Failure}
        error=${error}
        again=${refresh}
        what="The queue"
      />${!error && html`<div class="card card-body"><${Bone} width="60%" /></div>`}`;
  return html`<div class="stack">
    <${Failure} error=${error} again=${refresh} what="The queue" />
    ${queue.alerts.map((alert) => html`<${Notice} key=${alert.name} tone="warn" title=${alert.name.replace(/_/g, " ")}>${alert.message}<//>`)}
    <div class="grid">
      <${Card} title="Written" bare
        ><${Rates} label="Rates of writing" rows=${queue.write_row_count_rate} weights=${queue.write_data_weight_rate}
      /><//>
      <${Card}
        title="Trimming"
        actions=${html`<${State} of=${queue.mount_state} />
          <button type="button" class="button small" onClick=${() => setAsked({ act: "trimming" })}>Change…</button>`}
        ><${Trimming} queue=${queue}
      /><//>
    </div>
    <${Card}
      title="Registered consumers"
      bare
      actions=${html`<button type="button" class="button small" onClick=${() => setAsked({ act: "register" })}>Register…</button>`}
      >${
        queue.registrations.length
          ? html`<${Table}
              label="Registered consumers"
              tall
              columns=${readers((registration) => setAsked({ act: "unregister", registration }))}
              rows=${queue.registrations}
              keyOf=${(one) => one.consumer}
            />`
          : html`<${Empty} title="No consumer is registered" command=${`penstock queue register ${quoted(queue.name)} my-group --vital`}
              >A registered consumer is watched here; while it is vital, nothing that it has not read is trimmed.<//
            >`
      }<//
    >
    ${queue.exports && html`<${Card} title="Exports"><pre class="plain-text">${JSON.stringify(queue.exports, null, 2)}</pre><//>`}
    <${Card} title="Partitions" bare
      ><${Table}
        label="Partitions"
        columns=${PARTITIONS}
        rows=${queue.partition_list.map((one, number) => ({ ...one, number }))}
        keyOf=${(one) => one.number}
    /><//>
    ${asked?.act === "register" && html`<${Register} ...${dialog} />`}
    ${asked?.act === "unregister" && html`<${Unregister} ...${dialog} registration=${asked.registration} />`}
    ${asked?.act === "trimming" && html`<${SetTrimming} ...${dialog} />`}
  </div>`;
};
