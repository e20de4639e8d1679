// Table columns for consumer groups and their lag.
import type { Schemas } from "../api";
import { Bytes, Count, Seconds, Share, type Figure, percent } from "../format";
import { Badge, Meter, State } from "../parts";
import { pathOf } from "../router";
import { type Column } from "../tables";

type Consumer = Schemas["ConsumerView"];

const KINDS: Record<Consumer["kind"], string> = {
  kafka: "Kafka",
  yt: "YT consumer",
  ydb: "YDB consumer",
  stream: "stream consumer",
};
export const kindText = (kind: Consumer["kind"]) => KINDS[kind];

/** How much of the retention the oldest unread message has used up: at 100 % it is deleted unread. */
const RetentionShare = ({ value }: { value: Figure }) =>
  value === null || value === undefined ? (
    <span class="muted">–</span>
  ) : (
    <span
      class="share"
      title={`The first unread message has used up ${percent(value)} of its retention; at 100 % it is deleted unread.`}
    >
      <Meter share={value} label="Share of retention used up" />
      <Share value={value} />
    </span>
  );

type Lag = Pick<Schemas["PositionView"], "lag_messages" | "lag_bytes" | "lag_seconds" | "retention_share">;

export const LAG_COLUMNS: Column<Lag>[] = [
  {
    key: "lag_messages",
    title: "Lag",
    end: true,
    sorts: true,
    width: "98px",
    about: "messages not consumed yet",
    show: (row) => <Count value={row.lag_messages} />,
  },
  {
    key: "lag_bytes",
    title: "Bytes",
    end: true,
    wide: "wider",
    sorts: true,
    width: "104px",
    about: "bytes not consumed yet",
    show: (row) => <Bytes value={row.lag_bytes} />,
  },
  {
    key: "lag_seconds",
    title: "Time",
    end: true,
    sorts: true,
    width: "116px",
    about: "age of the oldest unread message",
    show: (row) => <Seconds value={row.lag_seconds} />,
  },
  {
    key: "retention_share",
    title: "Of retention",
    wide: true,
    sorts: true,
    width: "150px",
    about: "share of its retention that the oldest unread message has used up",
    show: (row) => <RetentionShare value={row.retention_share} />,
  },
];

export const CONSUMER_COLUMNS: Column<Consumer>[] = [
  {
    key: "name",
    title: "Name",
    sorts: true,
    show: (row) => (
      <a class="name-link clip" data-row href={pathOf("consumers", row.name)} title={row.name}>
        {row.name}
      </a>
    ),
  },
  { key: "kind", title: "Kind", wide: "wider", width: "144px", show: (row) => kindText(row.kind) },
  {
    key: "state",
    title: "State",
    wide: true,
    width: "150px",
    show: (row) => (
      <>
        <State of={row.state} />
        {row.vital && (
          <>
            {" "}
            <Badge plain tone="accent" title="Messages are not trimmed before it has read them">
              vital
            </Badge>
          </>
        )}
      </>
    ),
  },
  {
    key: "members",
    title: "Members",
    end: true,
    wide: "wider",
    sorts: true,
    width: "96px",
    show: (row) => <Count value={row.members} />,
  },
  ...LAG_COLUMNS,
];
