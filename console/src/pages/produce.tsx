// Produce one message.
import { useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, post } from "../api";
import { Dialog, type FormState, say } from "../dialogs";
import { integer } from "../format";
import { Failure, type FieldEvent, Notice, useId } from "../parts";

/** "name: value" a line. */
function headersOf(text: string): Record<string, string> {
  return Object.fromEntries(
    text
      .split("\n")
      .filter((line) => line.trim())
      .map((line) => {
        const at = line.indexOf(":");
        if (at < 1) throw new Error(`The header line “${line}” has no name; use name: value.`);
        return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      }),
  );
}

const looksLikeJson = (text: string) => /^\s*[[{]/.test(text);
function jsonFault(text: string): string | null {
  if (!looksLikeJson(text)) return null;
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return errorOf(error).message;
  }
}

/** What the form begins with. */
export interface Draft {
  key: string;
  value: string;
  headers: string;
  nothing: boolean;
}

const EMPTY: Draft = { key: "", value: "", headers: "", nothing: false };

interface ProduceProps {
  topic: string;
  /** How many partitions the topic has, if that is known. */
  partitions?: number;
  /** A message to produce again, here or to another topic. */
  draft?: Draft;
  onClose: () => void;
  onDone: () => void;
}

export const Produce = ({ topic, partitions, draft, onClose, onDone }: ProduceProps) => {
  const [form, setForm] = useState({ ...(draft ?? EMPTY), target: topic, partition: "" });
  const [state, setState] = useState<FormState>({ busy: false, error: null });
  const ids = [useId(), useId(), useId(), useId(), useId()];
  const set = (name: "key" | "value" | "headers" | "partition" | "target") => (event: FieldEvent) =>
    setForm({ ...form, [name]: event.currentTarget.value });
  const fault = jsonFault(form.value);
  const send = async (again: boolean) => {
    setState({ busy: true, error: null });
    try {
      const body: Schemas["NewMessage"] = {
        key: form.key === "" ? null : form.key,
        value: form.nothing ? null : form.value,
        headers: headersOf(form.headers),
      };
      if (form.partition !== "") body.partition = Number(form.partition);
      const stored = await post(apiPath("/topics/{name}/messages", { name: form.target.trim() }), body);
      say(`Stored at offset ${integer(stored.offset)} of partition ${stored.partition}.`);
      onDone();
      if (again) setState({ busy: false, error: null });
      else onClose();
    } catch (error) {
      setState({ busy: false, error: errorOf(error) });
    }
  };
  return (
    <Dialog
      title={draft ? "Produce this message again" : `Produce to ${topic}`}
      onClose={onClose}
      onSubmit={() => send(false)}
      wide
      foot={
        <>
          <button type="button" class="button" onClick={onClose}>
            Cancel
          </button>
          <button type="button" class="button" disabled={state.busy} onClick={() => send(true)}>
            Produce and keep open
          </button>
          <button type="submit" class="button primary" disabled={state.busy}>
            Produce
          </button>
        </>
      }
    >
      {draft && (
        <div class="field">
          <label for={ids[4]}>Topic</label>
          <input
            id={ids[4]}
            class="input mono"
            autocomplete="off"
            spellcheck={false}
            value={form.target}
            onInput={set("target")}
          />
          <span class="hint">The same topic, or another to copy the message to.</span>
        </div>
      )}
      <div class="pair">
        <div class="field">
          <label for={ids[0]}>Key</label>
          <input
            id={ids[0]}
            class="input mono"
            autocomplete="off"
            spellcheck={false}
            placeholder="none"
            value={form.key}
            onInput={set("key")}
          />
        </div>
        <div class="field">
          <label for={ids[1]}>Partition</label>
          <input
            id={ids[1]}
            class="input"
            type="number"
            min="0"
            max={partitions === undefined || draft ? undefined : partitions - 1}
            placeholder="by key hash"
            value={form.partition}
            onInput={set("partition")}
          />
        </div>
      </div>
      <div class="field">
        <label for={ids[2]}>Value</label>
        <textarea
          id={ids[2]}
          class="textarea tall"
          data-first
          spellcheck={false}
          disabled={form.nothing}
          value={form.value}
          onInput={set("value")}
        />
        <label class="check">
          <input
            type="checkbox"
            checked={form.nothing}
            onChange={(event) => setForm({ ...form, nothing: event.currentTarget.checked })}
          />
          Null value (tombstone): deletes the key in a compacted topic
        </label>
      </div>
      {fault && <Notice tone="warn">This is not valid JSON: {fault}. It can be produced all the same.</Notice>}
      <div class="field">
        <label for={ids[3]}>Headers</label>
        <textarea
          id={ids[3]}
          class="textarea"
          spellcheck={false}
          placeholder="name: value"
          value={form.headers}
          onInput={set("headers")}
        />
        <span class="hint">One per line.</span>
      </div>
      <Failure error={state.error} />
    </Dialog>
  );
};
