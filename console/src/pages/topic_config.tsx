// The configuration of a topic: every setting with a control of its type, edited together and reviewed before it is applied.
import { useEffect, useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, patch } from "../api";
import { FormDialog, say } from "../dialogs";
import { integer, plural } from "../format";
import { useLive } from "../live";
import { Badge, Bone, Card, Command, Empty, Failure, type FieldEvent, Notice, Search, Segments, useId } from "../parts";
import { type Place, setQuery } from "../router";
import { useRights } from "../rights";
import { useCluster } from "../shell";
import { command, quoted } from "../snippets";
import { NO_EFFECT, type Setting, effectOf, inSections, readText, shownText, textOf } from "./config_values";

/** What was typed for a setting; null resets it to its default. */
type Draft = Readonly<Record<string, string | null>>;

interface Change {
  setting: Setting;
  /** As the node stores it; null for a reset, undefined while what is typed cannot be stored. */
  value: string | null | undefined;
}

/** The settings of a draft that would change. */
function changesOf(settings: Setting[], draft: Draft): Change[] {
  const found: Change[] = [];
  for (const setting of settings) {
    const typed = draft[setting.name];
    if (typed === undefined) continue;
    if (typed === null) {
      if (setting.source === "topic") found.push({ setting, value: null });
      continue;
    }
    const { value } = readText(setting, typed);
    if (value !== setting.value) found.push({ setting, value: value ?? undefined });
  }
  return found;
}

interface ControlProps {
  setting: Setting;
  text: string;
  id: string;
  invalid: boolean;
  disabled: boolean;
  onType: (text: string) => void;
}

const SUGGESTED: Partial<Record<Setting["form"], string[]>> = {
  duration: ["1h", "1d", "3d", "7d", "30d"],
  size: ["1 MiB", "64 MiB", "1 GiB", "10 GiB", "100 GiB"],
};

const Control = ({ setting, text, id, invalid, disabled, onType }: ControlProps) => {
  const typed = (event: FieldEvent) => onType(event.currentTarget.value);
  const { form, choices, name } = setting;
  if (form === "boolean")
    return (
      <Segments
        label={name}
        value={text}
        onChoose={onType}
        disabled={disabled}
        options={[
          ["true", "true"],
          ["false", "false"],
        ]}
      />
    );
  if (form === "choice")
    return (
      <select id={id} class="select" value={text} disabled={disabled} onChange={typed}>
        {choices.map((word) => (
          <option key={word} value={word}>
            {shownText(setting, word)}
          </option>
        ))}
      </select>
    );
  if (form === "choices") {
    const chosen = text.split(",").filter(Boolean);
    const turn = (word: string) =>
      onType(choices.filter((other) => (other === word ? !chosen.includes(other) : chosen.includes(other))).join(","));
    return (
      <span class="row" role="group" aria-label={name}>
        {choices.map((word) => (
          <label class="check" key={word}>
            <input type="checkbox" checked={chosen.includes(word)} disabled={disabled} onChange={() => turn(word)} />
            {word}
          </label>
        ))}
      </span>
    );
  }
  const suggested = [...(SUGGESTED[form] ?? []), ...(setting.unlimited === null ? [] : ["unlimited"])];
  return (
    <>
      <input
        id={id}
        class="input mono"
        autocomplete="off"
        spellcheck={false}
        value={text}
        disabled={disabled}
        aria-invalid={invalid}
        aria-describedby={`${id}-note`}
        list={suggested.length ? `${id}-list` : undefined}
        placeholder={form === "list" ? "comma-separated" : undefined}
        onInput={typed}
      />
      {suggested.length > 0 && (
        <datalist id={`${id}-list`}>
          {suggested.map((value) => (
            <option key={value} value={value} />
          ))}
        </datalist>
      )}
    </>
  );
};

const SOURCES: Record<Setting["source"], [text: string, title: string]> = {
  topic: ["set here", "Set for this topic"],
  broker: ["broker", "Set for all topics of the broker"],
  default: ["default", "Not set: the built-in default"],
};

interface RowProps {
  setting: Setting;
  typed: string | null | undefined;
  disabled: boolean;
  onType: (text: string | null | undefined) => void;
}

