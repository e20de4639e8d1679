// What the node was started with: every setting, where it can be changed, and what protects the listeners.
import { html } from "../preact.js";
import { Moment } from "../format.js";
import { useLive } from "../live.js";
import { Badge, Bone, Card, Empty, Facts, Failure, PageHead, Search } from "../parts.js";
import { setQuery, useLocation } from "../router.js";
import { useCluster } from "../shell.js";
import { Table } from "../tables.js";

const shown = (value) => (value === null || value === undefined ? "none" : String(value));

const COLUMNS = [
  {
    key: "key",
    title: "Setting",
    width: "46%",
    show: (one) =>
      html`<div class="mono">${one.key}</div>
        <div class="small muted doc">${one.doc}</div>`,
  },
  {
    key: "value",
    title: "Value",
    width: "24%",
    show: (one) =>
      html`<code class="wrap">${shown(one.value)}</code>${!one.is_default && html` <${Badge} plain tone="accent">set<//>`}`,
  },
  {
    key: "default",
    title: "Default",
    wide: true,
    width: "16%",
    show: (one) => html`<span class="muted">${shown(one.default)}</span>`,
  },
  {
    key: "option",
    title: "To change it",
    wide: true,
    show: (one) =>
      html`${one.option && html`<code class="nowrap">${one.option}</code><br />`}<code class="nowrap">${one.variable}</code>`,
  },
];

export default function Settings() {
  const { query } = useLocation();
  const cluster = useCluster();
  const { data, error, refresh } = useLive("/settings", { limit: 500 }, { every: 30000 });
  const search = (query.search ?? "").toLowerCase();
  const only = query.set === "1";
  const items = (data?.items ?? []).filter(
    (one) => `${one.key} ${one.doc}`.toLowerCase().includes(search) && (!only || !one.is_default),
  );
  const head = html`<${PageHead}
    title="Settings"
    note="They are read when the node starts: from its options, PENSTOCK_… variables, then penstock.toml."
  />`;
  if (!cluster && !error) return html`<div class="page">${head}</div>`;
  return html`<div class="page">
    ${head}
    ${
      cluster &&
      html`<div class="grid">
        <${Card} title="This node"
          ><${Facts}
            of=${[
              ["Cluster", html`${cluster.name} <code class="muted">${cluster.id}</code>`],
              ["Node", String(cluster.node_id)],
              ["Version", cluster.version],
              ["Started", html`<${Moment} value=${cluster.started_ms} />`],
              ["Erasure", cluster.erasure],
              ["Durability", cluster.durability],
            ]}
        /><//>
        <${Card} title="Listeners"
          ><${Facts}
            of=${[...Object.entries(cluster.listeners).map(([name, at]) => [name, html`<code>${at}</code>`]), ["Sign-in", cluster.security.sasl ? `asked for; you are ${cluster.user}` : "not asked for"], ["TLS", cluster.security.tls ? "on" : "off"], ["Admin API", html`<a href="/api/v1/openapi.json">OpenAPI document</a>`], ["Metrics", html`<a href="/metrics">for Prometheus</a>`]]}
        /><//>
      </div>`
    }
    <div class="row">
      <${Search} label="Search settings" value=${query.search} onChange=${(text) => setQuery({ search: text || null })} />
      <label class="check"
        ><input type="checkbox" checked=${only} onChange=${(event) => setQuery({ set: event.target.checked ? "1" : null })} />Only
        those that were set</label
      >
    </div>
    <${Failure} error=${error} again=${refresh} what="Settings" />
    <div class="card">
      ${data === null ? html`<div class="card-body"><${Bone} width="60%" /></div>` : items.length ? html`<${Table} label="Settings" tall columns=${COLUMNS} rows=${items} keyOf=${(one) => one.key} />` : html`<${Empty} title="No setting matches">Search for less.<//>`}
    </div>
  </div>`;
}
