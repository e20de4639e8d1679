// A list of messages; each expands to its details.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { API, type Schemas, apiPath, errorOf, get } from "../api";
import { Bytes, Moment, bytes, integer, zone } from "../format";
import { Icon } from "../icons";
import { Card, CopyButton, type Fact, Facts, Failure, Notice } from "../parts";
import { href, pathOf, setQuery } from "../router";
import { useRights } from "../rights";
import { useCluster } from "../shell";
import { messageCommand, messageProgram } from "../snippets";
import { Value, asText, fieldOf, parseExactly, preview } from "../values";

import { CompareButton, Comparison, isComparable } from "./message_compare";
import { type Draft, Produce } from "./produce";

type Message = Schemas["MessageView"];

/** How many messages before a linked one are shown with it. */
const AROUND = 10;

/** The message in the URL: "partition-offset". */
export const idOf = ({ partition, offset }: Message) => `${partition}-${offset}`;

const payloadOf = ({ payload }: Message): Fact[] =>
  payload
    ? [
        ["Payload", <code class="wrap">{payload.object_name}</code>],
        ["Payload size", payload.size < 0 ? "kept by the publisher" : <Bytes value={payload.size} />],
      ]
    : [];

/** The schema that some bytes were decoded with. */
const schemaOf = (octets: Message["value"]) =>
  octets.schema && (
    <a href={href(pathOf("schemas", octets.schema.subject), { version: octets.schema.version })}>
      {octets.schema.subject}, version {octets.schema.version} (id {octets.schema.id})
    </a>
  );

/** Decoded bytes as they are stored. */
const RawBytes = ({ topic, message }: { topic: string; message: Message }) => {
  const [raw, setRaw] = useState<Message | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const { partition, offset } = message;
  useEffect(() => {
    const control = new AbortController();
    const path = apiPath("/topics/{name}/messages/{partition}/{offset}", { name: topic, partition, offset });
    get(path, { decoder: "hex" }, { signal: control.signal }).then(
      setRaw,
      (failure: unknown) => !control.signal.aborted && setError(errorOf(failure)),
    );
    return () => control.abort();
  }, [topic, partition, offset]);
  return (
    <>
      <strong>Raw bytes</strong>
      <Failure error={error} />
      {raw && <Value of={raw.value} label={`Bytes at offset ${offset}`} />}
    </>
  );
};

/** The bytes that a message stands for: its payload, where that is outside the log. */
const sizeOf = ({ payload, size }: Message) => (payload && payload.size >= 0 ? payload.size : size);

