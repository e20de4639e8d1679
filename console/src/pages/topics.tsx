// All topics. Search, sorting and paging run on the node, so that ten thousand topics are as fast as ten.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, get, post } from "../api";
import { FormDialog, say } from "../dialogs";
import { Bytes, BytesRate, Count, Duration, ago, plural } from "../format";
import { Icon } from "../icons";
import { useSettled } from "../live";
import { Badge, Empty, type FieldEvent, PageHead, Search, useId } from "../parts";
import { navigate, pathOf, setQuery, useLocation } from "../router";
import { useRights } from "../rights";
import { useCluster } from "../shell";
import { command } from "../snippets";
import { type Column, LongTable } from "../tables";
import { type BulkAction, BulkDialog } from "./topic_bulk";

const RATE = "average of the last seconds";
const COLUMNS: Column<Schemas["TopicView"]>[] = [
  {
    key: "name",
    title: "Name",
    sorts: true,
    show: (topic) => (
      <>
        <a class="name-link clip" data-row href={pathOf("topics", topic.name)} title={topic.name}>
          {topic.name}
        </a>
        {topic.is_internal && (
          <Badge plain tone="accent">
            internal
          </Badge>
        )}
      </>
    ),
  },
  {
    key: "partitions",
    title: "Partitions",
    end: true,
    wide: "wider",
    sorts: true,
    width: "96px",
    show: (topic) => <Count value={topic.partitions} />,
  },
  {
    key: "messages",
    title: "Messages",
    end: true,
    sorts: true,
    width: "98px",
    show: (topic) => <Count value={topic.messages} />,
  },
  {
    key: "bytes",
    title: "Size",
    end: true,
    sorts: true,
    width: "104px",
    show: (topic) => <Bytes value={topic.bytes} />,
  },
  {
    key: "produce_bytes_per_s",
    title: "Produced",
    end: true,
    wide: true,
    sorts: true,
    width: "104px",
    about: RATE,
    show: (topic) => <BytesRate value={topic.produce_bytes_per_s} />,
  },
  {
    key: "fetch_bytes_per_s",
    title: "Consumed",
    end: true,
    wide: "wider",
    sorts: true,
    width: "104px",
    about: RATE,
    show: (topic) => <BytesRate value={topic.fetch_bytes_per_s} />,
  },
  {
    key: "consumers",
    title: "Groups",
    end: true,
    wide: "wider",
    sorts: true,
    width: "80px",
    show: (topic) => <Count value={topic.consumers} />,
  },
  {
    key: "retention_ms",
    title: "Retention",
    end: true,
    wide: true,
    width: "96px",
    show: (topic) =>
      topic.cleanup_policy === "compact" ? (
        <span class="muted">compact</span>
      ) : topic.retention_ms === null ? (
        <span class="muted">unlimited</span>
      ) : (
        <Duration value={topic.retention_ms} />
      ),
  },
  {
    key: "last_message_ms",
    title: "Last message",
    end: true,
    wide: "wider",
    width: "132px",
    show: (topic) =>
      topic.last_message_ms === null ? (
        <span class="muted">none</span>
      ) : (
        <span class="num" title={new Date(topic.last_message_ms).toLocaleString()}>
          {ago(topic.last_message_ms)}
        </span>
      ),
  },
  {
    key: "cleanup_policy",
    title: "Cleanup",
    wide: "widest",
    width: "140px",
    show: (topic) => <Badge plain>{topic.cleanup_policy.replace(",", " + ")}</Badge>,
  },
];

const SELECTED_MAX = 1000;

type Topic = Schemas["TopicView"];

/** Selected topics by name, in the order of selection. */
type Selection = ReadonlyMap<string, Topic>;

/** The column of check boxes; its head selects all topics that match the search. */
const selectionColumn = (selection: Selection, select: (selection: Selection) => void, selectAll: () => void): Column<Topic> => ({
  key: "selected",
  width: "40px",
  head: (
    <input
      type="checkbox"
      aria-label={selection.size ? "Clear the selection" : "Select all matching topics"}
      checked={selection.size > 0}
      onChange={() => (selection.size ? select(new Map()) : selectAll())}
    />
  ),
  show: (topic) => (
    <input
      type="checkbox"
      aria-label={`Select ${topic.name}`}
      disabled={topic.is_internal}
      checked={selection.has(topic.name)}
      onChange={(event) => {
        const next = new Map(selection);
        if (event.currentTarget.checked) next.set(topic.name, topic);
        else next.delete(topic.name);
        select(next);
      }}
    />
  ),
});

/** All topics that match a search, up to a bound. */
async function matchingTopics(search: string): Promise<Selection> {
  const found = new Map<string, Topic>();
  for (let offset = 0; offset < SELECTED_MAX; offset += 500) {
    const { items, total } = await get(apiPath("/topics"), { search, internal: false, offset, limit: 500 });
    for (const topic of items) found.set(topic.name, topic);
    if (offset + items.length >= total) break;
  }
  return found;
}

const SelectionBar = ({ selection, act, clear }: { selection: Selection; act: (action: BulkAction) => void; clear: () => void }) => (
  <div class="selection-bar" role="region" aria-label="Selected topics">
    <strong>{plural(selection.size, "topic")} selected</strong>
    {selection.size >= SELECTED_MAX && <span class="small muted">the first {SELECTED_MAX}</span>}
    <span class="push row">
      <button type="button" class="button small" onClick={() => act("set")}>
        Change a setting…
      </button>
      <button type="button" class="button small danger" onClick={() => act("purge")}>
        Delete messages…
      </button>
      <button type="button" class="button small danger" onClick={() => act("delete")}>
        Delete topics…
      </button>
      <button type="button" class="button small plain" onClick={clear}>
        Clear
      </button>
    </span>
  </div>
);

