// A form that registers a schema, and first tries whether it is compatible with the versions there are.
import { useState } from "preact/hooks";
import { errorOf } from "../api";
import { FormDialog, say } from "../dialogs";
import { Failure, Field, Notice, useId } from "../parts";
import { type SchemaType, checkCompatibility, registerSchema } from "../registry";

interface SchemaFormProps {
  /** The subject, and the text to start from; without one, a subject is asked for. */
  subject?: string;
  text?: string;
  type?: SchemaType;
  references?: { name: string; subject: string; version: number }[];
  onClose: () => void;
  onDone: (subject: string) => void;
}

interface Trial {
  text: string;
  isCompatible: boolean;
  messages: string[];
}

export const SchemaForm = ({ subject: known, text: first = "", type: knownType, references = [], onClose, onDone }: SchemaFormProps) => {
  const [subject, setSubject] = useState(known ?? "");
  const [type, setType] = useState<SchemaType>(knownType ?? "AVRO");
  const [text, setText] = useState(first);
  const [trial, setTrial] = useState<Trial | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [subjectId, typeId, textId] = [useId(), useId(), useId()];
  const ready = Boolean(subject.trim() && text.trim());
  const tryOut = async () => {
    setError(null);
    setTrial(null);
    try {
      const verdict = await checkCompatibility(subject, text, type, references);
      setTrial({ text, isCompatible: verdict.is_compatible, messages: verdict.messages ?? [] });
    } catch (failure) {
      setError(errorOf(failure));
    }
  };
  const send = async () => {
    const { id } = await registerSchema(subject, text, type, references);
    say(`Registered with id ${id}.`);
    onDone(subject);
  };
  return (
    <FormDialog title={known ? `New version of ${known}` : "Register schema"} verb="Register" ready={ready} send={send} onClose={onClose}>
      {!known && (
        <>
          <Field id={subjectId} label="Subject" hint="TOPIC-value and TOPIC-key are those of a topic's messages">
            <input
              id={subjectId}
              class="input mono"
              data-first
              autocomplete="off"
              spellcheck={false}
              value={subject}
              onInput={(event) => setSubject(event.currentTarget.value)}
            />
          </Field>
          <Field id={typeId} label="Type">
            <select id={typeId} class="select" value={type} onChange={(event) => setType(event.currentTarget.value as SchemaType)}>
              <option value="AVRO">Avro</option>
              <option value="JSON">JSON Schema</option>
              <option value="PROTOBUF">Protobuf</option>
            </select>
          </Field>
        </>
      )}
      <Field id={textId} label="Schema">
        <textarea
          id={textId}
          class="input mono schema-text"
          rows={14}
          data-first={Boolean(known)}
          spellcheck={false}
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setTrial(null);
          }}
        />
      </Field>
      <div class="row">
        <button type="button" class="button" disabled={!ready} onClick={tryOut}>
          Check compatibility
        </button>
      </div>
      {trial && trial.text === text && (
        <Notice tone={trial.isCompatible ? "good" : "bad"} title={trial.isCompatible ? "Compatible" : "Not compatible"}>
          {trial.isCompatible ? (
            "It can be registered."
          ) : (
            <ul class="reasons">
              {trial.messages.map((message) => (
                <li key={message} class="wrap">
                  {message}
                </li>
              ))}
            </ul>
          )}
        </Notice>
      )}
      <Failure error={error} />
    </FormDialog>
  );
};
