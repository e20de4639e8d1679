// How keys and values of messages are decoded: by themselves, as one form, or by the schema of a subject.
import type { QueryOf } from "../api";
import { type FieldEvent, useId } from "../parts";
import { setQuery } from "../router";
import { useDraft } from "./message_filters";

export type Decoder = NonNullable<QueryOf<"/topics/{name}/messages">["decoder"]>;

export const DECODERS: [decoder: Decoder, text: string][] = [
  ["auto", "automatic"],
  ["json", "JSON"],
  ["text", "text"],
  ["hex", "hex"],
  ["msgpack", "MsgPack"],
  ["avro", "Avro…"],
  ["protobuf", "Protobuf…"],
  ["kafka-internal", "Kafka internal"],
];

/** How values are decoded; Avro and Protobuf by the schema of a subject. */
export const DecoderChoice = ({ decoder, schema }: { decoder: Decoder; schema: string }) => {
  const draft = useDraft(schema);
  const [id, schemaId] = [useId(), useId()];
  const choose = (event: FieldEvent) => {
    const chosen = event.currentTarget.value;
    setQuery({ decoder: chosen === "auto" ? null : chosen }, { replace: false });
  };
  return (
    <div class="field inline">
      <label for={id}>Decode as</label>
      <select id={id} class="select" value={decoder} onChange={choose}>
        {DECODERS.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
      {(decoder === "avro" || decoder === "protobuf") && (
        <>
          <label class="spoken" for={schemaId}>
            Subject of the schema
          </label>
          <input
            id={schemaId}
            class="input"
            placeholder="subject of the schema"
            spellcheck={false}
            value={draft.shown}
            onInput={draft.type}
            onChange={(event) => {
              draft.done();
              setQuery({ schema: event.currentTarget.value || null }, { replace: false });
            }}
          />
        </>
      )}
    </div>
  );
};