const NewTopic = ({ onClose, onMade }: { onClose: () => void; onMade: (name: string) => void }) => {
  const [form, setForm] = useState({ name: "", partitions: "", retention: "", policy: "" });
  const ids = [useId(), useId(), useId(), useId()];
  const set = (key: keyof typeof form) => (event: FieldEvent) => setForm({ ...form, [key]: event.currentTarget.value });
  const name = form.name.trim();
  const make = async () => {
    const config: Record<string, string> = {};
    if (form.retention) config["retention.ms"] = form.retention;
    if (form.policy) config["cleanup.policy"] = form.policy;
    await post(apiPath("/topics"), { name, partitions: form.partitions ? Number(form.partitions) : null, config });
    say(`Topic ${name} was created.`);
    onMade(name);
  };
  return (
    <FormDialog title="Create topic" verb="Create" ready={name !== ""} send={make} onClose={onClose}>
      <div class="field">
        <label for={ids[0]}>Name</label>
        <input
          id={ids[0]}
          class="input mono"
          data-first
          autocomplete="off"
          spellcheck={false}
          maxlength={249}
          value={form.name}
          onInput={set("name")}
        />
        <span class="hint">Letters, digits, dots, underscores and hyphens.</span>
      </div>
      <div class="field">
        <label for={ids[1]}>Partitions</label>
        <input
          id={ids[1]}
          class="input"
          type="number"
          min="1"
          max="100000"
          placeholder="the node's default"
          value={form.partitions}
          onInput={set("partitions")}
        />
        <span class="hint">The maximum number of consumers that share the work of one group. It can be raised later, never lowered.</span>
      </div>
      <div class="field">
        <label for={ids[2]}>Retention</label>
        <select id={ids[2]} class="select" value={form.retention} onChange={set("retention")}>
          {[
            ["", "default (7 days)"],
            ["3600000", "1 hour"],
            ["86400000", "1 day"],
            ["2592000000", "30 days"],
            ["-1", "unlimited"],
          ].map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </div>
      <div class="field">
        <label for={ids[3]}>Cleanup policy</label>
        <select id={ids[3]} class="select" value={form.policy} onChange={set("policy")}>
          {[
            ["", "delete: by retention (default)"],
            ["compact", "compact: keep the last message of each key"],
            ["compact,delete", "compact and delete"],
          ].map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </div>
    </FormDialog>
  );
};

export default function Topics() {
  const { query } = useLocation();
  const search = useSettled(query.search ?? "", 150);
  const [making, setMaking] = useState(false);
  const [selection, select] = useState<Selection>(new Map());
  const [version, setVersion] = useState(0);
  const [action, setAction] = useState<BulkAction | null>(null);
  const internal = query.internal === "1";
  const cluster = useCluster();
  const [onCluster, onTopics] = [useRights("cluster"), useRights("topic")];
  const refused = onCluster("CREATE") && onTopics("CREATE");
  const selectAll = () =>
    matchingTopics(search).then(select, (failure: unknown) => say(`The topics could not be selected: ${errorOf(failure).message}`, "bad"));
  const nothing = search ? (
    <Empty title="No matching topics">
      Change the search, or <a href="/topics">show all</a>.
    </Empty>
  ) : (
    <Empty title="No topics yet" command={command(cluster, "echo hello | penstock produce greetings")}>
      Create one here, or produce to it: the first message creates the topic.
    </Empty>
  );
  return (
    <div class="page fill">
      <PageHead title="Topics">
        <button
          type="button"
          class="button primary"
          disabled={Boolean(refused)}
          title={refused ?? undefined}
          onClick={() => setMaking(true)}
        >
          <Icon name="plus" />
          Create topic
        </button>
      </PageHead>
      <div class="row">
        <Search label="Search topics" value={query.search} />
        <label class="check">
          <input
            type="checkbox"
            checked={internal}
            onChange={(event) => setQuery({ internal: event.currentTarget.checked ? "1" : null, at: null }, { replace: false })}
          />
          Show internal topics
        </label>
      </div>
      {selection.size > 0 && <SelectionBar selection={selection} act={setAction} clear={() => select(new Map())} />}
      <LongTable
        key={version}
        label="Topics"
        noun="topic"
        columns={[selectionColumn(selection, select, () => void selectAll()), ...COLUMNS]}
        path={apiPath("/topics")}
        query={{ search, internal }}
        sort={query.sort ?? "name"}
        order={query.order ?? "asc"}
        at={query.at}
        keyOf={(topic) => topic.name}
        empty={nothing}
      />
      {action && (
        <BulkDialog
          action={action}
          topics={[...selection.values()]}
          onClose={(failed) => {
            setAction(null);
            if (failed === null) return;
            select(new Map([...selection].filter(([name]) => failed.includes(name))));
            setVersion(version + 1);
          }}
        />
      )}
      {making && (
        <NewTopic
          onClose={() => setMaking(false)}
          onMade={(name) => {
            setMaking(false);
            navigate(pathOf("topics", name));
          }}
        />
      )}
    </div>
  );
}
