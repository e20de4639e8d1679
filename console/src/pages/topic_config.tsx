// The configuration of a topic: every key with its documentation, edited in place.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, patch } from "../api";
import { Dialog, say } from "../dialogs";
import { bytes, duration } from "../format";
import { useLive } from "../live";
import { Badge, Bone, Card, Empty, Failure, Search, useId } from "../parts";
import { type Place, setQuery } from "../router";
import { useRights } from "../rights";
import { type Column, Table } from "../tables";

type Entry = Schemas["ConfigView"];

/** A long number in readable units. */
const meant = (name: string, value: string) => {
  const number = Number(value);
  if (!value || !Number.isFinite(number) || Math.abs(number) < 1000 || number > 1e17) return null;
  return /\.ms$/.test(name) ? duration(number) : /bytes$/.test(name) ? bytes(number) : null;
};
const hasNoEffect = (entry: Entry) => entry.doc.startsWith("accepted for compatibility");
/** Changed keys first, keys without effect last. */
const rank = (entry: Entry) => (entry.is_default ? (hasNoEffect(entry) ? 2 : 1) : 0);

interface EditProps {
  topic: string;
  entry: Entry;
  onClose: () => void;
  refresh: () => void;
}

const Edit = ({ topic, entry, onClose, refresh }: EditProps) => {
  const [value, setValue] = useState(entry.value);
  const [error, setError] = useState<Error | null>(null);
  const id = useId();
  const send = async (change: Schemas["ConfigChange"], told: string) => {
    try {
      await patch(apiPath("/topics/{name}/config", { name: topic }), change);
      say(told);
      refresh();
      onClose();
    } catch (failure) {
      setError(errorOf(failure));
    }
  };
  const set = () => send({ set: { [entry.name]: value }, unset: [] }, `${entry.name} of ${topic} is ${value} now.`);
  const reset = () => send({ set: {}, unset: [entry.name] }, `${entry.name} of ${topic} is back at its default.`);
  return (
    <Dialog
      title={`Change ${entry.name} of ${topic}`}
      onClose={onClose}
      onSubmit={set}
      foot={
        <>
          {" "}
          {!entry.is_default && (
            <button type="button" class="button" onClick={reset}>
              Reset to default
            </button>
          )}
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="button primary" disabled={value === entry.value}>
            Save
          </button>
        </>
      }
    >
      {entry.doc && <p class="muted">{entry.doc}</p>}
      <div class="field">
        <label for={id}>Value</label>
        <input
          id={id}
          class="input mono"
          data-first
          autocomplete="off"
          spellcheck={false}
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
        <span class="hint">
          The default is <code>{entry.default}</code>. Changes take effect at once and are persistent.
        </span>
      </div>
      <Failure error={error} />
    </Dialog>
  );
};

interface ConfigurationProps {
  name: string;
  topic: Schemas["TopicView"];
  query: Place["query"];
}

export const Configuration = ({ name, topic, query }: ConfigurationProps) => {
  const { data, error, refresh } = useLive(apiPath("/topics/{name}/config", { name }), {}, { every: 5000 });
  const [editing, setEditing] = useState<Entry | null>(null);
  const refused = useRights("topic", name)("ALTER_CONFIGS");
  const search = (query.search ?? "").toLowerCase();
  const shown = (data?.items ?? [])
    .filter((entry) => `${entry.name} ${entry.doc}`.toLowerCase().includes(search))
    .sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  const columns: Column<Entry>[] = [
    {
      key: "name",
      title: "Key",
      width: "52%",
      show: (entry) => (
        <>
          <div class="mono">{entry.name}</div>
          {entry.doc && <div class="small muted">{entry.doc}</div>}
        </>
      ),
    },
    {
      key: "value",
      title: "Value",
      show: (entry) => (
        <>
          <code class="wrap">{entry.value === "" ? "–" : entry.value}</code>
          {meant(entry.name, entry.value) && (
            <>
              {" "}
              <span class="small muted nowrap">{meant(entry.name, entry.value)}</span>
            </>
          )}
          {!entry.is_default && (
            <>
              {" "}
              <Badge plain tone="accent">
                changed
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
      show: (entry) => <code class="muted">{entry.default === "" ? "–" : entry.default}</code>,
    },
    {
      key: "edit",
      title: "",
      end: true,
      show: (entry) =>
        !topic.is_internal && (
          <button
            type="button"
            class="button small"
            aria-label={`Change ${entry.name}`}
            disabled={Boolean(refused)}
            title={refused ?? undefined}
            onClick={() => setEditing(entry)}
          >
            Change
          </button>
        ),
    },
  ];
  return (
    <div class="stack">
      <div class="row">
        <Search label="Search keys" value={query.search} onChange={(text) => setQuery({ search: text || null })} />
      </div>
      <Failure error={error} again={refresh} what="The configuration" />
      <Card bare label="Configuration">
        {data === null ? (
          <div class="card-body">
            <Bone width="60%" />
          </div>
        ) : shown.length ? (
          <Table label={`Configuration of ${name}`} tall columns={columns} rows={shown} keyOf={(entry) => entry.name} />
        ) : (
          <Empty title="No matching keys">Change the search.</Empty>
        )}
      </Card>
      {editing && <Edit topic={name} entry={editing} onClose={() => setEditing(null)} refresh={refresh} />}
    </div>
  );
};
