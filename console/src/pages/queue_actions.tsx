// What is done to a queue: consumers registered and unregistered, automatic trimming set.
import { useState } from "preact/hooks";
import { apiPath, put, remove } from "../api";
import { Confirm, FormDialog, say } from "../dialogs";
import { Field, useId } from "../parts";
import type { Queue, Registration } from "./queue_status";

const registrationOf = ({ name }: Queue, consumer: string) =>
  apiPath("/queues/{name}/registrations/{consumer}", { name, consumer });

interface DialogProps {
  queue: Queue;
  onClose: () => void;
  onDone: () => void;
}

export const Register = ({ queue, onClose, onDone }: DialogProps) => {
  const [consumer, setConsumer] = useState("");
  const [vital, setVital] = useState(true);
  const id = useId();
  const send = async () => {
    if (!consumer.trim()) throw new Error("Enter a consumer: a Kafka group, stream:NAME, or the path of a YT consumer.");
    await put(registrationOf(queue, consumer.trim()), { vital });
    say(`${consumer.trim()} is registered at ${queue.name}.`);
    onDone();
  };
  return (
    <FormDialog title={`Register a consumer at ${queue.name}`} verb="Register" send={send} onClose={onClose}>
      <Field
        id={id}
        label="Consumer"
        hint="A Kafka consumer group, stream:NAME for a durable consumer of streams, //path for a YT consumer"
      >
        <input
          id={id}
          class="input mono"
          data-first
          autocomplete="off"
          spellcheck={false}
          value={consumer}
          onInput={(event) => setConsumer(event.currentTarget.value)}
        />
      </Field>
      <label class="check">
        <input type="checkbox" checked={vital} onChange={(event) => setVital(event.currentTarget.checked)} />
        Vital: trimming and retention delete nothing it has not read
      </label>
    </FormDialog>
  );
};

export const Unregister = ({ queue, registration, onClose, onDone }: DialogProps & { registration: Registration }) => (
  <Confirm
    title="Unregister consumer"
    verb="Unregister"
    onClose={onClose}
    touches={
      <p>
        <b>{registration.consumer}</b> will no longer be registered at <b>{queue.name}</b>
        {registration.vital ? ": messages it has not read may be trimmed or expire. " : ". "}Its committed offsets are kept.
      </p>
    }
    act={async () => {
      await remove(registrationOf(queue, registration.consumer));
      say(`${registration.consumer} was unregistered from ${queue.name}.`);
      onDone();
    }}
  />
);

const wholeOrNull = (text: string, factor = 1) => (text === "" ? null : Number(text) * factor);

export const SetTrimming = ({ queue, onClose, onDone }: DialogProps) => {
  const { trim } = queue;
  const [enable, setEnable] = useState(trim.enable);
  const [rows, setRows] = useState(String(trim.retained_rows ?? ""));
  const [seconds, setSeconds] = useState(trim.retained_lifetime_ms === null ? "" : String(trim.retained_lifetime_ms / 1000));
  const [rowsId, secondsId] = [useId(), useId()];
  const send = async () => {
    await put(apiPath("/queues/{name}/trimming", { name: queue.name }), {
      enable,
      retained_rows: wholeOrNull(rows),
      retained_lifetime_ms: wholeOrNull(seconds, 1000),
    });
    say(`Automatic trimming of ${queue.name} is ${enable ? "on" : "off"}.`);
    onDone();
  };
  const number = (id: string, label: string, value: string, set: (text: string) => void) => (
    <Field id={id} label={label}>
      <input
        id={id}
        class="input"
        type="number"
        min="0"
        step="1"
        placeholder="none"
        value={value}
        onInput={(event) => set(event.currentTarget.value)}
      />
    </Field>
  );
  return (
    <FormDialog title={`Automatic trimming of ${queue.name}`} verb="Save" send={send} onClose={onClose}>
      <label class="check">
        <input type="checkbox" data-first checked={enable} onChange={(event) => setEnable(event.currentTarget.checked)} />
        Trim messages that all vital consumers have read
      </label>
      <div class="pair">
        {number(rowsId, "Rows to retain", rows, setRows)} {number(secondsId, "Seconds to retain", seconds, setSeconds)}
      </div>
    </FormDialog>
  );
};
