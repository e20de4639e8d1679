// All topics as queues, as the Queue Agent sees them.
import { html } from "../preact.js";
import { BytesRate, Count, CountRate } from "../format.js";
import { useSettled } from "../live.js";
import { Badge, Empty, PageHead, Search, State } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { LongTable } from "../tables.js";

const rate = (span) => (one) => html`<${CountRate} value=${one.write_row_count_rate[span]} />`;
const COLUMNS = [
  {
    key: "name",
    title: "Queue",
    show: (one) => html`<a class="name-link clip" data-row href=${pathOf("queues", one.name)} title=${one.path}>${one.name}</a>`,
  },
  { key: "1m", title: "Rows, 1 min", end: true, width: "110px", show: rate("1m") },
  { key: "1h", title: "1 h", end: true, wide: true, width: "90px", show: rate("1h") },
  { key: "1d", title: "1 d", end: true, wide: true, width: "90px", show: rate("1d") },
  {
    key: "weight",
    title: "Data, 1 min",
    end: true,
    wide: true,
    width: "116px",
    show: (one) =>
      one.write_row_count_rate["1m"] > 0 && !one.write_data_weight_rate["1m"]
        ? html`<span class="muted" title="Rows that were not written by YT's clients carry no weight">–</span>`
        : html`<${BytesRate} value=${one.write_data_weight_rate["1m"]} />`,
  },
  {
    key: "registrations",
    title: "Consumers",
    end: true,
    wide: true,
    width: "104px",
    show: (one) => html`<${Count} value=${one.registrations} />`,
  },
  { key: "vital", title: "Vital", end: true, wide: true, width: "70px", show: (one) => html`<${Count} value=${one.vital} />` },
  {
    key: "trim",
    title: "Trimming",
    wide: true,
    width: "104px",
    show: (one) => (one.trim.enable ? html`<${Badge} tone="good">on<//>` : html`<span class="muted">off</span>`),
  },
  {
    key: "mount_state",
    title: "State",
    width: "124px",
    show: (one) =>
      one.alerts
        ? html`<${Badge} tone="warn">${one.alerts === 1 ? "1 alert" : `${one.alerts} alerts`}<//>`
        : html`<${State} of=${one.mount_state} />`,
  },
];

export default function Queues() {
  const { query } = useLocation();
  const search = useSettled(query.search ?? "", 150);
  const nothing = search
    ? html`<${Empty} title="No queue has this in its name">Search for less, or <a href="/queues">show all</a>.<//>`
    : html`<${Empty} title="No queues yet" command="echo hello | penstock produce greetings"
        >Every topic is a queue; make one by writing to it.<//
      >`;
  return html`<div class="page fill">
    <${PageHead} title="Queues" note="Topics as the Queue Agent sees them: rates, registered consumers, trimming." />
    <div class="row"><${Search} label="Search queues" value=${query.search} /></div>
    <${LongTable}
      label="Queues"
      noun="queue"
      columns=${COLUMNS}
      path="/queues"
      query=${{ search }}
      at=${query.at}
      keyOf=${(one) => one.path}
      empty=${nothing}
    />
  </div>`;
}