/** One setting: what it is for, its control, and where its value comes from. */
const Row = ({ setting, typed, disabled, onType }: RowProps) => {
  const id = useId();
  const text = typed === undefined ? textOf(setting, setting.value) : typed === null ? textOf(setting, setting.default) : typed;
  const { value, problem } = readText(setting, text);
  const isChanged = typed === null ? setting.source === "topic" : typed !== undefined && value !== setting.value;
  // A number is shown as the node keeps it, beside what was typed in units.
  const unit = setting.form === "duration" ? "ms" : setting.form === "size" ? "bytes" : null;
  const hasUnits = unit !== null && value !== null && value !== setting.unlimited && !text.startsWith(value);
  const [source, about] = SOURCES[setting.source];
  const isLabelled = setting.form !== "boolean" && setting.form !== "choices";
  return (
    <div class={`setting ${isChanged ? "changed" : ""}`}>
      <div class="setting-name">
        {isLabelled ? (
          <label class="mono" for={id}>
            {setting.name}
          </label>
        ) : (
          <span class="mono">{setting.name}</span>
        )}
        <p class="small muted">{setting.doc}</p>
      </div>
      <div class="setting-value">
        <Control
          setting={setting}
          text={text}
          id={id}
          invalid={problem !== null}
          disabled={disabled}
          onType={(next) => onType(next)}
        />
        <span id={`${id}-note`} class={`small ${problem ? "bad-text" : "muted"}`}>
          {problem ?? (hasUnits ? `${integer(Number(value))} ${unit}` : "")}
        </span>
      </div>
      <div class="setting-source">
        {isChanged ? (
          <Badge plain tone="warn">
            {typed === null ? "reset" : "changed"}
          </Badge>
        ) : (
          <Badge plain tone={setting.source === "topic" ? "accent" : ""} title={about}>
            {source}
          </Badge>
        )}
        {setting.default !== setting.value && (
          <span class="small muted">
            default <code>{shownText(setting, setting.default)}</code>
          </span>
        )}
        {isChanged ? (
          <button type="button" class="button small" aria-label={`Undo the change of ${setting.name}`} onClick={() => onType(undefined)}>
            Undo
          </button>
        ) : (
          setting.source === "topic" &&
          !disabled && (
            <button type="button" class="button small" aria-label={`Reset ${setting.name} to its default`} onClick={() => onType(null)}>
              Reset
            </button>
          )
        )}
      </div>
    </div>
  );
};

interface ReviewProps {
  topic: string;
  changes: Change[];
  onClose: () => void;
  onApplied: () => void;
}

/** What would change, checked by the node before it may be applied. */
const Review = ({ topic, changes, onClose, onApplied }: ReviewProps) => {
  const cluster = useCluster();
  const [checked, setChecked] = useState<{ done: boolean; error: Error | null }>({ done: false, error: null });
  const address = apiPath("/topics/{name}/config", { name: topic });
  const change: Schemas["ConfigChange"] = {
    set: Object.fromEntries(changes.flatMap(({ setting, value }) => (typeof value === "string" ? [[setting.name, value]] : []))),
    unset: changes.filter(({ value }) => value === null).map(({ setting }) => setting.name),
  };
  useEffect(() => {
    patch(address, { ...change, validate_only: true }).then(
      () => setChecked({ done: true, error: null }),
      (failure: unknown) => setChecked({ done: true, error: errorOf(failure) }),
    );
  }, []);
  const apply = async () => {
    await patch(address, change);
    say(`${plural(changes.length, "setting")} of ${topic} changed.`);
    onApplied();
  };
  const options = [
    ...Object.entries(change.set ?? {}).map(([name, value]) => ` --set ${quoted(`${name}=${value}`)}`),
    ...(change.unset ?? []).map((name) => ` --unset ${name}`),
  ];
  return (
    <FormDialog
      title={`Change ${plural(changes.length, "setting")} of ${topic}?`}
      verb="Apply"
      wide
      cancelFirst
      ready={checked.done && !checked.error}
      send={apply}
      onClose={onClose}
    >
      <ul class="changes">
        {changes.map(({ setting, value }) => {
          const next = value ?? setting.default;
          const effect = effectOf(setting, next);
          return (
            <li key={setting.name}>
              <code>{setting.name}</code>
              <span class="row">
                <del>{shownText(setting, setting.value)}</del>
                <span class="spoken">becomes</span>
                <span aria-hidden="true">→</span>
                <ins>{shownText(setting, next)}</ins>
                {value === null && <span class="small muted">its default</span>}
              </span>
              {effect && <span class="small warn-text">{effect}</span>}
            </li>
          );
        })}
      </ul>
      <p class="muted">All of it is applied at once, takes effect without a restart, and is kept. The same as a command:</p>
      <Command text={command(cluster, `penstock topic alter ${quoted(topic)}${options.join("")}`)} label="The same as a command" />
      <Failure error={checked.error} />
    </FormDialog>
  );
};

