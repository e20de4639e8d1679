// Values of topic settings: as the node stores them, and as people read and write them.
import type { Schemas } from "../api";
import { durationMs, durationText, sizeBytes, sizeText } from "../units";

export type Setting = Schemas["ConfigView"];

const UNLIMITED = "unlimited";
const EMPTY = "empty";

/** A stored value in human units. */
export function textOf({ form, unlimited }: Setting, value: string): string {
  if (unlimited !== null && value === unlimited) return UNLIMITED;
  return form === "duration" ? durationText(value) : form === "size" ? sizeText(value) : value;
}

/** The same to be read only: an empty value is named, and the class of a strategy is short. */
export const shownText = (setting: Setting, value: string) => (value === "" ? EMPTY : textOf(setting, value).replace(/^io\.confluent\.\S+\./, ""));

/** A typed text as the node stores it, or why it cannot be. The node checks once more what this does not know of. */
export type Reading = { value: string; problem: null } | { value: null; problem: string };

const problem = (text: string): Reading => ({ value: null, problem: text });

export function readText(setting: Setting, text: string): Reading {
  const { form, unlimited, low, high } = setting;
  const typed = text.trim();
  if (form !== "duration" && form !== "size" && form !== "number") return { value: typed, problem: null };
  if (unlimited !== null && typed.toLowerCase() === UNLIMITED) return { value: unlimited, problem: null };
  const isNumber = /^-?\d+$/.test(typed);
  const value = isNumber ? typed : form === "duration" ? durationMs(typed) : form === "size" ? sizeBytes(typed) : null;
  if (form === "number" && setting.kind === "double") {
    const number = Number(typed);
    return typed && number >= 0 && number <= 1 ? { value: typed, problem: null } : problem("A number from 0 to 1");
  }
  if (value === null) {
    const or = unlimited === null ? "" : `, or ${UNLIMITED}`;
    if (form === "duration") return problem(`A duration such as 90s, 1h 30min or 7d${or}`);
    return problem(form === "size" ? `A size such as 512 KiB or 10 GiB${or}` : `A whole number${or}`);
  }
  const number = Number(value);
  if (low !== null && number < low) return problem(`At least ${textOf(setting, String(low))}`);
  if (high !== null && number > high) return problem(`At most ${textOf(setting, String(high))}`);
  return { value, problem: null };
}

/** What a change does that is not obvious, and cannot be undone; null if nothing. */
export function effectOf({ name, value: old }: Setting, value: string): string | null {
  const limit = (text: string) => (Number(text) < 0 ? Infinity : Number(text));
  if (/retention\.(ms|bytes|messages)$/.test(name) && !name.startsWith("local.") && name !== "delete.retention.ms" && limit(value) < limit(old))
    return "Messages beyond the new limit are deleted soon; this cannot be undone.";
  if (name === "cleanup.policy" && value.includes("compact") && !old.includes("compact"))
    return "Older messages of a key are deleted; from now on messages without a key are refused.";
  if (name === "cleanup.policy" && value.includes("delete") && !old.includes("delete"))
    return "Messages older than retention.ms are deleted soon; this cannot be undone.";
  if (name === "max.message.bytes" && Number(value) < Number(old)) return "Producers with larger batches are refused.";
  if (name === "penstock.schema.validation" && value !== "none" && old === "none")
    return "Messages without a registered schema are refused.";
  return null;
}

const SECTIONS: [title: string, names: RegExp][] = [
  ["Retention", /^(cleanup\.policy|retention\.|penstock\.(retention|limit)\.|segment\.(ms|bytes))/],
  ["Compaction", /(compaction|^delete\.retention|dirty\.ratio)/],
  ["Messages", /^(max\.message|message\.|compression\.)/],
  ["Schemas", /schema|subject/],
  ["Consumers and gateways", /^penstock\./],
];
/** Those that people look for first, in their section. */
const FIRST = ["cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "compression.type", "penstock.schema.validation"];
const rank = ({ name }: Setting) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
const OTHER = "Other";
export const NO_EFFECT = "Accepted for Kafka tools, without effect";

/** Settings in sections, the ones that matter most first; those without effect at the end. */
export function inSections(settings: Setting[]): [title: string, settings: Setting[]][] {
  const titles = [...SECTIONS.map(([title]) => title), OTHER, NO_EFFECT];
  const titleOf = (setting: Setting) =>
    setting.has_effect ? (SECTIONS.find(([, names]) => names.test(setting.name))?.[0] ?? OTHER) : NO_EFFECT;
  return titles
    .map((title): [string, Setting[]] => [
      title,
      settings.filter((setting) => titleOf(setting) === title).sort((a, b) => rank(a) - rank(b)),
    ])
    .filter(([, found]) => found.length);
}
