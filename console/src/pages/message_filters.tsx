// Which messages are shown, and how: a filter that runs on the node, the end of a time range, columns from fields, and export.
import { useState } from "preact/hooks";
import type { Schemas } from "../api";
import { clockOf, dateOf } from "../format";
import { type FieldEvent, useId } from "../parts";
import { type Place, setQuery } from "../router";
import { asText, fieldOf, jsonText } from "../values";

type Message = Schemas["MessageView"];

/** Keeps what is being typed into a field while the page is redrawn. */
export function useDraft(value: string | number) {
  const [draft, setDraft] = useState<string | null>(null);
  return { shown: draft ?? value, type: (event: FieldEvent) => setDraft(event.currentTarget.value), done: () => setDraft(null) };
}

export const localTime = (ms: number) => {
  const at = new Date(ms);
  return `${dateOf(at)}T${clockOf(at)}`;
};

/** The fields of the columns in the URL: "value.customer, header.source". */
export const columnsOf = (text: string | undefined): string[] =>
  (text ?? "")
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean)
    .slice(0, 12);

interface DraftFieldProps {
  label: string;
  hint: string;
  placeholder: string;
  name: "filter" | "columns";
  value: string | undefined;
}

const DraftField = ({ label, hint, placeholder, name, value }: DraftFieldProps) => {
  const [id, hintId] = [useId(), useId()];
  const draft = useDraft(value ?? "");
  const apply = (event: FieldEvent) => {
    draft.done();
    setQuery({ [name]: event.currentTarget.value.trim() || null }, { replace: false });
  };
  return (
    <div class="field grow">
      <label for={id}>{label}</label>
      <input
        id={id}
        class="input mono"
        autocomplete="off"
        spellcheck={false}
        aria-describedby={hintId}
        placeholder={placeholder}
        value={draft.shown}
        onInput={draft.type}
        onChange={apply}
      />
      <span id={hintId} class="hint">
        {hint}
      </span>
    </div>
  );
};

/** The row below the toolbar. */
export const Filters = ({ query, live }: { query: Place["query"]; live: boolean }) => {
  const id = useId();
  const until = Number(query.until);
  const draft = useDraft(query.until ? localTime(until) : "");
  return (
    <div class="filters" role="group" aria-label="Filters">
      <DraftField
        label="Filter"
        hint="Conditions joined by and: = != < <= > >= and ~ (contains). Fields: key, value, value.path[0], header.name, offset."
        placeholder="value.customer = anna and value.total > 100"
        name="filter"
        value={query.filter}
      />
      <DraftField
        label="Columns"
        hint="Fields to show instead of the value, separated by commas."
        placeholder="value.customer, value.total, header.source"
        name="columns"
        value={query.columns}
      />
      {!live && (
        <div class="field">
          <label for={id}>Up to</label>
          <input
            id={id}
            class="input"
            type="datetime-local"
            step="1"
            value={draft.shown}
            onInput={draft.type}
            onChange={(event) => {
              draft.done();
              const ms = new Date(event.currentTarget.value).getTime();
              setQuery({ until: ms >= 0 ? String(ms) : null }, { replace: false });
            }}
          />
          <span class="hint">Empty: the end.</span>
        </div>
      )}
    </div>
  );
};

const lineOf = ({ partition, offset, timestamp, key, value, headers }: Message) =>
  jsonText(
    {
      partition,
      offset,
      timestamp,
      key: key.data,
      value: value.data,
      headers: Object.fromEntries(headers.map(({ name, value: content }) => [name, content.data])),
    },
    "",
    "",
  );

/** A cell as RFC 4180 has it. A formula of a spreadsheet program is text. */
function cell(text: string): string {
  const safe = /^[=+@-]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

function rowsOf(items: Message[], columns: string[]): string[] {
  const own = columns.length ? columns : ["value"];
  const head = ["partition", "offset", "time", "key", ...own];
  const rows = items.map((message) => [
    String(message.partition),
    String(message.offset),
    new Date(message.timestamp).toISOString(),
    asText(message.key),
    ...own.map((name) => (name === "value" ? asText(message.value) : fieldOf(message, name))),
  ]);
  return [head, ...rows].map((row) => row.map(cell).join(","));
}

function download(name: string, type: string, lines: string[]) {
  const url = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type }));
  const link = Object.assign(document.createElement("a"), { href: url, download: name });
  link.click();
  URL.revokeObjectURL(url);
}

/** What is shown, as files. */
export const exportActions = (topic: string, items: Message[], columns: string[]) => [
  { text: "Export as JSON lines", act: () => download(`${topic}.jsonl`, "application/jsonl", items.map(lineOf)) },
  { text: "Export as CSV", act: () => download(`${topic}.csv`, "text/csv", rowsOf(items, columns)) },
];
