// The nodes of a cluster: their state, the tablets that they own, and what moves between them.
import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { type Schemas, apiPath, post, put } from "../api";
import { Confirm, FormDialog, say } from "../dialogs";
import { Ago, integer, plural } from "../format";
import { useLive } from "../live";
import { Badge, Bone, Card, Empty, Failure, Notice, PageHead, Search, State, Tile } from "../parts";
import { useRights } from "../rights";
import { href, pathOf, setQuery, useLocation } from "../router";
import { type Column, LongTable, Table } from "../tables";

type Node = Schemas["FullNodeView"];
type Tablet = Schemas["TabletView"];

/** What is about to be asked of the cluster. */
type Wish =
  | { kind: "drain" | "undrain"; node: Node }
  | { kind: "maintenance"; on: boolean }
  | { kind: "move"; tablet: Tablet };

const nameOf = (nodes: Node[], id: number | null | undefined) =>
  id === null || id === undefined ? "no node" : `${id} (${nodes.find(({ node_id: known }) => known === id)?.name ?? "removed"})`;

const Place = ({ node }: { node: Node }) => {
  const place = [node.datacenter, node.rack].filter(Boolean).join(" / ");
  return place ? <span>{place}</span> : <span class="muted">–</span>;
};

const Disks = ({ node }: { node: Node }) => {
  const disks = Object.entries(node.disks).sort();
  const broken = disks.filter(([, trouble]) => trouble);
  if (!disks.length) return <span class="muted">–</span>;
  return broken.length ? (
    <span class="bad-text" title={broken.map(([disk, trouble]) => `${disk}: ${trouble}`).join("\n")}>
      {broken.length} of {disks.length} unusable
    </span>
  ) : (
    <span title={disks.map(([disk]) => disk).join(", ")}>{plural(disks.length, "disk")}</span>
  );
};

const nodeColumns = (act: (node: Node) => ComponentChildren): Column<Node>[] => [
  {
    key: "name",
    title: "Node",
    sorts: ({ node_id: id }) => id,
    show: (node) => (
      <a class="name-link" data-row href={href("/nodes", { node: node.node_id })} title="Its tablets">
        {node.node_id} <span class="muted">{node.name}</span>
      </a>
    ),
  },
  {
    key: "state",
    title: "State",
    sorts: true,
    show: (node) => (
      <span class="row">
        <State of={node.state} />
        {node.is_draining && <Badge tone="warn">draining</Badge>}
      </span>
    ),
  },
  { key: "since_ms", title: "Since", wide: true, about: "when it started, or was lost", show: (node) => <Ago value={node.since_ms} /> },
  { key: "tablets", title: "Tablets", end: true, sorts: true, show: (node) => integer(node.tablets) },
  { key: "partitions", title: "Partitions", end: true, wide: true, sorts: true, show: (node) => integer(node.partitions) },
  { key: "rack", title: "Rack", wide: "wider", show: (node) => <Place node={node} /> },
  { key: "disks", title: "Disks", wide: "wider", show: (node) => <Disks node={node} /> },
  {
    key: "kafka",
    title: "Kafka",
    wide: "wider",
    show: (node) => (
      <span
        class="mono clip"
        title={Object.entries(node.addresses)
          .map(([name, address]) => `${name} ${address}`)
          .join("\n")}
      >
        {node.addresses["kafka"] ?? node.addresses["kafka_tls"] ?? "–"}
      </span>
    ),
  },
  { key: "version", title: "Version", wide: "widest", show: (node) => node.version || "–" },
  { key: "act", end: true, width: "110px", show: act },
];

