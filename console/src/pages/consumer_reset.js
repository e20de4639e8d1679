// Move the positions of a consumer: first it is shown what will change, then it is done.
import { html, useEffect, useState } from "../preact.js";
import { apiPath, post } from "../api.js";
import { Dialog, say } from "../dialogs.js";
import { clockOf, count, dateOf, integer, plural } from "../format.js";
import { useSettled } from "../live.js";
import { Bone, Failure, Notice, useId } from "../parts.js";
import { Table } from "../tables.js";

const change = ({ before, after }) => (before === null || before === undefined ? null : after - before);
const COLUMNS = [
  { key: "partition", title: "Partition", show: (one) => one.partition },
  { key: "before", title: "Position now", end: true, show: (one) => integer(one.before) },
  { key: "after", title: "Will be", end: true, show: (one) => integer(one.after) },
  {
    key: "change",
    title: "Change",
    end: true,
    show: (one) => {
      const by = change(one);
      return by === null ? "new" : by === 0 ? "none" : by > 0 ? `${count(by)} skipped` : `${count(-by)} read again`;
    },
  },
];

const localNow = () => {
  const at = new Date(Date.now() - 3600e3);
  return `${dateOf(at)}T${clockOf(at)}`;
};

const Preview = ({ plan }) => {
  const changes = plan.map(change).filter((by) => by !== null);
  const again = -changes.filter((by) => by < 0).reduce((sum, by) => sum + by, 0);
  const skipped = changes.filter((by) => by > 0).reduce((sum, by) => sum + by, 0);
  return html`<div class="stack" role="status">
    <p>
      ${again || skipped ? html`${again > 0 && html`<strong>${plural(again, "message")}</strong> will be read again. `}${skipped > 0 && html`<strong>${plural(skipped, "message")}</strong> will never be read by it.`}` : "Nothing changes for positions that are there."}
    </p>
    <div class="card plan">
      <${Table} label="What will change" columns=${COLUMNS} rows=${plan} keyOf=${(one) => one.partition} />
    </div>
  </div>`;
};

export const Reset = ({ consumer, topics, onClose, onDone }) => {
  const [form, setForm] = useState({ topic: topics[0], to: "earliest", offset: "0", time: localNow() });
  const [plan, setPlan] = useState({ key: null, rows: null, error: null });
  const [failure, setFailure] = useState(null);
  const ids = [useId(), useId(), useId()];
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const body = { topic: form.topic, to: form.to };
  if (form.to === "offset") body.value = Math.max(0, Math.trunc(Number(form.offset) || 0));
  if (form.to === "time") body.value = new Date(form.time).getTime() || 0;
  const key = useSettled(JSON.stringify(body), 250);
  useEffect(() => {
    let wanted = true;
    post(apiPath("consumers", consumer, "reset"), { ...JSON.parse(key), dry_run: true }).then(
      (answer) => wanted && setPlan({ key, rows: answer.items, error: null }),
      (error) => wanted && setPlan({ key, rows: null, error }),
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  const go = async () => {
    try {
      await post(apiPath("consumers", consumer, "reset"), { ...body, dry_run: false });
      say(`${consumer} was moved in ${form.topic}.`);
      onDone();
      onClose();
    } catch (error) {
      setFailure(error);
    }
  };
  const isFresh = plan.key === JSON.stringify(body) && plan.rows;
  return html`<${Dialog}
    title=${`Move ${consumer}`}
    wide
    onClose=${onClose}
    onSubmit=${go}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button type="submit" class="button primary danger" disabled=${!isFresh || plan.rows.length === 0}>
        ${isFresh ? `Move ${plural(plan.rows.length, "position")}` : "Move"}
      </button>`}
  >
    <div class="pair">
      <div class="field">
        <label for=${ids[0]}>Topic</label
        ><select id=${ids[0]} class="select" data-first value=${form.topic} onChange=${set("topic")}>
          ${topics.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select>
      </div>
      <div class="field">
        <label for=${ids[1]}>To</label
        ><select id=${ids[1]} class="select" value=${form.to} onChange=${set("to")}>
          <option value="earliest">the oldest message</option>
          <option value="latest">the end</option>
          <option value="offset">an offset</option>
          <option value="time">a time</option>
        </select>
      </div>
    </div>
    ${form.to === "offset" && html`<div class="field"><label for=${ids[2]}>Offset</label><input id=${ids[2]} class="input" type="number" min="0" value=${form.offset} onInput=${set("offset")} /></div>`}
    ${form.to === "time" && html`<div class="field"><label for=${ids[2]}>Time</label><input id=${ids[2]} class="input" type="datetime-local" step="1" value=${form.time} onInput=${set("time")} /></div>`}
    ${plan.error ? html`<${Failure} error=${plan.error} />` : plan.rows ? html`<${Preview} plan=${plan.rows} />` : html`<${Bone} width="100%" />`}
    ${!plan.error && html`<${Notice}>Nothing is changed before the button is pressed. Consumers that are running must be stopped first.<//>`}
    <${Failure} error=${failure} />
  <//>`;
};
