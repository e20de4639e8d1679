// What state a pipeline is in, from its reports and from the node that keeps it running.
import type { Schemas } from "../api";

export type Pipeline = Schemas["PipelineView"];
export type Deployment = Schemas["DeploymentView"];

const ALIVE: (string | undefined)[] = ["starting", "running", "waiting", "restarting"];

/** A pipeline that stopped reporting without a final state was killed, or cannot reach the broker. Of a deployed one the node knows
    more; while it runs, its reports do. */
export function stateOf(pipeline: Pipeline): string | undefined {
  const { deployment, state, is_alive } = pipeline;
  if (deployment && deployment.state !== "running") return deployment.state;
  if (deployment && !(is_alive && ALIVE.includes(state))) return "starting";
  return ALIVE.includes(state) && !is_alive ? "silent" : state;
}

/** The last error, unless the pipeline was started again since. */
export function errorOf({ deployment, last_error }: Pipeline): unknown {
  if (!deployment) return last_error;
  return deployment.last_error ?? (deployment.state === "running" ? last_error : null);
}

export const text = (value: unknown): string => {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.length === 0 ? "–" : value.map(text).join("\n");
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
};

/** The topics that a runner names: "topic orders", "topics orders, clicks". */
export const namedTopics = (told: string) => /^topics? (.+)$/.exec(told)?.[1]?.split(", ") ?? [];

/** The topics that a pipeline reads; none if it reads something else. */
export const sourceTopics = ({ deployment, source }: Pipeline) => deployment?.source_topics ?? namedTopics(text(source));
