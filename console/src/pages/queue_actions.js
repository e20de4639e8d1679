// What is done to a queue: consumers registered and let go of, automatic trimming set.
import { html, useState } from "../preact.js";
import { apiPath, put, remove } from "../api.js";
import { Confirm, Dialog, say } from "../dialogs.js";
import { Failure, Field, useId } from "../parts.js";

const registrationOf = (queue, consumer) => apiPath("queues", queue.name, "registrations", consumer);

/** A dialog that sends what its form holds; a failure is shown in it, and it stays. */
const Form = ({ title, verb, send, onClose, children }) => {
  const [state, setState] = useState({ busy: false, error: null });
  const go = async () => {
    setState({ busy: true, error: null });
    try {
      await send();
      onClose();
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`<${Dialog}
    title=${title}
    onClose=${onClose}
    onSubmit=${go}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button type="submit" class="button primary" disabled=${state.busy}>${verb}</button>`}
    >${children}<${Failure} error=${state.error} />
  <//>`;
};

export const Register = ({ queue, onClose, onDone }) => {
  const [consumer, setConsumer] = useState("");
  const [vital, setVital] = useState(true);
  const id = useId();
  const send = async () => {
    if (!consumer.trim()) throw new Error("Name the consumer: a group, stream:NAME, or the path of a consumer of YT.");
    await put(registrationOf(queue, consumer.trim()), { vital });
    say(`${consumer.trim()} is registered at ${queue.name}.`);
    onDone();
  };
  return html`<${Form} title=${`Register a consumer at ${queue.name}`} verb="Register" send=${send} onClose=${onClose}>
    <${Field} id=${id} label="Consumer" hint="A group of Kafka's clients, stream:NAME for a durable name of streams, //path for one of YT"
      ><input
        id=${id}
        class="input mono"
        data-first
        autocomplete="off"
        spellcheck=${false}
        value=${consumer}
        onInput=${(event) => setConsumer(event.target.value)}
    /><//>
    <label class="check"
      ><input type="checkbox" checked=${vital} onChange=${(event) => setVital(event.target.checked)} />Vital: neither trimming
      nor retention takes what it has not read</label
    >
  <//>`;
};

export const Unregister = ({ queue, registration, onClose, onDone }) =>
  html`<${Confirm}
    title="End the registration"
    verb="End it"
    onClose=${onClose}
    touches=${html`<p>
      <b>${queue.name}</b> will not wait for <b>${registration.consumer}</b> any more${
        registration.vital ? ": what it has not read may be trimmed or expire. " : ". "
      }Its positions stay.
    </p>`}
    act=${async () => {
      await remove(registrationOf(queue, registration.consumer));
      say(`${registration.consumer} is not registered at ${queue.name} any more.`);
      onDone();
    }}
  />`;

const wholeOrNull = (text, factor = 1) => (text === "" ? null : Number(text) * factor);

export const SetTrimming = ({ queue, onClose, onDone }) => {
  const { trim } = queue;
  const [enable, setEnable] = useState(trim.enable);
  const [rows, setRows] = useState(trim.retained_rows ?? "");
  const [seconds, setSeconds] = useState(trim.retained_lifetime_ms === null ? "" : trim.retained_lifetime_ms / 1000);
  const ids = [useId(), useId()];
  const send = async () => {
    await put(apiPath("queues", queue.name, "trimming"), {
      enable,
      retained_rows: wholeOrNull(rows),
      retained_lifetime_ms: wholeOrNull(seconds, 1000),
    });
    say(`Automatic trimming of ${queue.name} is ${enable ? "on" : "off"}.`);
    onDone();
  };
  const number = (id, label, value, set) => html`<${Field} id=${id} label=${label}
    ><input id=${id} class="input" type="number" min="0" step="1" placeholder="none" value=${value} onInput=${(event) => set(event.target.value)}
  /><//>`;
  return html`<${Form} title=${`Trimming of ${queue.name}`} verb="Set" send=${send} onClose=${onClose}>
    <label class="check"
      ><input type="checkbox" data-first checked=${enable} onChange=${(event) => setEnable(event.target.checked)} />Let go of what
      all vital consumers have read</label
    >
    <div class="pair">
      ${number(ids[0], "Rows always kept", rows, setRows)} ${number(ids[1], "Seconds always kept", seconds, setSeconds)}
    </div>
  <//>`;
};