const tabletColumns = (nodes: Node[], act: (tablet: Tablet) => ComponentChildren): Column<Tablet>[] => [
  {
    key: "tablet",
    title: "Tablet",
    wide: true,
    width: "96px",
    show: (row) => (
      <span class="num" data-row tabindex={-1}>
        {row.tablet}
      </span>
    ),
  },
  {
    key: "topic",
    title: "Topic",
    show: (row) => (
      <a class="name-link" href={pathOf("topics", row.topic)}>
        {row.topic}
      </a>
    ),
  },
  { key: "partitions", title: "Partitions", end: true, wide: true, show: (row) => integer(row.partitions) },
  {
    key: "node",
    title: "Node",
    show: (row) => (row.to === null ? nameOf(nodes, row.node) : `${row.node} → ${row.to}`),
  },
  { key: "state", title: "State", show: (row) => <span title={row.trouble || undefined}>{<State of={row.state} />}</span> },
  {
    key: "generation",
    title: "Leader epoch",
    end: true,
    wide: true,
    about: "its generation: it rises with every start",
    show: (row) => integer(row.generation),
  },
  { key: "group", title: "Storage group", wide: "wider", show: (row) => <span class="mono">{row.group}</span> },
  { key: "act", end: true, width: "96px", show: act },
];

const Alone = () => (
  <Empty title="This node is alone" command="penstock dev-cluster --nodes 3 --data-dir ./dev">
    It owns everything. Nodes that share an etcd are a cluster: any of them may fail, and tablets move between them.
  </Empty>
);

/** Chooses the node that a tablet moves to. */
const Move = ({ tablet, nodes, onClose, done }: {
  tablet: Tablet;
  nodes: Node[];
  onClose: () => void;
  done: (result: Schemas["OrderResult"]) => void;
}) => {
  const id = useId();
  const targets = nodes.filter(
    (node) => node.node_id !== tablet.node && !node.is_draining && (node.state === "leader" || node.state === "running"),
  );
  const [chosen, setChosen] = useState(targets[0]?.node_id ?? 0);
  return (
    <FormDialog
      title={`Move tablet ${tablet.tablet} of ${tablet.topic}?`}
      verb="Move"
      ready={targets.length > 0}
      send={async () => done(await post(apiPath("/tablets/{tablet}/move", { tablet: tablet.tablet }), { node: chosen }))}
      onClose={onClose}
    >
      <div>
        Its {plural(tablet.partitions, "partition")} {tablet.partitions === 1 ? "is" : "are"} not served for a moment; producers
        and consumers retry. It stays on the node that you choose until that is drained or lost.
      </div>
      {targets.length ? (
        <div class="field">
          <label for={id}>From node {nameOf(nodes, tablet.node)} to</label>
          <select id={id} class="select" data-first value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
            {targets.map((node) => (
              <option key={node.node_id} value={node.node_id}>
                {nameOf(nodes, node.node_id)}: {plural(node.partitions, "partition")}
              </option>
            ))}
          </select>
        </div>
      ) : (
        <Notice tone="warn" title="No other node can take it">
          Start another node, or undrain one.
        </Notice>
      )}
    </FormDialog>
  );
};

const Asked = ({ wish, nodes, onClose, refresh }: { wish: Wish; nodes: Node[]; onClose: () => void; refresh: () => void }) => {
  const done = ({ message }: Schemas["OrderResult"]) => {
    say(`${message.charAt(0).toUpperCase()}${message.slice(1)}.`);
    refresh();
  };
  if (wish.kind === "maintenance")
    return (
      <Confirm
        title={wish.on ? "Begin maintenance?" : "End maintenance?"}
        verb={wish.on ? "Begin" : "End"}
        danger={false}
        onClose={onClose}
        act={async () => done(await put(apiPath("/nodes/maintenance"), { on: wish.on }))}
        touches={
          wish.on
            ? "Tablets of nodes that are lost wait for them, and none moves for balance, until maintenance ends."
            : "Tablets of lost nodes are taken over again, and tablets move for balance."
        }
      />
    );
  if (wish.kind === "move") return <Move tablet={wish.tablet} nodes={nodes} onClose={onClose} done={done} />;
  const { node, kind } = wish;
  const names = { node: node.node_id };
  return (
    <Confirm
      title={`${kind === "drain" ? "Drain" : "Undrain"} node ${node.node_id} (${node.name})?`}
      verb={kind === "drain" ? "Drain" : "Undrain"}
      danger={false}
      onClose={onClose}
      act={async () =>
        done(await (kind === "drain" ? post(apiPath("/nodes/{node}/drain", names)) : post(apiPath("/nodes/{node}/undrain", names))))
      }
      touches={
        kind === "drain"
          ? `Its ${plural(node.tablets, "tablet")} move to other nodes, each with a pause of a moment, and it gets no more. Its disks stay in their storage groups.`
          : "It gets tablets again; some of the others' move to it."
      }
    />
  );
};

