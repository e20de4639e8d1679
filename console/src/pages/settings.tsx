// The node's settings: their values, how to change them, and the listeners.
import { type Schemas, apiPath } from "../api";
import { Moment } from "../format";
import { useLive } from "../live";
import { Badge, Bone, Card, Empty, type Fact, Facts, Failure, PageHead, Search } from "../parts";
import { setQuery, useLocation } from "../router";
import { useCluster } from "../shell";
import { type Column, Table } from "../tables";

const shown = (value: string | null) => value ?? "none";

const COLUMNS: Column<Schemas["SettingView"]>[] = [
  {
    key: "key",
    title: "Setting",
    width: "36%",
    show: (row) => (
      <>
        <div class="mono">{row.key}</div>
        <div class="small muted doc">{row.doc}</div>
      </>
    ),
  },
  {
    key: "value",
    title: "Value",
    width: "22%",
    show: (row) => (
      <>
        <code class="wrap">{shown(row.value)}</code>
        {!row.is_default && (
          <>
            {" "}
            <Badge plain tone="accent">
              set
            </Badge>
          </>
        )}
      </>
    ),
  },
  {
    key: "default",
    title: "Default",
    wide: true,
    width: "16%",
    show: (row) => <span class="muted">{shown(row.default)}</span>,
  },
  {
    key: "option",
    title: "Set with",
    wide: true,
    width: "26%",
    show: (row) => (
      <>
        {row.option && (
          <>
            <code class="nowrap">{row.option}</code>
            <br />
          </>
        )}
        <code class="nowrap">{row.variable}</code>
      </>
    ),
  },
];

export default function Settings() {
  const { query } = useLocation();
  const cluster = useCluster();
  const { data, error, refresh } = useLive(apiPath("/settings"), { limit: 500 }, { every: 30000 });
  const search = (query.search ?? "").toLowerCase();
  const only = query.set === "1";
  const items = (data?.items ?? []).filter(
    (row) => `${row.key} ${row.doc}`.toLowerCase().includes(search) && (!only || !row.is_default),
  );
  const head = (
    <PageHead
      title="Settings"
      note="Read when the node starts: from its options, PENSTOCK_… variables, then penstock.toml."
    />
  );
  if (!cluster && !error) return <div class="page">{head}</div>;
  return (
    <div class="page">
      {head}
      {cluster && (
        <div class="grid">
          <Card title="This node">
            <Facts
              of={[
                [
                  "Cluster",
                  <>
                    {cluster.name} <code class="muted">{cluster.id}</code>
                  </>,
                ],
                ["Node", String(cluster.node_id)],
                ["Version", cluster.version],
                ["Started", <Moment value={cluster.started_ms} />],
                ["Erasure", cluster.erasure],
                ["Durability", cluster.durability],
              ]}
            />
          </Card>
          <Card title="Listeners">
            <Facts
              of={[
                ...Object.entries(cluster.listeners).map(([name, at]): Fact => [name, <code>{at}</code>]),
                ["Sign-in", cluster.security.sasl ? `required; you are ${cluster.user}` : "not required"],
                ["TLS", cluster.security.tls ? "on" : "off"],
                ["Admin API", <a href="/api/v1/openapi.json">OpenAPI document</a>],
                ["Metrics", <a href="/metrics">for Prometheus</a>],
              ]}
            />
          </Card>
        </div>
      )}
      <div class="row">
        <Search label="Search settings" value={query.search} onChange={(text) => setQuery({ search: text || null })} />
        <label class="check">
          <input
            type="checkbox"
            checked={only}
            onChange={(event) => setQuery({ set: event.currentTarget.checked ? "1" : null })}
          />
          Only changed settings
        </label>
      </div>
      <Failure error={error} again={refresh} what="Settings" />
      <div class="card">
        {data === null ? (
          <div class="card-body">
            <Bone width="60%" />
          </div>
        ) : items.length ? (
          <Table label="Settings" tall fixed columns={COLUMNS} rows={items} keyOf={(row) => row.key} />
        ) : (
          <Empty title="No matching settings">Change the search.</Empty>
        )}
      </div>
    </div>
  );
}
