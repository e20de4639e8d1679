// Where the partitions of a topic are: a row a node, a column a partition. How full a cell is says how large its partition is.
import { useState } from "preact/hooks";
import { type Schemas, apiPath } from "../api";
import { bytes, count, integer, plural } from "../format";
import { useLive } from "../live";
import { Bone, Card, Failure, Segments, State } from "../parts";
import { href, pathOf } from "../router";
import { useCluster } from "../shell";

/** With more partitions the cells are narrower. */
const ROOMY_MAX = 20;

type Partition = Schemas["PartitionView"];
type Measure = "bytes" | "messages" | "lag";

const DRAWN_MAX = 500;
// The usual states of a node, which need no word.
const SERVING = ["up", "running", "leader"];
const MAP_HEIGHT = 77;
const NODE_HEIGHT = 47;
const MEASURES: Record<Measure, [text: string, value: (partition: Partition) => number, format: (value: number) => string]> = {
  bytes: ["Size", (partition) => partition.bytes, bytes],
  messages: ["Messages", (partition) => partition.end - partition.start, count],
  lag: ["Lag", (partition) => partition.lag ?? 0, count],
};

type Role = "leader" | "replica" | "late" | "none";

const roleOn = (partition: Partition, node: number): Role =>
  partition.leader === node
    ? "leader"
    : partition.in_sync.includes(node)
      ? "replica"
      : partition.replicas.includes(node)
        ? "late"
        : "none";

const ROLES: Record<Role, string> = { leader: "leader", replica: "in sync", late: "not in sync", none: "" };

const about = (partition: Partition) =>
  [
    `Partition ${partition.partition}: ${partition.leader === null ? "no leader" : `leader node ${partition.leader}`}`,
    `replicas ${partition.replicas.join(", ")}, in sync ${partition.in_sync.join(", ") || "none"}`,
    `${bytes(partition.bytes)}, ${integer(partition.end - partition.start)} messages`,
    partition.lag === null ? "no consumer group" : `largest lag ${integer(partition.lag)} (${partition.lag_group})`,
  ].join("\n");

interface CellProps {
  topic: string;
  partition: Partition;
  node: number;
  share: number;
}

const Cell = ({ topic, partition, node, share }: CellProps) => {
  const role = roleOn(partition, node);
  if (role === "none") return <td class="map-cell none" />;
  const fill = role === "leader" ? `${Math.max(share > 0 ? 6 : 0, share * 100)}%` : "0";
  return (
    <td class={`map-cell ${role} ${partition.state === "serving" ? "" : "trouble"}`}>
      <a href={href(pathOf("topics", topic), { partition: partition.partition })} title={about(partition)}>
        <i style={{ height: fill }} />
        <span class="spoken">
          {`Partition ${partition.partition}, ${ROLES[role]} on node ${node}`}
        </span>
      </a>
    </td>
  );
};

interface NodeRow {
  id: number;
  name: string;
  state: string;
}

/** What a glance should tell: partitions without a leader, copies behind, and the share of the busiest node. */
const Verdict = ({ partitions, nodes }: { partitions: Partition[]; nodes: NodeRow[] }) => {
  const leaderless = partitions.filter(({ leader }) => leader === null).length;
  const behind = partitions.filter(({ in_sync, replicas }) => in_sync.length < replicas.length).length;
  const [largest] = [...partitions].sort((a, b) => b.bytes - a.bytes);
  const total = partitions.reduce((sum, partition) => sum + partition.bytes, 0);
  const even = partitions.length ? 1 / partitions.length : 0;
  const skew = largest && total && partitions.length > 1 ? largest.bytes / total / even : 0;
  return (
    <p class="small">
      {leaderless ? (
        <span class="bad-text">{plural(leaderless, "partition")} without a leader. </span>
      ) : (
        <>All {plural(partitions.length, "partition")} have a leader. </>
      )}
      {behind ? <span class="warn-text">{plural(behind, "partition")} under-replicated. </span> : nodes.length > 1 && "All replicas are in sync. "}
      {skew >= 2 && largest ? (
        <span class="warn-text">
          Partition {largest.partition} holds {skew.toFixed(1)} times an even share of the data.
        </span>
      ) : (
        skew > 0 && "Data is spread evenly."
      )}
    </p>
  );
};

