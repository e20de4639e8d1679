// How messages flow: from producers into the busiest topics, and on to the consumer groups that read them.
import { type Schemas, apiPath } from "../api";
import { Count, bytesPerSecond, countPerSecond, plural } from "../format";
import { useLive } from "../live";
import { Card } from "../parts";
import { pathOf } from "../router";

type Topic = Schemas["TopicView"];
type Group = Schemas["ConsumerView"];

const ROWS = 5;
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

const GroupBox = ({ group }: { group: Group }) => (
  <li>
    <a class={`flow-box ${group.lag_messages > 0 && group.members === 0 ? "warn" : ""}`} href={pathOf("consumers", group.name)} title={group.name}>
      <strong class="clip">{group.name}</strong>
      <span class="small muted clip">
        lag <Count value={group.lag_messages} />, {group.members ? plural(group.members, "member") : "no members"}
      </span>
    </a>
  </li>
);

/** `count` is the number of topics: room is kept for them before they are known, so that nothing below jumps. */
export const Flow = ({ produce, count }: { produce: Schemas["FlowView"]; count: number }) => {
  const busiest = { sort: "produce_bytes_per_s", order: "desc", limit: ROWS, internal: false } as const;
  const topics = useLive(apiPath("/topics"), busiest, { every: 5000 }).data?.items ?? [];
  const all = useLive(apiPath("/consumers"), { sort: "lag_messages", order: "desc", limit: 50 }, { every: 5000 }).data?.items ?? [];
  const names = topics.map(({ name }) => name);
  const groups = all.filter((group) => group.topics.some((name) => names.includes(name))).slice(0, ROWS);
  if (!topics.length)
    return (
      <Card title="Flow">
        <div style={{ height: `${Math.min(count, ROWS) * PITCH}px` }} />
      </Card>
    );
  const height = Math.max(topics.length, groups.length, 1) * PITCH;
  const most = Math.max(1, ...topics.map((topic) => topic.produce_bytes_per_s));
  const inflow = topics.map((topic, row) => ({
    from: height / 2,
    to: middle(row, topics.length, height),
    active: topic.produce_bytes_per_s > 0,
    strong: topic.produce_bytes_per_s / most,
  }));
  const outflow = groups.flatMap((group, to) =>
    topics.flatMap((topic, from) =>
      group.topics.includes(topic.name)
        ? {
            from: middle(from, topics.length, height),
            to: middle(to, groups.length, height),
            active: group.members > 0 && topic.fetch_bytes_per_s > 0,
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
        {groups.length ? (
          <ul aria-label="Their consumer groups">
            {groups.map((group) => (
              <GroupBox key={group.name} group={group} />
            ))}
          </ul>
        ) : (
          <p class="muted small">No consumer group has read these topics.</p>
        )}
      </div>
    </Card>
  );
};