const Headers = ({ headers }: Pick<Message, "headers">) =>
  headers.length === 0 ? (
    <p class="muted">No headers.</p>
  ) : (
    <table class="table compact">
      <caption class="spoken">Headers</caption>
      <thead>
        <tr>
          <th scope="col">Header</th>
          <th scope="col">Value</th>
        </tr>
      </thead>
      <tbody>
        {headers.map(({ name, value }, index) => (
          <tr key={index}>
            <td class="mono">{name}</td>
            <td class="mono wrap">{preview(value, 2000)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );

/** The message as the form for a new one has it. */
const draftOf = ({ key, value, headers }: Message): Omit<Draft, "value"> => ({
  key: key.kind === "json" ? preview(key, Infinity) : asText(key),
  headers: headers.map((header) => `${header.name}: ${asText(header.value)}`).join("\n"),
  nothing: value.kind === "null",
});

const MessageDetail = ({ topic, message }: { topic: string; message: Message }) => {
  const cluster = useCluster();
  const [whole, setWhole] = useState<Message | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const shown = whole ?? message;
  const { partition, offset } = message;
  const path = apiPath("/topics/{name}/messages/{partition}/{offset}", { name: topic, partition, offset });
  const showAll = async () => {
    try {
      setWhole(await get(path, {}, { parse: parseExactly }));
    } catch (failure) {
      setError(errorOf(failure));
    }
  };
  const [draft, setDraft] = useState<Draft | null>(null);
  const [compares, setCompares] = useState(false);
  const refused = useRights("topic")("WRITE");
  // The bytes as they are: what is shown of JSON may be spaced differently.
  const resend = async () => {
    try {
      const answer = await fetch(`${API}${path}/value`, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(`The value could not be read: ${answer.statusText}.`);
      setDraft({ ...draftOf(shown), value: await answer.text() });
    } catch (failure) {
      setError(errorOf(failure));
    }
  };
  const isDecoded = Boolean(shown.value.schema ?? shown.key.schema);
  const isText = !isDecoded && [shown.key, shown.value, ...shown.headers.map(({ value }) => value)].every(
    ({ kind, truncated }) => kind !== "hex" && !truncated,
  );
  const cut = shown.value.truncated || shown.key.truncated;
  return (
    <div class="opened">
      <div class="opened-side">
        <Facts
          of={[
            ["Partition", integer(shown.partition)],
            ["Offset", <span class="num">{integer(shown.offset)}</span>],
            [
              "Time",
              <>
                <Moment value={shown.timestamp} millis full /> {zone()}
              </>,
            ],
            ["Time set by", shown.timestamp_type === "append" ? "the broker" : "the producer"],
            [shown.payload ? "Size in the log" : "Size", <Bytes value={shown.size} />],
            [
              "Key",
              shown.key.kind === "null" ? <span class="muted">none</span> : <code class="wrap">{preview(shown.key, 2000)}</code>,
            ],
            ...(shown.value.schema ? [["Schema", schemaOf(shown.value)] as const] : []),
            ...(shown.key.schema ? [["Schema of the key", schemaOf(shown.key)] as const] : []),
            ...payloadOf(shown),
          ]}
        />
        <Headers headers={shown.headers} />
      </div>
      <div class="opened-main">
        <div class="row">
          <strong>Value</strong>
          <span class="muted small">
            {shown.value.kind === "null"
              ? "none: a tombstone in a compacted topic"
              : `${shown.value.schema?.type ?? shown.value.kind}, ${bytes(shown.value.size)}`}
          </span>
          <span class="push" />
          {shown.value.kind !== "null" && (
            <>
              <CopyButton text={() => asText(shown.value)} label="Copy value" />
              <a class="button small" href={`${API}${path}/value`} download>
                Download
              </a>
            </>
          )}
          {shown.payload && shown.payload.size >= 0 && (
            <a
              class="button small primary"
              href={API + apiPath("/streams/{subject}/payloads/{offset}", { subject: topic, offset })}
              download
            >
              Download payload
            </a>
          )}
          {isText && !shown.payload && (
            <button
              type="button"
              class="button small"
              disabled={Boolean(refused)}
              title={refused ?? undefined}
              onClick={resend}
            >
              Resend…
            </button>
          )}
          {isComparable(shown) && <CompareButton isShown={compares} onClick={() => setCompares(!compares)} />}
          <CopyButton text={() => messageCommand(cluster, topic, message)} label="As command" />
          <CopyButton text={() => messageProgram(cluster, topic, message)} label="As Python" />
        </div>
        {shown.value.problem && <Notice tone="warn">It could not be decoded: {shown.value.problem}</Notice>}
        <Value of={shown.value} label={`Value at offset ${shown.offset}`} />
        {compares && <Comparison topic={topic} message={shown} />}
        {shown.value.schema && shown.value.kind === "json" && <RawBytes topic={topic} message={message} />}
        {cut && (
          <Notice>
            Only the first part is shown.{" "}
            {!whole && (
              <button type="button" class="button small" onClick={showAll}>
                Show all
              </button>
            )}
            {whole && "Download it for the whole value."}
          </Notice>
        )}
        <Failure error={error} />
      </div>
      {draft && <Produce topic={topic} draft={draft} onClose={() => setDraft(null)} onDone={() => undefined} />}
    </div>
  );
};

/** A message that the URL names and the list does not have: it was shared by a link, or newer messages have come since. */
export const LinkedMessage = ({ topic, id }: { topic: string; id: string }) => {
  const [partition = "", offset = ""] = id.split("-");
  const [message, setMessage] = useState<Message | null>(null);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const control = new AbortController();
    const path = apiPath("/topics/{name}/messages/{partition}/{offset}", { name: topic, partition, offset });
    get(path, {}, { signal: control.signal, parse: parseExactly }).then(
      setMessage,
      (failure: unknown) => !control.signal.aborted && setError(errorOf(failure)),
    );
    return () => control.abort();
  }, [topic, id]);
  const around = { partition, start: `offset:${Math.max(0, Number(offset) - AROUND)}`, open: id };
  return (
    <Card
      title={`Message ${integer(Number(offset))} of partition ${partition}`}
      bare
      actions={
        <div class="row">
          <a class="button small" href={href(pathOf("topics", topic), around)}>
            Messages around it
          </a>
          <button type="button" class="button small" onClick={() => setQuery({ open: null })}>
            Close
          </button>
        </div>
      }
    >
      <Failure error={error} what="The message" />
      {message && <MessageDetail topic={topic} message={message} />}
    </Card>
  );
};

interface RowProps {
  topic: string;
  message: Message;
  isOpen: boolean;
  /** Whether there are messages of more than one partition. */
  several: boolean;
  columns: string[];
}

const Row = ({ topic, message, isOpen, several, columns }: RowProps): ComponentChildren => {
  const id = idOf(message);
  const toggle = () => setQuery({ open: isOpen ? null : id });
  return [
    <tr
      class={`data message ${isOpen ? "open" : ""}`}
      key={id}
      onClick={(event) => {
        const isButton = event.target instanceof Element && event.target.closest("button");
        if (!isButton && !getSelection()?.toString()) toggle();
      }}
    >
      <td class="toggle">
        <button
          type="button"
          class="button plain small"
          data-row
          aria-expanded={isOpen}
          aria-label={`Message ${message.offset} of partition ${message.partition}`}
          onClick={toggle}
        >
          <Icon name="right" turned={isOpen} />
        </button>
      </td>
      <td class="when">
        <Moment value={message.timestamp} millis full />
      </td>
      <td class={`end wide-only ${several ? "" : "muted"}`}>{message.partition}</td>
      <td class="end">{integer(message.offset)}</td>
      <td class="wide-only">
        <span class={`mono clip key ${message.key.kind === "null" ? "muted" : ""}`}>{preview(message.key, 80)}</span>
      </td>
      {columns.length ? (
        columns.map((name) => (
          <td key={name} class="column">
            <span class="mono clip">{fieldOf(message, name)}</span>
          </td>
        ))
      ) : (
        <td class="preview">
          <span class={`mono clip ${message.value.kind === "null" ? "muted" : ""}`}>{preview(message.value)}</span>
        </td>
      )}
      <td class="end wide-only">
        <Bytes value={sizeOf(message)} />
      </td>
    </tr>,
    isOpen && (
      <tr class="opened-row" key={`${id}-open`}>
        <td colspan={6 + Math.max(columns.length, 1)}>
          <MessageDetail topic={topic} message={message} />
        </td>
      </tr>
    ),
  ];
};

interface MessageTableProps {
  topic: string;
  items: Message[];
  /** The expanded message, as in the URL. */
  open: string | undefined;
  /** Fields to show in place of the value. */
  columns: string[];
}

export const MessageTable = ({ topic, items, open, columns }: MessageTableProps) => {
  const several = new Set(items.map(({ partition }) => partition)).size > 1;
  return (
    <div class="table-scroll" tabindex={0} role="region" aria-label="Messages">
      <table class="table messages">
        <caption class="spoken">Messages of {topic}</caption>
        <thead>
          <tr>
            <th scope="col" class="toggle">
              <span class="spoken">Open</span>
            </th>
            <th scope="col">Time, {zone()}</th>
            <th scope="col" class="end wide-only">
              Partition
            </th>
            <th scope="col" class="end">
              Offset
            </th>
            <th scope="col" class="wide-only">
              Key
            </th>
            {columns.length ? (
              columns.map((name) => (
                <th key={name} scope="col" class="mono">
                  {name}
                </th>
              ))
            ) : (
              <th scope="col">Value</th>
            )}
            <th scope="col" class="end wide-only">
              Size
            </th>
          </tr>
        </thead>
        <tbody>
          {items.map((message) => (
            <Row key={idOf(message)} topic={topic} message={message} isOpen={open === idOf(message)} several={several} columns={columns} />
          ))}
        </tbody>
      </table>
    </div>
  );
};
