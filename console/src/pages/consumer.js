// One consumer: lag and its trend, members, positions.
import { html, useState } from "../preact.js";
import { apiPath, remove } from "../api.js";
import { HistoryChart, RangeChoice } from "../charts.js";
import { Confirm, say } from "../dialogs.js";
import { Bytes, Count, Seconds, Share, count, integer, plural, seconds } from "../format.js";
import { forget, useLive } from "../live.js";
import { Badge, Card, Empty, Failure, Menu, PageHead, State, Tile } from "../parts.js";
import { href, navigate, pathOf, useLocation } from "../router.js";
import { Table } from "../tables.js";
import { LAG_COLUMNS, kindText } from "./consumer_columns.js";
import { Reset } from "./consumer_reset.js";

const NONE = "No history of this consumer is in memory: it is new, or not among those that are furthest behind.";

const POSITIONS = [
  {
    key: "topic",
    title: "Topic",
    sorts: true,
    show: (one) =>
      html`<a
        class="name-link clip"
        data-row
        href=${href(pathOf("topics", one.topic), { partition: one.partition, start: `offset:${one.position}` })}
        title="Messages from its position on"
        >${one.topic}</a
      >`,
  },
  { key: "partition", title: "Partition", end: true, sorts: true },
  { key: "position", title: "Position", end: true, show: (one) => integer(one.position) },
  { key: "end", title: "End", end: true, wide: true, show: (one) => integer(one.end) },
  ...LAG_COLUMNS,
];

const partitionsText = (partitions) =>
  Object.entries(partitions)
    .map(([topic, numbers]) => `${topic} ${numbers.join(", ")}`)
    .join("; ") || "none";
const MEMBERS = [
  { key: "id", title: "Member", show: (one) => html`<span class="mono clip" title=${one.id}>${one.id}</span>` },
  { key: "client_id", title: "Client", show: (one) => one.client_id },
  { key: "host", title: "Host", wide: true, show: (one) => one.host },
  { key: "partitions", title: "Partitions", show: (one) => partitionsText(one.partitions) },
];

export default function Consumer() {
  const { segments, query } = useLocation();
  const name = segments[1];
  const { data, error, refresh } = useLive(apiPath("consumers", name));
  const [asking, setAsking] = useState(null);
  const crumbs = html`<a href="/consumers">Consumers</a> /`;
  if (error?.status === 404)
    return html`<div class="page">
      <${PageHead} title=${name} crumbs=${crumbs} /><${Empty} title="There is no such consumer"
        >It was deleted, or its positions are past their retention. <a href="/consumers">All consumers</a><//
      >
    </div>`;
  const range = query.range ?? "10m";
  const topics = data?.topics ?? [];
  const lines = (metric) => [{ query: { metric, consumer: name }, label: null }];
  const members = data?.members ?? [];
  return html`<div class="page">
    <${PageHead}
      title=${name}
      crumbs=${crumbs}
      note=${data ? html`${kindText(data.kind)} <${State} of=${data.state} />${data.vital ? html` <${Badge} plain tone="accent">vital<//>` : ""}` : "\u00a0"}
    >
      <${RangeChoice} value=${range} />
      ${data && html`<${Menu} label="Actions" icon="more" actions=${[topics.length > 0 && { text: "Move its positions…", act: () => setAsking("reset") }, { text: "Delete consumer…", act: () => setAsking("delete"), danger: true, icon: "trash" }]} />`}
    <//>
    <${Failure} error=${error} again=${refresh} what="The consumer" />
    <div class="tiles">
      <${Tile} label="Lag" note="messages not read yet"><${Count} value=${data?.lag_messages} /><//>
      <${Tile} label="Lag in bytes" note="not read yet"><${Bytes} value=${data?.lag_bytes} /><//>
      <${Tile} label="Lag in time" note="age of the oldest unread"><${Seconds} value=${data?.lag_seconds} /><//>
      <${Tile} label="Of retention" note="lost unread at 100 %"><${Share} value=${data?.retention_share} /><//>
      <${Tile}
        label="Members"
        note=${topics.length ? `${plural(topics.length, "topic")}, ${plural(data.position_count, "position")}` : null}
        >${data ? integer(members.length) : "–"}<//
      >
    </div>
    <div class="grid">
      <${HistoryChart}
        title="Lag in messages"
        range=${range}
        format=${count}
        lines=${lines("lag_messages")}
        none=${NONE}
      /><${HistoryChart}
        title="Lag in time"
        unit="seconds"
        range=${range}
        format=${seconds}
        lines=${lines("lag_seconds")}
        none=${NONE}
      />
    </div>
    ${
      data &&
      html`<${Card} title="Positions" bare
          >${data.positions.length ? html`<${Table} label="Positions" columns=${POSITIONS} rows=${data.positions} keyOf=${(one) => `${one.topic}/${one.partition}`} />${data.position_count > data.positions.length && html`<div class="table-foot">The first ${integer(data.positions.length)} of ${integer(data.position_count)}</div>`}` : html`<${Empty} title="No positions yet">It has not committed any.<//>`}<//
        >
        <${Card} title="Members" bare
          >${members.length ? html`<${Table} label="Members" columns=${MEMBERS} rows=${members} keyOf=${(one) => one.id} />` : html`<${Empty} title="No members now">Its positions are kept for when one comes back.<//>`}<//
        >`
    }
    ${asking === "reset" && html`<${Reset} consumer=${name} topics=${topics} onClose=${() => setAsking(null)} onDone=${refresh} />`}
    ${
      asking === "delete" &&
      html`<${Confirm}
        title=${`Delete consumer ${name}?`}
        verb="Delete the consumer"
        onClose=${() => setAsking(null)}
        act=${async () => {
          await remove(apiPath("consumers", name));
          forget("/consumers");
          say(`Consumer ${name} was deleted.`);
          navigate("/consumers");
        }}
        touches=${html`This deletes its <strong>${plural(data.position_count, "position")}</strong> in ${topics.slice(0, 5).join(", ") || "no topic"}${topics.length > 5 ? ", …" : ""}. Messages stay. A consumer of this name that comes back begins anew.`}
      />`
    }
  </div>`;
}
