// How messages flow: from producers into the busiest topics, and on to the consumer groups and pipelines that read them.
import type { ComponentChildren } from "preact";
import { type Schemas, apiPath } from "../api";
import { Count, bytesPerSecond, countPerSecond, plural } from "../format";
import { useLive } from "../live";
import { Card } from "../parts";
import { pathOf } from "../router";
import { type Pipeline, sourceTopics, stateOf } from "./pipeline_state";

type Topic = Schemas["TopicView"];
type Group = Schemas["ConsumerView"];

const ROWS = 5;
const PIPELINES = 2; // at most, of the rows at the right
const PITCH = 56;
const WIDTH = 100;

interface Link {
  from: number;
  to: number;
  /** Whether messages move along it now. */
  active: boolean;
  strong: number;
}

/** The middle of a row, where `count` rows are centred in the height of all. */
const middle = (row: number, count: number, height: number) => (height - count * PITCH) / 2 + (row + 0.5) * PITCH;

const Links = ({ links, height }: { links: Link[]; height: number }) => (
  <svg
    class="flow-links"
    viewBox={`0 0 ${WIDTH} ${height}`}
    height={height}
    preserveAspectRatio="none"
    aria-hidden="true"
    focusable="false"
  >
    {links.map(({ from, to, active, strong }, index) => (
      <path
        key={index}
        class={active ? "active" : ""}
        d={`M0 ${from} C${WIDTH / 2} ${from} ${WIDTH / 2} ${to} ${WIDTH} ${to}`}
        stroke-width={active ? 1 + 4 * strong : 1}
      />
    ))}
  </svg>
);

const TopicBox = ({ topic }: { topic: Topic }) => (
  <li>
    <a class="flow-box" href={pathOf("topics", topic.name)} title={topic.name}>
      <strong class="clip">{topic.name}</strong>
      <span class="small muted clip">
        {bytesPerSecond(topic.produce_bytes_per_s)}, {plural(topic.partitions, "partition")}
      </span>
    </a>
  </li>
);

/** A consumer group or a pipeline. */
interface Reader {
  name: string;
  href: string;
  topics: string[];
  note: ComponentChildren;
  isActive: boolean;
  isStuck: boolean;
}

const groupReader = ({ name, topics, lag_messages, members }: Group): Reader => ({
  name,
  href: pathOf("consumers", name),
  topics,
  note: (
    <>
      lag <Count value={lag_messages} />, {members ? plural(members, "member") : "no members"}
    </>
  ),
  isActive: members > 0,
  isStuck: lag_messages > 0 && members === 0,
});

const pipelineReader = (pipeline: Pipeline): Reader => ({
  name: pipeline.name,
  href: pathOf("pipelines", pipeline.name),
  topics: sourceTopics(pipeline),
  note: (
    <>
      pipeline, lag <Count value={pipeline.lag_rows} />, <Count value={pipeline.rows_per_s} /> rows/s
    </>
  ),
  isActive: stateOf(pipeline) === "running",
  isStuck: ["failed", "silent"].includes(stateOf(pipeline) ?? ""),
});

const ReaderBox = ({ reader }: { reader: Reader }) => (
  <li>
    <a class={`flow-box ${reader.isStuck ? "warn" : ""}`} href={reader.href} title={reader.name}>
      <strong class="clip">{reader.name}</strong>
      <span class="small muted clip">{reader.note}</span>
    </a>
  </li>
);

interface FlowProps {
  produce: Schemas["FlowView"];
  /** The number of topics: room is kept for them before they are known, so that nothing below jumps. */
  count: number;
  pipelines?: Pipeline[];
}

/** With the pipelines, for users who may see them. */
export const WholeFlow = (props: FlowProps) => {
  const pipelines = useLive(apiPath("/pipelines"), { limit: 50 }, { every: 5000 }).data?.items ?? [];
  return <Flow {...props} pipelines={pipelines} />;
};

export const Flow = ({ produce, count, pipelines = [] }: FlowProps) => {
  const busiest = { sort: "produce_bytes_per_s", order: "desc", limit: ROWS, internal: false } as const;
  const topics = useLive(apiPath("/topics"), busiest, { every: 5000 }).data?.items ?? [];
  const all = useLive(apiPath("/consumers"), { sort: "lag_messages", order: "desc", limit: 50 }, { every: 5000 }).data?.items ?? [];
  const names = topics.map(({ name }) => name);
  const reads = (reader: Reader) => reader.topics.some((name) => names.includes(name));
  const flowing = pipelines.map(pipelineReader).filter(reads).slice(0, PIPELINES);
  const readers = [...all.map(groupReader).filter(reads).slice(0, ROWS - flowing.length), ...flowing];
  if (!topics.length)
    return (
      <Card title="Flow">
        <div style={{ height: `${Math.min(count, ROWS) * PITCH}px` }} />
      </Card>
    );
  const height = Math.max(topics.length, readers.length, 1) * PITCH;
  const most = Math.max(1, ...topics.map((topic) => topic.produce_bytes_per_s));
  const inflow = topics.map((topic, row) => ({
    from: height / 2,
    to: middle(row, topics.length, height),
    active: topic.produce_bytes_per_s > 0,
    strong: topic.produce_bytes_per_s / most,
  }));
  const outflow = readers.flatMap((reader, to) =>
    topics.flatMap((topic, from) =>
      reader.topics.includes(topic.name)
        ? {
            from: middle(from, topics.length, height),
            to: middle(to, readers.length, height),
            active: reader.isActive && topic.fetch_bytes_per_s > 0,
            strong: Math.min(1, topic.fetch_bytes_per_s / most),
          }
        : [],
    ),
  );
  return (
    <Card title="Flow">
      <div class="flow">
        <div class="flow-box producers">
          <strong>Producers</strong>
          <span class="small muted">
            {bytesPerSecond(produce.bytes_per_s)}, {countPerSecond(produce.messages_per_s)}
          </span>
        </div>
        <Links links={inflow} height={height} />
        <ul aria-label="Busiest topics">
          {topics.map((topic) => (
            <TopicBox key={topic.name} topic={topic} />
          ))}
        </ul>
        <Links links={outflow} height={height} />
        {readers.length ? (
          <ul aria-label="Their consumer groups and pipelines">
            {readers.map((reader) => (
              <ReaderBox key={reader.href} reader={reader} />
            ))}
          </ul>
        ) : (
          <p class="muted small">No consumer group has read these topics.</p>
        )}
      </div>
    </Card>
  );
};
