// Figures for people. Exact values go into titles, where they are shown on hover.

export const NOTHING = "–";
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
/** A figure that may not be known. */
export type Figure = number | null | undefined;
type Format = (value: Figure) => string;

const isNumber = (value: Figure): value is number => typeof value === "number" && Number.isFinite(value);

/** Three significant digits, never in powers of ten. */
function short(value: number): string {
  const size = Math.abs(value);
  return value.toLocaleString("en", { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : 2 });
}

export const integer: Format = (value) => (isNumber(value) ? exact.format(value) : NOTHING);

export function count(value: Figure): string {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  if (size < 10000) return Number.isInteger(value) ? exact.format(value) : short(value);
  for (const [unit, suffix] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const)
    if (size >= unit) return `${short(value / unit)} ${suffix}`;
  return exact.format(value);
}

export function bytes(value: Figure): string {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  for (const [power, unit] of [
    [5, "PiB"],
    [4, "TiB"],
    [3, "GiB"],
    [2, "MiB"],
    [1, "KiB"],
  ] as const) {
    if (size >= 1024 ** power) return `${short(value / 1024 ** power)} ${unit}`;
  }
  return `${short(value)} B`;
}

const perSecond =
  (format: (value: number) => string): Format =>
  (value) =>
    isNumber(value) ? `${format(value)}/s` : NOTHING;
export const bytesPerSecond = perSecond(bytes);
export const countPerSecond = perSecond((value) => (value > 0 && value < 100 ? short(value) : count(Math.round(value))));

export function duration(ms: Figure): string {
  if (!isNumber(ms)) return NOTHING;
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1000) return `${short(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? short(s) : Math.round(s)} s`;
  const parts: [amount: number, unit: string][] = [
    [Math.floor(s / 86400), "d"],
    [Math.floor(s / 3600) % 24, "h"],
    [Math.floor(s / 60) % 60, "min"],
    [Math.floor(s) % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(" ");
}

export const seconds: Format = (value) => (isNumber(value) ? duration(value * 1000) : NOTHING);
export const percent: Format = (share) => (isNumber(share) ? `${short(share * 100)} %` : NOTHING);

const two = (value: number) => String(value).padStart(2, "0");
export const dateOf = (at: Date) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
export const clockOf = (at: Date) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

/** The offset of local times from UTC, as of now: "UTC+02:00". */
export function zone(): string {
  const minutes = -new Date().getTimezoneOffset();
  const size = Math.abs(minutes);
  return minutes ? `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}` : "UTC";
}

/** The time of day if it was today, else the date with it; always with the date if it is to be `full`. */
function moment(ms: Figure, millis: boolean, full: boolean): string {
  if (!isNumber(ms) || ms < 0) return NOTHING;
  const at = new Date(ms);
  const clock = clockOf(at) + (millis ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "");
  return !full && dateOf(at) === dateOf(new Date()) ? clock : `${dateOf(at)} ${clock}`;
}

export function ago(ms: Figure): string {
  if (!isNumber(ms) || ms <= 0) return NOTHING;
  const seconds = Math.floor((Date.now() - ms) / 1000);
  return seconds < 1 ? "just now" : `${duration(seconds * 1000)} ago`;
}

/** A figure with its exact value on hover. */
const figure =
  (format: Format, unit: string) =>
  ({ value }: { value: Figure }) => (
    <span class="num" title={isNumber(value) ? `${exact.format(value)} ${unit}` : undefined}>
      {format(value)}
    </span>
  );
export const Count = figure(count, "");
export const Bytes = figure(bytes, "bytes");
export const BytesRate = figure(bytesPerSecond, "bytes per second");
export const CountRate = figure(countPerSecond, "messages per second");
export const Seconds = figure(seconds, "seconds");
export const Duration = figure(duration, "ms");
export const Share = figure(percent, "");
export const Moment = ({ value, millis = false, full = false }: { value: Figure; millis?: boolean; full?: boolean }) => (
  <time
    class="num"
    datetime={isNumber(value) && value >= 0 ? new Date(value).toISOString() : undefined}
    title={isNumber(value) && value >= 0 ? new Date(value).toISOString() : undefined}
  >
    {moment(value, millis, full)}
  </time>
);
export const Ago = ({ value }: { value: Figure }) => (
  <span class="num" title={isNumber(value) && value > 0 ? new Date(value).toISOString() : undefined}>
    {ago(value)}
  </span>
);

/** A message of the node as a sentence of its own. */
export const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** "1 topic", "3 topics". */
export const plural = (amount: number, one: string, many = `${one}s`) => `${count(amount)} ${amount === 1 ? one : many}`;