interface ConfigurationProps {
  name: string;
  topic: Schemas["TopicView"];
  query: Place["query"];
}

export const Configuration = ({ name, topic, query }: ConfigurationProps) => {
  const { data, error, refresh } = useLive(apiPath("/topics/{name}/config", { name }), {}, { every: 5000 });
  const [draft, setDraft] = useState<Draft>({});
  const [reviewing, setReviewing] = useState(false);
  const refused = useRights("topic", name)("ALTER_CONFIGS");
  const isFixed = topic.is_internal || Boolean(refused);
  const settings = data?.items ?? [];
  const changes = changesOf(settings, draft);
  const invalid = changes.filter(({ value }) => value === undefined).length;
  const search = (query.search ?? "").toLowerCase();
  const only = query.only === "set";
  const shown = settings.filter(
    (setting) => `${setting.name} ${setting.doc}`.toLowerCase().includes(search) && (!only || setting.source === "topic" || setting.name in draft),
  );
  const type = (key: string, text: string | null | undefined) => {
    const { [key]: _, ...others } = draft;
    setDraft(text === undefined ? others : { ...others, [key]: text });
  };
  useEffect(() => {
    if (!changes.length) return undefined;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [changes.length > 0]);
  return (
    <div class="stack">
      <div class="row">
        <Search label="Search settings" value={query.search} onChange={(text) => setQuery({ search: text || null })} />
        <label class="check">
          <input
            type="checkbox"
            checked={only}
            onChange={(event) => setQuery({ only: event.currentTarget.checked ? "set" : null }, { replace: false })}
          />
          Only those set for this topic
        </label>
      </div>
      {topic.is_internal ? <Notice>An internal topic: its settings cannot be changed.</Notice> : refused && <Notice>{refused}.</Notice>}
      <Failure error={error} again={refresh} what="The configuration" />
      {data === null ? (
        <Card label="Configuration">
          <Bone width="60%" />
        </Card>
      ) : shown.length ? (
        inSections(shown).map(([title, inside]) => {
          const rows = inside.map((setting) => (
            <Row
              key={setting.name}
              setting={setting}
              typed={draft[setting.name]}
              disabled={isFixed}
              onType={(text) => type(setting.name, text)}
            />
          ));
          return title === NO_EFFECT && !search && !only ? (
            <details class="card" key={title}>
              <summary class="card-head">
                <h2>{title}</h2>
                <span class="small muted">{plural(inside.length, "setting")}</span>
              </summary>
              {rows}
            </details>
          ) : (
            <Card key={title} title={title} bare>
              {rows}
            </Card>
          );
        })
      ) : (
        <Card label="Configuration">
          <Empty title={only && !search ? "Nothing is set for this topic" : "No matching settings"}>
            {only && !search ? "All values are defaults." : "Change the search."}
          </Empty>
        </Card>
      )}
      {changes.length > 0 && (
        <div class="save-bar" role="region" aria-label="Unsaved changes">
          <strong>{plural(changes.length, "unsaved change")}</strong>
          {invalid > 0 && <span class="small bad-text">{invalid === 1 ? "one value is invalid" : `${invalid} values are invalid`}</span>}
          <span class="push row">
            <button type="button" class="button" onClick={() => setDraft({})}>
              Discard
            </button>
            <button type="button" class="button primary" disabled={invalid > 0} onClick={() => setReviewing(true)}>
              Review changes
            </button>
          </span>
        </div>
      )}
      {reviewing && (
        <Review
          topic={name}
          changes={changes}
          onClose={() => setReviewing(false)}
          onApplied={() => {
            setDraft({});
            refresh();
          }}
        />
      )}
    </div>
  );
};
