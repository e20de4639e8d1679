// Actions on several topics at once: each topic is a request of its own, so that one that fails does not stop the others.
import { useRef, useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, patch, post, remove } from "../api";
import { Dialog } from "../dialogs";
import { bytes, plural } from "../format";
import { forget, useLive } from "../live";
import { Field, Notice, State, useId } from "../parts";
import { type Setting, effectOf, readText, shownText, textOf } from "./config_values";

type Topic = Schemas["TopicView"];
export type BulkAction = "delete" | "purge" | "set";

const AT_ONCE = 4;
const LISTED = 8;

/** How far the work on one topic is; the text of an error if it failed. */
type Progress = "waiting" | "working" | "done" | { error: string };

/** Runs a piece of work for each topic, a few at a time, and tells how far it is. */
function useWork(topics: Topic[], work: (topic: Topic) => Promise<unknown>) {
  const [progress, setProgress] = useState<Record<string, Progress> | null>(null);
  const states = useRef<Record<string, Progress>>({});
  const note = (name: string, state: Progress) => {
    states.current = { ...states.current, [name]: state };
    setProgress(states.current);
  };
  const start = async () => {
    const left = [...topics];
    for (const { name } of topics) note(name, "waiting");
    const worker = async () => {
      for (let topic = left.shift(); topic; topic = left.shift()) {
        note(topic.name, "working");
        try {
          await work(topic);
          note(topic.name, "done");
        } catch (failure) {
          note(topic.name, { error: errorOf(failure).message });
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    forget("/topics");
  };
  return { progress, start };
}

const sum = (topics: Topic[], key: "partitions" | "messages" | "bytes") => topics.reduce((total, topic) => total + topic[key], 0);

/** What will happen, with names and figures. */
const Touches = ({ action, topics }: { action: BulkAction; topics: Topic[] }) => {
  const names = topics.slice(0, LISTED).map(({ name }) => name);
  const what = (
    <>
      <strong>{plural(sum(topics, "messages"), "message")}</strong> ({bytes(sum(topics, "bytes"))})
    </>
  );
  return (
    <>
      <p>
        {action === "delete" && (
          <>
            This deletes <strong>{plural(topics.length, "topic")}</strong> with {plural(sum(topics, "partitions"), "partition")} and {what},
            and the committed offsets in them. This cannot be undone.
          </>
        )}
        {action === "purge" && (
          <>
            This deletes {what} of <strong>{plural(topics.length, "topic")}</strong>. Offsets continue; topics, settings and consumer groups
            stay. This cannot be undone.
          </>
        )}
        {action === "set" && (
          <>
            This changes one setting of <strong>{plural(topics.length, "topic")}</strong>, at once and without a restart.
          </>
        )}
      </p>
      <p class="wrap">
        <span class="mono small">{names.join(", ")}</span>
        {topics.length > LISTED && ` and ${topics.length - LISTED} more`}
      </p>
    </>
  );
};

interface SettingChoiceProps {
  /** The topic whose settings are offered: all topics have the same ones. */
  topic: string;
  chosen: string;
  text: string;
  onChange: (setting: Setting | undefined, name: string, text: string) => void;
}

const SettingChoice = ({ topic, chosen, text, onChange }: SettingChoiceProps) => {
  const { data } = useLive(apiPath("/topics/{name}/config", { name: topic }), {}, { every: 0 });
  const [nameId, valueId] = [useId(), useId()];
  const settings = (data?.items ?? []).filter(({ has_effect }) => has_effect);
  const setting = settings.find(({ name }) => name === chosen);
  const reading = setting && readText(setting, text);
  const words = setting?.form === "boolean" || setting?.form === "choice" ? setting.choices : null;
  return (
    <>
      <Field id={nameId} label="Setting" hint={setting?.doc}>
        <select
          id={nameId}
          class="select mono"
          data-first
          value={chosen}
          onChange={(event) => {
            const next = settings.find(({ name }) => name === event.currentTarget.value);
            onChange(next, event.currentTarget.value, next ? textOf(next, next.value) : "");
          }}
        >
          <option value="">Choose…</option>
          {settings.map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </Field>
      {setting && (
        <Field id={valueId} label="Value" hint={reading?.problem ?? effectOf({ ...setting, value: "-1" }, reading?.value ?? "") ?? undefined}>
          {words ? (
            <select id={valueId} class="select" value={text} onChange={(event) => onChange(setting, chosen, event.currentTarget.value)}>
              {words.map((word) => (
                <option key={word} value={word}>
                  {shownText(setting, word)}
                </option>
              ))}
            </select>
          ) : (
            <input
              id={valueId}
              class="input mono"
              autocomplete="off"
              spellcheck={false}
              value={text}
              aria-invalid={Boolean(reading?.problem)}
              onInput={(event) => onChange(setting, chosen, event.currentTarget.value)}
            />
          )}
        </Field>
      )}
    </>
  );
};

const WORDS: Record<BulkAction, [title: string, verb: string]> = {
  delete: ["Delete", "Delete"],
  purge: ["Delete all messages of", "Delete messages"],
  set: ["Change a setting of", "Apply"],
};

interface BulkDialogProps {
  action: BulkAction;
  topics: Topic[];
  /** Called with the names of those that failed, which stay selected. */
  onClose: (failed: string[] | null) => void;
}

/** Asks first, then shows how far it is, and what failed. */
export const BulkDialog = ({ action, topics, onClose }: BulkDialogProps) => {
  const [typed, setTyped] = useState("");
  const [change, setChange] = useState<{ setting?: Setting; name: string; text: string }>({ name: "", text: "" });
  const confirmId = useId();
  const value = change.setting ? readText(change.setting, change.text).value : null;
  const { progress, start } = useWork(topics, ({ name }) => {
    if (action === "delete") return remove(apiPath("/topics/{name}", { name }));
    if (action === "purge") return post(apiPath("/topics/{name}/purge", { name }));
    return patch(apiPath("/topics/{name}/config", { name }), { set: { [change.name]: value ?? "" } });
  });
  const [title, verb] = WORDS[action];
  const phrase = `${action === "delete" ? "delete" : "purge"} ${topics.length}`;
  const ready = action === "set" ? value !== null : typed === phrase;
  const states = Object.entries(progress ?? {});
  const failed = states.flatMap(([name, state]) => (typeof state === "object" ? [[name, state.error] as const] : []));
  const done = states.filter(([, state]) => state === "done").length;
  const isOver = progress !== null && done + failed.length === topics.length;
  const close = () => onClose(isOver ? failed.map(([name]) => name) : null);
  return (
    <Dialog
      title={`${title} ${plural(topics.length, "topic")}`}
      wide
      onClose={() => (progress === null || isOver ? close() : undefined)}
      onSubmit={() => (isOver ? close() : progress === null && ready ? void start() : undefined)}
      foot={
        isOver ? (
          <button type="submit" class="button primary">
            Close
          </button>
        ) : (
          <>
            <button type="button" class="button" disabled={progress !== null} onClick={close}>
              Cancel
            </button>
            <button type="submit" class={`button primary ${action === "set" ? "" : "danger"}`} disabled={!ready || progress !== null}>
              {progress ? "Working…" : verb}
            </button>
          </>
        )
      }
    >
      {progress === null ? (
        <>
          <Touches action={action} topics={topics} />
          {action === "set" && topics[0] && (
            <SettingChoice
              topic={topics[0].name}
              chosen={change.name}
              text={change.text}
              onChange={(setting, name, text) => setChange({ setting, name, text })}
            />
          )}
          {action !== "set" && (
            <div class="field">
              <label for={confirmId}>
                Type <code>{phrase}</code> to confirm
              </label>
              <input
                id={confirmId}
                class="input mono"
                data-first
                autocomplete="off"
                spellcheck={false}
                value={typed}
                onInput={(event) => setTyped(event.currentTarget.value)}
              />
            </div>
          )}
        </>
      ) : (
        <>
          <progress class="progress" max={topics.length} value={done + failed.length} aria-label="How far it is" />
          <p role="status">
            {done} of {plural(topics.length, "topic")} done{failed.length ? `, ${failed.length} failed` : ""}
          </p>
          {isOver && !failed.length && <Notice tone="good">All done.</Notice>}
          <ul class="work-list">
            {states
              .filter(([, state]) => typeof state === "object" || topics.length <= 50 || state === "working")
              .map(([name, state]) => (
                <li key={name}>
                  <span class="mono clip">{name}</span>
                  {typeof state === "object" ? <span class="bad-text small">{state.error}</span> : <State of={state} />}
                </li>
              ))}
          </ul>
        </>
      )}
    </Dialog>
  );
};