export const PartitionMap = ({ topic }: { topic: string }) => {
  const { data, error, refresh } = useLive(apiPath("/topics/{name}/partitions", { name: topic }), { limit: DRAWN_MAX }, { every: 5000 });
  const [measure, setMeasure] = useState<Measure>("bytes");
  const cluster = useCluster();
  const partitions = data?.items ?? [];
  const [, valueOf, format] = MEASURES[measure];
  const most = Math.max(1, ...partitions.map(valueOf));
  const known: NodeRow[] = cluster?.nodes.length
    ? cluster.nodes.map(({ node_id, name, state }) => ({ id: node_id, name, state }))
    : [{ id: cluster?.node_id ?? 0, name: "", state: "up" }];
  const used = new Set(partitions.flatMap(({ replicas, leader }) => [...replicas, ...(leader === null ? [] : [leader])]));
  const unknown = [...used].filter((id) => !known.some((node) => node.id === id)).map((id) => ({ id, name: "", state: "away" }));
  const nodes = [...known, ...(cluster ? unknown : [])];
  const sumOn = (node: number) => partitions.filter(({ leader }) => leader === node).reduce((sum, partition) => sum + valueOf(partition), 0);
  const ledBy = (node: number) => partitions.filter(({ leader }) => leader === node).length;
  return (
    <Card
      title="Partition map"
      actions={
        <Segments
          label="A cell shows"
          value={measure}
          onChoose={(key) => setMeasure(key as Measure)}
          options={Object.entries(MEASURES).map(([key, [text]]) => [key, text])}
        />
      }
    >
      <Failure error={error} again={refresh} what="The map" />
      {data === null ? (
        // As high as the map will be, so that nothing jumps when it comes.
        <div style={{ height: `${MAP_HEIGHT + NODE_HEIGHT * nodes.length}px` }}>
          <Bone width="60%" />
        </div>
      ) : (
        <div class="stack tight">
          <Verdict partitions={partitions} nodes={nodes} />
          <div class="table-scroll" tabindex={0} role="group" aria-label={`Partition map of ${topic}`}>
            <table class={`map ${partitions.length > ROOMY_MAX ? "dense" : ""}`}>
              <caption class="spoken">Partitions of {topic} by node</caption>
              <thead>
                <tr>
                  <th scope="col">Node</th>
                  {partitions.map(({ partition }) => (
                    <th scope="col" key={partition} class="num">
                      {partition}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {nodes.map((node) => (
                  <tr key={node.id}>
                    <th scope="row">
                      <span class="row">
                        <strong>{node.name || `node ${node.id}`}</strong>
                        {!SERVING.includes(node.state) && <State of={node.state} />}
                      </span>
                      <span class="small muted nowrap">
                        {node.name && `node ${node.id}, `}leads {ledBy(node.id)}, {format(sumOn(node.id))}
                      </span>
                    </th>
                    {partitions.map((partition) => (
                      <Cell
                        key={partition.partition}
                        topic={topic}
                        partition={partition}
                        node={node.id}
                        share={valueOf(partition) / most}
                      />
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <ul class="legend small muted">
            <li>
              <span class="map-cell leader">
                <i style={{ height: "60%" }} />
              </span>
              leader, filled by {MEASURES[measure][0].toLowerCase()}
            </li>
            {nodes.length > 1 && (
              <>
                <li>
                  <span class="map-cell replica" />
                  replica in sync
                </li>
                <li>
                  <span class="map-cell late" />
                  replica not in sync
                </li>
              </>
            )}
            <li>fullest cell: {format(most === 1 && !partitions.some(valueOf) ? 0 : most)}</li>
            {data.total > DRAWN_MAX && <li>the first {DRAWN_MAX} partitions</li>}
          </ul>
        </div>
      )}
    </Card>
  );
};
