// Durations and sizes as people write them: 3d, 1h 30min, 512 MiB. Exact both ways: what is shown for a value is read as that value.

const DURATIONS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
  ["ms", 1],
] as const;
const SIZES = [
  ["TiB", 1024 ** 4],
  ["GiB", 1024 ** 3],
  ["MiB", 1024 ** 2],
  ["KiB", 1024],
  ["B", 1],
] as const;

const UNITS_MS: Record<string, number> = { ...Object.fromEntries(DURATIONS), m: 60_000, w: 604_800_000, sec: 1000, day: 86_400_000, days: 86_400_000 };
const UNITS_BYTES: Record<string, number> = Object.fromEntries([
  ...SIZES.map(([unit, size]) => [unit.toLowerCase(), size]),
  ...SIZES.map(([unit, size]) => [unit[0]!.toLowerCase(), size]),
  ["kb", 1e3],
  ["mb", 1e6],
  ["gb", 1e9],
  ["tb", 1e12],
]);

/** The sum of amounts with units; a number alone is in the smallest unit. Null if it is no such text, or not a whole number then. */
function summed(text: string, units: Record<string, number>): string | null {
  const plain = text.trim();
  if (/^\d+$/.test(plain)) return plain.replace(/^0+(?=\d)/, "");
  if (!/^(\d+(\.\d+)?\s*[a-z]+\s*)+$/i.test(plain)) return null;
  let sum = 0;
  for (const [, amount, unit] of plain.matchAll(/(\d+(?:\.\d+)?)\s*([a-z]+)/gi)) {
    const size = units[unit!.toLowerCase()];
    if (size === undefined) return null;
    sum += Number(amount) * size;
  }
  return Number.isSafeInteger(Math.round(sum)) && Math.abs(sum - Math.round(sum)) < 1e-6 ? String(Math.round(sum)) : null;
}

/** Milliseconds of a duration such as 3d or 1h 30min; null if it is none. */
export const durationMs = (text: string) => summed(text, UNITS_MS);
/** Bytes of a size such as 512 MiB or 5GB; null if it is none. */
export const sizeBytes = (text: string) => summed(text, UNITS_BYTES);

/** A duration in full: 1h 30min. What is not a number of ms stays as it is. */
export function durationText(ms: string): string {
  let rest = Number(ms);
  if (!/^\d+$/.test(ms) || !Number.isSafeInteger(rest)) return ms;
  if (rest === 0) return "0ms";
  const parts: string[] = [];
  for (const [unit, size] of DURATIONS) {
    const amount = Math.floor(rest / size);
    if (amount) parts.push(`${amount}${unit}`);
    rest -= amount * size;
  }
  return parts.join(" ");
}

/** A size in the largest unit that needs at most three digits after the point, else in bytes. */
export function sizeText(bytes: string): string {
  const number = Number(bytes);
  if (!/^\d+$/.test(bytes) || !Number.isSafeInteger(number)) return bytes;
  for (const [unit, size] of SIZES) if (number >= size && Number.isInteger((number / size) * 8)) return `${number / size} ${unit}`;
  return `${number} B`;
}
