// All queues, as the Queue Agent sees them.
import { html } from "../../vendor/htm-preact.js";
import { BytesRate, Count, CountRate } from "../format.js";
import { useSettled } from "../live.js";
import { Badge, Empty, PageHead, Search } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { LongTable } from "../tables.js";

const COLUMNS = [
  { key: "name", title: "Queue", sorts: true, show: (one) => html`<a class="name-link clip" data-row href=${pathOf("queues", one.name)} title=${one.name}>${one.name}</a>` },
];

export default function Queues() {
  const { query } = useLocation();
  const search = useSettled(query.search ?? "", 150);
  return html`<div class="page fill"><${PageHead} title="Queues" note="Topics as the Queue Agent sees them: rates, registered consumers, trimming." />
    <div class="row"><${Search} label="Search queues" value=${query.search} /></div>
    <${LongTable} label="Queues" noun="queue" columns=${COLUMNS} path="/queues" query=${{ search }} at=${query.at} keyOf=${(one) => one.name} empty=${html`<${Empty} title="No queues yet">Every topic is one.<//>`} /></div>`;
}
