// What changed in a message since an earlier one of the same key.
import { useEffect, useState } from "preact/hooks";
import { type Schemas, apiPath, errorOf, get } from "../api";
import { Diff } from "../diff";
import { Moment, integer } from "../format";
import { Failure } from "../parts";
import { href, pathOf } from "../router";
import { asText, parseExactly } from "../values";

type Message = Schemas["MessageView"];

/** How many times the node is asked to scan on, some megabytes at a time. */
const SCANS_MAX = 20;

export const isComparable = ({ key, value }: Message) => key.kind !== "null" && key.kind !== "hex" && !key.truncated && !value.truncated;

export const CompareButton = ({ isShown, onClick }: { isShown: boolean; onClick: () => void }) => (
  <button type="button" class="button small" aria-pressed={isShown} title="What changed since the previous message of this key" onClick={onClick}>
    Compare
  </button>
);

/** The last message of a key before an offset; null if there is none, or none within bounds. */
async function previousOf(topic: string, message: Message, before: number, signal: AbortSignal): Promise<Message | null> {
  const { partition, offset } = message;
  // The key as it was written: JSON is shown with other spaces.
  const written = await get(
    apiPath("/topics/{name}/messages/{partition}/{offset}", { name: topic, partition, offset }),
    { decoder: "text" },
    { signal },
  );
  const filter = `key = "${String(written.key.data).replace(/["\\]/g, "\\$&")}"`;
  let cursor: string | null = null;
  for (let scan = 0; scan < SCANS_MAX; scan++) {
    const place = cursor === null ? { partition, start: `before:${before}` } : { cursor };
    const page: Schemas["MessagesView"] = await get(
      apiPath("/topics/{name}/messages", { name: topic }),
      { ...place, filter, limit: 1, full: true },
      { signal, parse: parseExactly },
    );
    if (page.items[0]) return page.items[0];
    cursor = page.next;
    if (cursor === null) return null;
  }
  return null;
}

export const Comparison = ({ topic, message }: { topic: string; message: Message }) => {
  const [before, setBefore] = useState(message.offset);
  const [earlier, setEarlier] = useState<Message | null | undefined>(undefined);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const control = new AbortController();
    setEarlier(undefined);
    previousOf(topic, message, before, control.signal).then(
      setEarlier,
      (failure: unknown) => !control.signal.aborted && setError(errorOf(failure)),
    );
    return () => control.abort();
  }, [topic, message.partition, message.offset, before]);
  if (error) return <Failure error={error} what="The earlier message" />;
  if (earlier === undefined) return <p class="muted">Looking for an earlier message of this key…</p>;
  if (earlier === null) return <p class="muted">No earlier message of this key in the partition{before < message.offset ? " before that" : ""}.</p>;
  const link = href(pathOf("topics", topic), { partition: earlier.partition, start: `offset:${earlier.offset}`, open: `${earlier.partition}-${earlier.offset}` });
  return (
    <>
      <div class="row">
        <strong>Changes since offset {integer(earlier.offset)}</strong>
        <span class="muted small">
          <Moment value={earlier.timestamp} millis full />
        </span>
        <span class="push" />
        <a class="button small" href={link}>
          Open it
        </a>
        <button type="button" class="button small" onClick={() => setBefore(earlier.offset)}>
          Compare with an older one
        </button>
      </div>
      <Diff before={asText(earlier.value)} after={asText(message.value)} label={`Changes from offset ${earlier.offset} to ${message.offset}`} />
    </>
  );
};