export default function Nodes() {
  const { query } = useLocation();
  const { data, error, refresh } = useLive(apiPath("/nodes"), {}, { every: 2000 });
  const [wish, setWish] = useState<Wish | null>(null);
  const refused = useRights("cluster")("ALTER");
  const nodes = data?.nodes ?? [];
  const lost = nodes.filter(({ state }) => state === "away" || state === "unreached");
  const known = (value: ComponentChildren) => (data ? value : <Bone />);
  const button = (text: string, next: Wish) => (
    <button type="button" class="button small" disabled={Boolean(refused)} title={refused ?? undefined} onClick={() => setWish(next)}>
      {text}
    </button>
  );
  const act = (node: Node) =>
    data?.can_move ? button(node.is_draining ? "Undrain…" : "Drain…", { kind: node.is_draining ? "undrain" : "drain", node }) : null;
  if (data && !nodes.length)
    return (
      <div class="page">
        <PageHead title="Nodes" />
        <Alone />
      </div>
    );
  return (
    <div class="page">
      <PageHead title="Nodes" note="The nodes of the cluster, and the tablets of topics that they own.">
        {data?.can_move &&
          button(data.is_maintained ? "End maintenance…" : "Begin maintenance…", { kind: "maintenance", on: !data.is_maintained })}
      </PageHead>
      <Failure error={error} again={refresh} what="The cluster" />
      {data?.is_maintained && (
        <Notice tone="warn" title="Maintenance is on">
          Tablets of lost nodes wait for them, and none moves for balance.
        </Notice>
      )}
      <div class="tiles">
        <Tile label="Nodes" note={data ? (lost.length ? `${integer(lost.length)} away` : "all reached") : null}>
          {known(integer(nodes.length))}
        </Tile>
        <Tile label="Tablets" note={data ? plural(nodes.reduce((sum, { partitions }) => sum + partitions, 0), "partition") : null}>
          {known(integer(nodes.reduce((sum, { tablets }) => sum + tablets, 0)))}
        </Tile>
        <Tile label="Moving" note="to another node, now">
          {known(integer(data?.moves.length ?? 0))}
        </Tile>
        <Tile label="Without an owner" note="served by no node">
          {known(integer(data?.without_owner ?? 0))}
        </Tile>
      </div>
      <Card bare label="Nodes">
        <Table label="Nodes" columns={nodeColumns(act)} rows={nodes} keyOf={({ node_id: id }) => id} start={["name", "asc"]} />
      </Card>
      {data && data.moves.length > 0 && (
        <Card title="Moving now">
          <ul class="plain-list">
            {data.moves.map((move) => (
              <li key={move.tablet}>
                Tablet {move.tablet} of <a href={pathOf("topics", move.topic)}>{move.topic}</a>: from node{" "}
                {nameOf(nodes, move.node)} to node {nameOf(nodes, move.to)}
              </li>
            ))}
          </ul>
        </Card>
      )}
      <div class="row">
        <h2>{query.node ? `Tablets of node ${nameOf(nodes, Number(query.node))}` : "Tablets"}</h2>
        {query.node && (
          <a class="button small" href="/nodes">
            Show all
          </a>
        )}
        <Search
          label="Search tablets by topic"
          placeholder="Topic"
          value={query.search ?? ""}
          onChange={(search) => setQuery({ search: search || null, at: null })}
        />
      </div>
      <div class="list-height">
        <LongTable
          label="Tablets"
          noun="tablet"
          columns={tabletColumns(nodes, (tablet) => (data?.can_move && tablet.to === null ? button("Move…", { kind: "move", tablet }) : null))}
          path={apiPath("/tablets")}
          query={{ search: query.search ?? "", node: query.node ? Number(query.node) : null }}
          at={query.at}
          keyOf={(row) => row.tablet}
          empty={<Empty title="There are no tablets">A topic has one or more of them; each runs on one node at a time.</Empty>}
        />
      </div>
      {wish && <Asked wish={wish} nodes={nodes} onClose={() => setWish(null)} refresh={refresh} />}
    </div>
  );
}
