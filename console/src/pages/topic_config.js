// The configuration of a topic: every key with what it is for, changed in place.
import { html, useState } from "../preact.js";
import { apiPath, patch } from "../api.js";
import { Dialog, say } from "../dialogs.js";
import { bytes, duration } from "../format.js";
import { useLive } from "../live.js";
import { Badge, Bone, Card, Empty, Failure, Search, useId } from "../parts.js";
import { setQuery } from "../router.js";
import { Table } from "../tables.js";

/** What a number stands for, if that is not plain to see. */
const meant = (name, value) => {
  const number = Number(value);
  if (!value || !Number.isFinite(number) || Math.abs(number) < 1000 || number > 1e17) return null;
  return /\.ms$/.test(name) ? duration(number) : /bytes$/.test(name) ? bytes(number) : null;
};
const hasNoEffect = (entry) => entry.doc.startsWith("as in Kafka");
/** Those that were changed first, those that do nothing here last. */
const rank = (entry) => (entry.is_default ? (hasNoEffect(entry) ? 2 : 1) : 0);

const Edit = ({ topic, entry, onClose, refresh }) => {
  const [value, setValue] = useState(entry.value ?? "");
  const [error, setError] = useState(null);
  const id = useId();
  const send = async (change, told) => {
    try {
      await patch(apiPath("topics", topic, "config"), change);
      say(told);
      refresh();
      onClose();
    } catch (failure) {
      setError(failure);
    }
  };
  const set = () => send({ set: { [entry.name]: value }, unset: [] }, `${entry.name} of ${topic} is ${value} now.`);
  const reset = () => send({ set: {}, unset: [entry.name] }, `${entry.name} of ${topic} has its default again.`);
  return html`<${Dialog}
    title=${`Change ${entry.name} of ${topic}`}
    onClose=${onClose}
    onSubmit=${set}
    foot=${html` ${!entry.is_default && html`<button type="button" class="button" onClick=${reset}>Back to the default</button>`}
      <button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button type="submit" class="button primary" disabled=${value === entry.value}>Change it</button>`}
  >
    ${entry.doc && html`<p class="muted">${entry.doc}</p>`}
    <div class="field">
      <label for=${id}>Value</label
      ><input
        id=${id}
        class="input mono"
        data-first
        autocomplete="off"
        spellcheck=${false}
        value=${value}
        onInput=${(event) => setValue(event.target.value)}
      />
      <span class="hint"
        >The default is <code>${String(entry.default ?? "none")}</code>. A change is in force at once and outlasts restarts.</span
      >
    </div>
    <${Failure} error=${error} />
  <//>`;
};

export const Configuration = ({ name, topic, query }) => {
  const { data, error, refresh } = useLive(apiPath("topics", name, "config"), {}, { every: 5000 });
  const [editing, setEditing] = useState(null);
  const search = (query.search ?? "").toLowerCase();
  const shown = (data?.items ?? [])
    .filter((entry) => `${entry.name} ${entry.doc ?? ""}`.toLowerCase().includes(search))
    .sort((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1));
  const columns = [
    {
      key: "name",
      title: "Key",
      width: "52%",
      show: (entry) =>
        html`<div class="mono">${entry.name}</div>
          ${entry.doc && html`<div class="small muted">${entry.doc}</div>`}`,
    },
    {
      key: "value",
      title: "Value",
      show: (entry) =>
        html`<code class="wrap">${entry.value === "" ? "–" : entry.value}</code
          >${meant(entry.name, entry.value) && html` <span class="small muted nowrap">${meant(entry.name, entry.value)}</span>`}${!entry.is_default && html` <${Badge} plain tone="accent">changed<//>`}`,
    },
    {
      key: "default",
      title: "Default",
      wide: true,
      show: (entry) => html`<code class="muted">${entry.default === "" ? "–" : entry.default}</code>`,
    },
    {
      key: "edit",
      title: "",
      end: true,
      show: (entry) =>
        !topic.is_internal &&
        html`<button type="button" class="button small" aria-label=${`Change ${entry.name}`} onClick=${() => setEditing(entry)}>
          Change
        </button>`,
    },
  ];
  return html`<div class="stack">
    <div class="row">
      <${Search} label="Search keys" value=${query.search} onChange=${(text) => setQuery({ search: text || null })} />
    </div>
    <${Failure} error=${error} again=${refresh} what="The configuration" />
    <${Card} bare label="Configuration"
      >${
        data === null
          ? html`<div class="card-body"><${Bone} width="60%" /></div>`
          : shown.length
            ? html`<${Table}
                label=${`Configuration of ${name}`}
                tall
                columns=${columns}
                rows=${shown}
                keyOf=${(entry) => entry.name}
              />`
            : html`<${Empty} title="No key has this in it">Search for less.<//>`
      }<//
    >
    ${editing && html`<${Edit} topic=${name} entry=${editing} onClose=${() => setEditing(null)} refresh=${refresh} />`}
  </div>`;
};
