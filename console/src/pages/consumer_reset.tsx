// Reset the committed offsets of a group, with a preview of what changes.
import { useEffect, useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, post } from "../api";
import { Dialog, say } from "../dialogs";
import { clockOf, count, dateOf, integer, plural } from "../format";
import { useSettled } from "../live";
import { Bone, Failure, type FieldEvent, Notice, useId } from "../parts";
import { type Column, Table } from "../tables";

type Move = Schemas["OffsetMove"];
type ResetRequest = Schemas["ResetRequest"];

const change = ({ before, after }: Move) => (before === null ? null : after - before);
const COLUMNS: Column<Move>[] = [
  { key: "partition", title: "Partition", show: (row) => row.partition },
  { key: "before", title: "Committed offset", end: true, show: (row) => integer(row.before) },
  { key: "after", title: "New offset", end: true, show: (row) => integer(row.after) },
  {
    key: "change",
    title: "Change",
    end: true,
    show: (row) => {
      const by = change(row);
      return by === null ? "new" : by === 0 ? "none" : by > 0 ? `${count(by)} skipped` : `${count(-by)} consumed again`;
    },
  },
];

const localNow = () => {
  const at = new Date(Date.now() - 3600e3);
  return `${dateOf(at)}T${clockOf(at)}`;
};

const Preview = ({ plan }: { plan: Move[] }) => {
  const changes = plan.map(change).filter((by) => by !== null);
  const again = -changes.filter((by) => by < 0).reduce((sum, by) => sum + by, 0);
  const skipped = changes.filter((by) => by > 0).reduce((sum, by) => sum + by, 0);
  return (
    <div class="stack" role="status">
      <p>
        {again || skipped ? (
          <>
            {again > 0 && (
              <>
                <strong>{plural(again, "message")}</strong> will be consumed again.{" "}
              </>
            )}
            {skipped > 0 && (
              <>
                <strong>{plural(skipped, "message")}</strong> will be skipped.
              </>
            )}
          </>
        ) : (
          "No committed offset changes."
        )}
      </p>
      <div class="card plan">
        <Table label="What will change" columns={COLUMNS} rows={plan} keyOf={(row) => row.partition} />
      </div>
    </div>
  );
};

interface ResetProps {
  consumer: string;
  topics: string[];
  onClose: () => void;
  onDone: () => void;
}

interface Plan {
  key: string | null;
  rows: Move[] | null;
  error: Error | null;
}

interface Form {
  topic: string;
  to: string;
  offset: string;
  time: string;
}

/** The request for the form's values. An invalid number or time becomes 0, which the preview shows. */
function askedBy({ topic, to, offset, time }: Form): ResetRequest {
  switch (to) {
    case "offset":
      return { topic, to, value: Math.max(0, Math.trunc(Number(offset) || 0)) };
    case "time":
      return { topic, to, value: new Date(time).getTime() || 0 };
    default:
      return { topic, to: to === "latest" ? to : "earliest" };
  }
}

export const Reset = ({ consumer, topics, onClose, onDone }: ResetProps) => {
  const [form, setForm] = useState<Form>({ topic: topics[0] ?? "", to: "earliest", offset: "0", time: localNow() });
  const [plan, setPlan] = useState<Plan>({ key: null, rows: null, error: null });
  const [failure, setFailure] = useState<Error | null>(null);
  const ids = [useId(), useId(), useId()];
  const set = (name: keyof Form) => (event: FieldEvent) => setForm({ ...form, [name]: event.currentTarget.value });
  const address = apiPath("/consumers/{name}/reset", { name: consumer });
  const body = askedBy(form);
  const key = useSettled(JSON.stringify(body), 250);
  useEffect(() => {
    let wanted = true;
    post(address, { ...(JSON.parse(key) as ResetRequest), dry_run: true }).then(
      (answer) => wanted && setPlan({ key, rows: answer.items, error: null }),
      (error: unknown) => wanted && setPlan({ key, rows: null, error: errorOf(error) }),
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  const go = async () => {
    try {
      await post(address, { ...body, dry_run: false });
      say(`Offsets of ${consumer} in ${form.topic} were reset.`);
      onDone();
      onClose();
    } catch (error) {
      setFailure(errorOf(error));
    }
  };
  const fresh = plan.key === JSON.stringify(body) ? plan.rows : null;
  const moved = fresh?.filter((row) => change(row) !== 0).length ?? 0;
  return (
    <Dialog
      title={`Reset offsets of ${consumer}`}
      wide
      onClose={onClose}
      onSubmit={go}
      foot={
        <>
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={`button primary ${moved ? "danger" : ""}`} disabled={!moved}>
            {moved ? `Reset ${plural(moved, "offset")}` : fresh ? "Nothing to reset" : "Reset offsets"}
          </button>
        </>
      }
    >
      <div class="pair">
        <div class="field">
          <label for={ids[0]}>Topic</label>
          <select id={ids[0]} class="select" data-first value={form.topic} onChange={set("topic")}>
            {topics.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </div>
        <div class="field">
          <label for={ids[1]}>To</label>
          <select id={ids[1]} class="select" value={form.to} onChange={set("to")}>
            <option value="earliest">earliest</option>
            <option value="latest">latest</option>
            <option value="offset">offset…</option>
            <option value="time">time…</option>
          </select>
        </div>
      </div>
      {form.to === "offset" && (
        <div class="field">
          <label for={ids[2]}>Offset</label>
          <input id={ids[2]} class="input" type="number" min="0" value={form.offset} onInput={set("offset")} />
        </div>
      )}
      {form.to === "time" && (
        <div class="field">
          <label for={ids[2]}>Time</label>
          <input id={ids[2]} class="input" type="datetime-local" step="1" value={form.time} onInput={set("time")} />
        </div>
      )}
      {plan.error ? <Failure error={plan.error} /> : plan.rows ? <Preview plan={plan.rows} /> : <Bone width="100%" />}
      {!plan.error && (
        <Notice>This is a preview. The group must have no active members before its offsets can be reset.</Notice>
      )}
      <Failure error={failure} />
    </Dialog>
  );
};
