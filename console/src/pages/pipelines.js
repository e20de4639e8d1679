// Pipelines: what runs on Spark, how fast, how far behind, and what went wrong last.
import { html } from "../preact.js";
import { apiPath } from "../api.js";
import { Ago, Count, CountRate, Duration, Moment, integer } from "../format.js";
import { useLive } from "../live.js";
import { Bone, Card, Empty, Facts, Failure, Notice, PageHead, State, Tile } from "../parts.js";
import { pathOf, useLocation } from "../router.js";
import { Table } from "../tables.js";

const ALIVE = ["starting", "running", "waiting", "restarting"];
/** One that has not reported for a while and never said that it stopped was killed, or cannot reach the broker. */
const stateOf = (one) => (ALIVE.includes(one.state) && !one.is_alive ? "silent" : one.state);
/** What a runner reports is only what it says: nothing but an address of a page becomes a link. */
const isAddress = (given) => /^https?:\/\//.test(given ?? "");
const text = (value) => {
  if (value === null || value === undefined || value.length === 0) return "–";
  if (Array.isArray(value)) return value.map(text).join("\n");
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
};

const COLUMNS = [
  {
    key: "name",
    title: "Name",
    sorts: true,
    show: (one) => html`<a class="name-link clip" data-row href=${pathOf("pipelines", one.name)}>${one.name}</a>`,
  },
  { key: "kind", title: "Kind", wide: true, sorts: true },
  {
    key: "flow",
    title: "From, to",
    wide: "widest",
    show: (one) =>
      html`<span class="clip" title=${text(one.source)}>${text(one.source)}</span
        ><span class="clip muted" title=${text(one.target)}>${text(one.target)}</span>`,
  },
  { key: "state", title: "State", sorts: stateOf, show: (one) => html`<${State} of=${stateOf(one)} />` },
  { key: "rows_per_s", title: "Rows/s", end: true, sorts: true, show: (one) => html`<${CountRate} value=${one.rows_per_s} />` },
  {
    key: "last_batch_ms",
    title: "Last batch",
    end: true,
    wide: true,
    sorts: true,
    show: (one) => html`<${Duration} value=${one.last_batch_ms} />`,
  },
  { key: "lag_rows", title: "Lag", end: true, sorts: true, show: (one) => html`<${Count} value=${one.lag_rows} />` },
  {
    key: "rows_written",
    title: "Rows written",
    end: true,
    wide: true,
    sorts: true,
    show: (one) => html`<${Count} value=${one.rows_written} />`,
  },
  {
    key: "dead_letters",
    title: "Dead letters",
    end: true,
    wide: true,
    sorts: true,
    show: (one) => html`<${Count} value=${one.dead_letters} />`,
  },
  {
    key: "last_error",
    title: "Last error",
    wide: true,
    show: (one) =>
      one.last_error
        ? html`<span class="clip bad-text" title=${text(one.last_error)}>${text(one.last_error)}</span>`
        : html`<span class="muted">none</span>`,
  },
];

const One = ({ name }) => {
  const { data: one, error, refresh } = useLive(apiPath("pipelines", name));
  const crumbs = html`<a href="/pipelines">Pipelines</a> /`;
  if (error?.status === 404)
    return html`<div class="page">
      <${PageHead} title=${name} crumbs=${crumbs} /><${Empty} title="There is no such pipeline"
        >No pipeline of this name has reported here. <a href="/pipelines">All pipelines</a><//
      >
    </div>`;
  if (!one)
    return html`<div class="page">
      <${PageHead} title=${name} crumbs=${crumbs} /><${Failure} error=${error} again=${refresh} what="The pipeline" />
    </div>`;
  return html`<div class="page">
    <${PageHead} title=${name} crumbs=${crumbs} note=${html`${one.kind} <${State} of=${stateOf(one)} />`}
      >${isAddress(one.spark_ui) && html`<a class="button" href=${one.spark_ui} target="_blank" rel="noreferrer">Spark's own pages</a>`}<//
    >
    <${Failure} error=${error} again=${refresh} what="The pipeline" />
    ${stateOf(one) === "silent" && html`<${Notice} tone="warn" title="It has not been heard of lately">It was killed, or cannot reach this broker. Look at its log on ${one.host}, or start it again: it goes on where its last commit was.<//>`}
    ${one.last_error && html`<${Notice} tone="bad" title="Last error" role="note"><pre class="error-text">${text(one.last_error)}</pre><//>`}
    <div class="tiles">
      <${Tile} label="Rows per second"><${Count} value=${one.rows_per_s} /><//>
      <${Tile} label="Lag" note="rows not taken yet"><${Count} value=${one.lag_rows} /><//>
      <${Tile} label="Last batch" note=${`${integer(one.batches)} batches`}><${Duration} value=${one.last_batch_ms} /><//>
      <${Tile} label="Rows written" note=${`${integer(one.rows_read)} read`}><${Count} value=${one.rows_written} /><//>
      <${Tile} label="Dead letters" note="could not be used"><${Count} value=${one.dead_letters} /><//>
    </div>
    <div class="grid">
      <${Card} title="What it does"
        ><${Facts}
          of=${[
            ["Source", html`<pre class="plain-text">${text(one.source)}</pre>`],
            ["Target", html`<pre class="plain-text">${text(one.target)}</pre>`],
            ["Plan", html`<pre class="plain-text">${text(one.plan)}</pre>`],
            ["Trigger", text(one.trigger)],
          ]}
      /><//>
      <${Card} title="Where it runs"
        ><${Facts}
          of=${[
            ["Host", `${one.host}, process ${one.pid}`],
            ["User", text(one.user)],
            ["File", html`<code class="wrap">${text(one.file)}</code>`],
            ["Run", html`<code class="wrap">${text(one.run)}</code>`],
            ["Started", html`<${Moment} value=${one.started_ms} />`],
            ["Last heard of", html`<${Ago} value=${one.updated_ms} />`],
          ]}
      /><//>
    </div>
  </div>`;
};

const List = () => {
  const { data, error, refresh } = useLive("/pipelines", { limit: 500 });
  return html`<div class="page">
    <${PageHead} title="Pipelines" />
    <${Failure} error=${error} again=${refresh} what="Pipelines" />
    ${
      data === null
        ? !error && html`<div class="card card-body"><${Bone} width="60%" /></div>`
        : html`<div class="card">
            ${
              data.items.length
                ? html`<${Table}
                    label="Pipelines"
                    columns=${COLUMNS}
                    rows=${data.items}
                    keyOf=${(one) => one.name}
                    start=${["name", "asc"]}
                  />`
                : html`<${Empty}
                    title="No pipelines have run yet"
                    command=${"penstock pipeline init export\npenstock pipeline run export.yaml"}
                    >A pipeline is one file: from topics to tables or other topics, on Spark, exactly once. It reports here while
                    it runs.<//
                  >`
            }
          </div>`
    }
  </div>`;
};

export default function Pipelines() {
  const { segments } = useLocation();
  return segments[1] ? html`<${One} name=${segments[1]} />` : html`<${List} />`;
}
