// Keys and values of messages as people read them. JSON keeps every digit: numbers that a float would round are kept as written.
import type { ComponentChildren } from "preact";
import type { Schemas } from "./api";

type Octets = Schemas["OctetsView"];

/** A number as it was written. */
class ExactNumber {
  constructor(readonly source: string) {}
}

// The third argument of a reviver is newer than the types that come with TypeScript.
type ExactParse = (text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown) => unknown;

/** JSON.parse, but a number that cannot be held exactly stays as it was written, where the browser can tell. */
export const parseExactly = (text: string) =>
  (JSON.parse as ExactParse)(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && !Number.isSafeInteger(value) && String(value) !== context.source
      ? new ExactNumber(context.source)
      : value,
  );

/** JSON as text, on one line or indented. */
export function jsonText(value: unknown, indent = "", step = "  "): string {
  if (value instanceof ExactNumber) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const inner = indent + step;
  const parts = Array.isArray(value)
    ? value.map((item) => jsonText(item, inner, step))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}:${step ? " " : ""}${jsonText(item, inner, step)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!parts.length) return open + close;
  return step ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${indent}${close}` : open + parts.join(",") + close;
}

/** Some bytes as the API shows them, on one line. */
export function preview({ kind, data }: Octets, length = 300): string {
  if (kind === "null") return "null";
  if (kind === "json") return jsonText(data, "", "").slice(0, length);
  return String(data).slice(0, length);
}

/** A field of a message as text: key, value.path[0], header.name, offset; empty if it is not there. */
export function fieldOf(message: Schemas["MessageView"], name: string): string {
  if (name === "key" || name === "value") return preview(message[name]);
  if (name === "partition" || name === "offset" || name === "timestamp" || name === "size") return String(message[name]);
  if (name.startsWith("header.")) {
    const header = message.headers.find((item) => item.name === name.slice("header.".length));
    return header ? preview(header.value) : "";
  }
  const [part, steps] = name.startsWith("key") ? (["key", name.slice(3)] as const) : (["value", name.slice(5)] as const);
  if (!/^(value|key)[.[]/.test(name) || message[part].kind !== "json") return "";
  let found: unknown = message[part].data;
  for (const [, key, index] of steps.matchAll(/\.([^.[\]]+)|\[(\d+)\]/g))
    found = (found as Record<string, unknown> | null | undefined)?.[key ?? index ?? ""];
  if (found === undefined) return "";
  return typeof found === "string" ? found : jsonText(found, "", "");
}

/** The same in full, to be copied. */
export const asText = ({ kind, data }: Octets) => (kind === "null" ? "" : kind === "json" ? jsonText(data) : String(data));

const word = (kind: "key" | "number" | "string" | "word", text: string) => <span class={`json-${kind}`}>{text}</span>;

/** Indented JSON in colours. */
function Json({ value, indent = "" }: { value: unknown; indent?: string }): ComponentChildren {
  if (value instanceof ExactNumber) return word("number", value.source);
  if (typeof value === "string") return word("string", JSON.stringify(value));
  if (typeof value === "number") return word("number", String(value));
  if (value === null || typeof value === "boolean") return word("word", String(value));
  const inner = `${indent}  `;
  const isList = Array.isArray(value);
  const entries: [string | null, unknown][] = isList ? value.map((item) => [null, item]) : Object.entries(value as object);
  const [open, close] = isList ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return open + close;
  return [
    `${open}\n`,
    entries.map(([key, item], index) => [
      inner,
      key === null ? null : [word("key", JSON.stringify(key)), ": "],
      <Json value={item} indent={inner} />,
      index < entries.length - 1 ? ",\n" : "\n",
    ]),
    indent + close,
  ];
}

/** Hexadecimal digits in rows of 16 bytes, with the characters they may be. */
function hexRows(digits: string): string {
  const rows: string[] = [];
  for (let at = 0; at < digits.length; at += 32) {
    const pairs: string[] = digits.slice(at, at + 32).match(/../g) ?? [];
    const seen = pairs
      .map((pair) => {
        const code = parseInt(pair, 16);
        return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
      })
      .join("");
    rows.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(47)}  ${seen}`);
  }
  return rows.join("\n");
}

export const Value = ({ of, label }: { of: Octets; label: string }) => (
  <pre class={`value ${of.kind === "text" ? "wrap" : ""}`} tabindex={0} role="region" aria-label={label}>
    {of.kind === "null" ? (
      <span class="json-word">null</span>
    ) : of.kind === "json" ? (
      <Json value={of.data} />
    ) : of.kind === "hex" ? (
      hexRows(String(of.data))
    ) : (
      String(of.data)
    )}
  </pre>
);
