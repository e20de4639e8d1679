// Streams: subjects with their sequences and durable consumers, when a listener for streams is on.
import { html } from "../preact.js";
import { apiPath } from "../api.js";
import { Bytes, Count, integer } from "../format.js";
import { useLive, useSettled } from "../live.js";
import { Bone, Card, Empty, Failure, PageHead, Search, Tile } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { useCluster } from "../shell.js";
import { LongTable, Table } from "../tables.js";

const COLUMNS = [
  {
    key: "subject",
    title: "Subject",
    show: (one) =>
      html`<a class="name-link clip" data-row href=${pathOf("streams", one.subject)} title=${one.subject}>${one.subject}</a>`,
  },
  { key: "last_sequence", title: "Last sequence", end: true, width: "140px", show: (one) => integer(one.last_sequence) },
  { key: "messages", title: "Messages", end: true, width: "120px", show: (one) => html`<${Count} value=${one.messages} />` },
  {
    key: "bytes",
    title: "Size in the log",
    end: true,
    wide: true,
    width: "140px",
    about: "without payloads that are stored apart",
    show: (one) => html`<${Bytes} value=${one.bytes} />`,
  },
  {
    key: "consumers",
    title: "Consumers",
    end: true,
    wide: true,
    width: "120px",
    show: (one) => html`<${Count} value=${one.consumers} />`,
  },
];
const DURABLES = [
  {
    key: "name",
    title: "Durable name",
    show: (one) => html`<a class="name-link clip" data-row href=${pathOf("consumers", `stream:${one.name}`)}>${one.name}</a>`,
  },
  { key: "position", title: "Acknowledged up to", end: true, show: (one) => integer(one.position) },
  { key: "lag_messages", title: "Lag", end: true, show: (one) => html`<${Count} value=${one.lag_messages} />` },
  { key: "lag_bytes", title: "Bytes", end: true, wide: true, show: (one) => html`<${Bytes} value=${one.lag_bytes} />` },
];

/** The address that the command for streams is given. */
const serverOption = (cluster) =>
  cluster?.listeners?.stream && cluster.listeners.stream !== "127.0.0.1:50051" ? ` --stream ${cluster.listeners.stream}` : "";

const One = ({ name }) => {
  const cluster = useCluster();
  const { data, error, refresh } = useLive(apiPath("streams", name));
  const crumbs = html`<a href="/streams">Streams</a> /`;
  if (error?.status === 404)
    return html`<div class="page">
      <${PageHead} title=${name} crumbs=${crumbs} /><${Empty} title="There is no such subject"
        >Nothing was published to it, or streams are off. <a href="/streams">All subjects</a><//
      >
    </div>`;
  const known = (value) => (data ? value : html`<${Bone} />`);
  return html`<div class="page">
    <${PageHead} title=${name} crumbs=${crumbs}><a class="button" href=${pathOf("topics", name)}>Its messages</a><//>
    <${Failure} error=${error} again=${refresh} what="The subject" />
    <div class="tiles">
      <${Tile} label="Last sequence" note="of the newest message">${known(integer(data?.last_sequence))}<//>
      <${Tile} label="Messages" note="that are kept">${known(html`<${Count} value=${data?.messages} />`)}<//>
      <${Tile} label="Size in the log" note="without payloads stored apart">${known(html`<${Bytes} value=${data?.bytes} />`)}<//>
    </div>
    ${
      data &&
      html`<${Card} title="Durable consumers" bare
        >${
          data.consumers.length
            ? html`<${Table} label="Durable consumers" columns=${DURABLES} rows=${data.consumers} keyOf=${(one) => one.name} />`
            : html`<${Empty}
                title="Nobody reads it under a durable name"
                command=${`penstock stream fetch ${name} --durable my-name${serverOption(cluster)}`}
                >A durable name keeps its place in the subject.<//
              >`
        }<//
      >`
    }
  </div>`;
};

const List = () => {
  const { query } = useLocation();
  const cluster = useCluster();
  const search = useSettled(query.search ?? "", 150);
  const isOff = cluster && !cluster.listeners.stream && !cluster.listeners.stream_http;
  const nothing = isOff
    ? html`<${Empty} title="Streams are off" command="penstock up --stream-port 50051"
        >A subject has numbered messages, with payloads of any size. Subjects are served when a port for them is set:<//
      >`
    : search
      ? html`<${Empty} title="No subject has this in its name">Search for less, or <a href="/streams">show all</a>.<//>`
      : html`<${Empty} title="No subjects yet" command=${`echo hello | penstock stream publish greetings${serverOption(cluster)}`}
          >A subject is made by what is first published to it.<//
        >`;
  return html`<div class="page fill">
    <${PageHead} title="Streams" note="Subjects with numbered messages, and payloads of any size." />
    <div class="row"><${Search} label="Search subjects" value=${query.search} /></div>
    <${LongTable}
      label="Subjects"
      noun="subject"
      columns=${COLUMNS}
      path="/streams"
      query=${{ search }}
      at=${query.at}
      keyOf=${(one) => one.subject}
      empty=${nothing}
    />
  </div>`;
};

export default function Streams() {
  const { segments } = useLocation();
  return segments[1] ? html`<${One} name=${segments[1]} />` : html`<${List} />`;
}
