// One consumer group: lag and its trend, members, committed offsets.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, isNotFound, remove } from "../api";
import { HistoryChart, type Line, RangeChoice } from "../charts";
import { Confirm, say } from "../dialogs";
import { Bytes, Count, Seconds, Share, count, integer, plural, seconds } from "../format";
import { forget, useLive } from "../live";
import { Badge, Card, Empty, Failure, Menu, PageHead, State, Tile } from "../parts";
import { href, navigate, pathOf, useLocation } from "../router";
import { useRights } from "../rights";
import { type Column, Table } from "../tables";
import { LAG_COLUMNS, kindText } from "./consumer_columns";
import { Reset } from "./consumer_reset";

const NONE = "No history for this group: it is new, or not among the groups with the largest lag.";

const POSITIONS: Column<Schemas["PositionView"]>[] = [
  {
    key: "topic",
    title: "Topic",
    sorts: true,
    show: (row) => (
      <a
        class="name-link clip"
        data-row
        href={href(pathOf("topics", row.topic), {
          partition: row.partition,
          start: row.position === null ? "oldest" : `offset:${row.position}`,
        })}
        title={row.position === null ? "Messages from the oldest on: nothing is committed here" : "Messages from the committed offset on"}
      >
        {row.topic}
      </a>
    ),
  },
  { key: "partition", title: "Partition", end: true, sorts: true, show: (row) => row.partition },
  { key: "position", title: "Committed offset", end: true, show: (row) => integer(row.position) },
  { key: "end", title: "End offset", end: true, wide: true, show: (row) => integer(row.end) },
  ...LAG_COLUMNS,
];

const partitionsText = (partitions: Schemas["MemberView"]["partitions"]) =>
  Object.entries(partitions)
    .map(([topic, numbers]) => `${topic} ${numbers.join(", ")}`)
    .join("; ") || "none";
const MEMBERS: Column<Schemas["MemberView"]>[] = [
  {
    key: "id",
    title: "Member",
    show: (row) => (
      <span class="mono clip" title={row.id}>
        {row.id}
      </span>
    ),
  },
  { key: "client_id", title: "Client", show: (row) => row.client_id },
  { key: "host", title: "Host", wide: true, show: (row) => row.host },
  { key: "partitions", title: "Partitions", show: (row) => partitionsText(row.partitions) },
];

export default function Consumer() {
  const { segments, query } = useLocation();
  const name = segments[1] ?? "";
  const { data, error, refresh } = useLive(apiPath("/consumers/{name}", { name }));
  const [asking, setAsking] = useState<"reset" | "delete" | null>(null);
  const refusal = useRights("group", name.replace(/^stream:/, ""));
  const crumbs = (
    <>
      <a href="/consumers">Consumer groups</a> /
    </>
  );
  if (isNotFound(error))
    return (
      <div class="page">
        <PageHead title={name} crumbs={crumbs} />
        <Empty title="There is no such consumer group">
          It was deleted, or its committed offsets have expired. <a href="/consumers">All consumer groups</a>
        </Empty>
      </div>
    );
  const range = query.range ?? "10m";
  const topics = data?.topics ?? [];
  const lines = (metric: Line["query"]["metric"]): Line[] => [{ query: { metric, consumer: name }, label: null }];
  const members = data?.members ?? [];
  return (
    <div class="page">
      <PageHead
        title={name}
        crumbs={crumbs}
        note={
          data ? (
            <>
              {kindText(data.kind)} <State of={data.state} />
              {data.vital ? (
                <>
                  {" "}
                  <Badge plain tone="accent">
                    vital
                  </Badge>
                </>
              ) : (
                ""
              )}
            </>
          ) : (
            "\u00a0"
          )
        }
      >
        <RangeChoice value={range} />
        {data && (
          <Menu
            label="Actions"
            icon="more"
            actions={[
              ...(topics.length > 0 ? [{ text: "Reset offsets…", act: () => setAsking("reset"), refused: refusal("READ") }] : []),
              { text: "Delete group…", act: () => setAsking("delete"), danger: true, icon: "trash", refused: refusal("DELETE") },
            ]}
          />
        )}
      </PageHead>
      <Failure error={error} again={refresh} what="The consumer group" />
      <div class="tiles">
        <Tile label="Lag" note="messages">
          <Count value={data?.lag_messages} />
        </Tile>
        <Tile label="Lag in bytes" note="not consumed yet">
          <Bytes value={data?.lag_bytes} />
        </Tile>
        <Tile label="Lag in time" note="of the oldest unread">
          <Seconds value={data?.lag_seconds} />
        </Tile>
        <Tile label="Of retention" note="deleted unread at 100 %">
          <Share value={data?.retention_share} />
        </Tile>
        <Tile
          label="Members"
          note={data && topics.length ? `${plural(topics.length, "topic")}, ${plural(data.position_count, "partition")}` : null}
        >
          {data ? integer(members.length) : "–"}
        </Tile>
      </div>
      <div class="grid">
        <HistoryChart title="Lag in messages" range={range} format={count} lines={lines("lag_messages")} none={NONE} />
        <HistoryChart
          title="Lag in time"
          unit="seconds"
          range={range}
          format={seconds}
          lines={lines("lag_seconds")}
          none={NONE}
        />
      </div>
      {data && (
        <>
          <Card title="Committed offsets" bare>
            {data.positions.length ? (
              <>
                <Table
                  label="Committed offsets"
                  columns={POSITIONS}
                  rows={data.positions}
                  keyOf={(row) => `${row.topic}/${row.partition}`}
                />
                {data.position_count > data.positions.length && (
                  <div class="table-foot">
                    The first {integer(data.positions.length)} of {integer(data.position_count)}
                  </div>
                )}
              </>
            ) : (
              <Empty title="No committed offsets yet">The group has not committed any.</Empty>
            )}
          </Card>
          <Card title="Members" bare>
            {members.length ? (
              <Table label="Members" columns={MEMBERS} rows={members} keyOf={(row) => row.id} />
            ) : (
              <Empty title="No active members">The committed offsets are kept until a member joins again.</Empty>
            )}
          </Card>
        </>
      )}
      {asking === "reset" && <Reset consumer={name} topics={topics} onClose={() => setAsking(null)} onDone={refresh} />}
      {data && asking === "delete" && (
        <Confirm
          title={`Delete consumer group ${name}?`}
          verb="Delete"
          onClose={() => setAsking(null)}
          act={async () => {
            await remove(apiPath("/consumers/{name}", { name }));
            forget("/consumers");
            say(`Consumer group ${name} was deleted.`);
            navigate("/consumers");
          }}
          touches={
            <>
              This deletes <strong>{plural(data.position_count, "committed offset")}</strong> in{" "}
              {topics.slice(0, 5).join(", ") || "no topic"}
              {topics.length > 5 ? ", …" : ""}. Messages are kept. A group that uses this name again starts at its auto.offset.reset.
            </>
          }
        />
      )}
    </div>
  );
}
