// Streams: subjects with their sequences and readers, when a listener for streams is on.
import { html } from "../../vendor/htm-preact.js";
import { apiPath } from "../api.js";
import { Ago, Bytes, Count, integer } from "../format.js";
import { useLive, useSettled } from "../live.js";
import { Card, Empty, Facts, Failure, PageHead, Search } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { LongTable, Table } from "../tables.js";

const OFF = html`<${Empty} title="Streams are off" command="penstock up --stream-port 50051">A stream is a subject with numbered messages and payloads of any size. They are served when a port for them is set.<//>`;

const COLUMNS = [
  { key: "subject", title: "Subject", sorts: true, show: (one) => html`<a class="name-link clip" data-row href=${pathOf("streams", one.subject)} title=${one.subject}>${one.subject}</a>` },
  { key: "messages", title: "Messages", end: true, show: (one) => html`<${Count} value=${one.messages} />` },
  { key: "first_sequence", title: "First", end: true, wide: true, show: (one) => integer(one.first_sequence) },
  { key: "last_sequence", title: "Last", end: true, show: (one) => integer(one.last_sequence) },
  { key: "bytes", title: "Size", end: true, wide: true, show: (one) => html`<${Bytes} value=${one.bytes} />` },
];

const One = ({ name }) => {
  const { data, error, refresh } = useLive(apiPath("streams", name));
  const crumbs = html`<a href="/streams">Streams</a> /`;
  if (error?.status === 404) return html`<div class="page"><${PageHead} title=${name} crumbs=${crumbs} /><${Empty} title="There is no such subject">Nothing was published to it, or streams are off. <a href="/streams">All subjects</a><//></div>`;
  return html`<div class="page"><${PageHead} title=${name} crumbs=${crumbs} /><${Failure} error=${error} again=${refresh} what="The subject" />${data && html`<pre>${JSON.stringify(data, null, 2)}</pre>`}</div>`;
};

const List = () => {
  const { query } = useLocation();
  const search = useSettled(query.search ?? "", 150);
  return html`<div class="page fill"><${PageHead} title="Streams" /><div class="row"><${Search} label="Search subjects" value=${query.search} /></div>
    <${LongTable} label="Subjects" noun="subject" columns=${COLUMNS} path="/streams" query=${{ search }} at=${query.at} keyOf=${(one) => one.subject} empty=${OFF} /></div>`;
};

export default function Streams() {
  const { segments } = useLocation();
  return segments[1] ? html`<${One} name=${segments[1]} />` : html`<${List} />`;
}
