// Texts of runs, safe to look at.

const MOST_SHOWN = 20_000;

// Characters that nobody sees, or that turn the order of others around: shown by their number, so
// that a person approves what will be done and not what it looks like. Those that belong to a script
// or an emoji are let be where they have their use.
export const UNSEEN = new RegExp(
  "(?<!\\p{Extended_Pictographic}\\ufe0f?\\p{Emoji_Modifier}?)\\u200d|" +
    "\\u200d(?!\\p{Extended_Pictographic})|" +
    "(?<!\\p{Extended_Pictographic})\\ufe0f|(?<![\\p{Script=Arabic}\\u0900-\\u0dff])\\u200c|" +
    "(?![\\t\\n\\u200c\\u200d\\ufe0f])" +
    "[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}\\u2800]",
  "gu",
);

/** Return a text whose unseen characters are shown by their number. */
export function seen(text: string): string {
  return text.replace(
    UNSEEN,
    (one) => `[U+${one.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`,
  );
}

/** Return any value as text that is safe to look at, not longer than a page bears. */
export function shown(value: unknown, most = MOST_SHOWN): string {
  const given =
    typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  const text = given.replace(/\r\n/g, "\n");
  if (text.length <= most) return seen(text);
  const kept = text.slice(0, most).replace(/[\ud800-\udbff]$/, "");
  return `${seen(kept)} … (${text.length - kept.length} more characters)`;
}

export function oneLine(value: unknown, most = 160): string {
  return shown(typeof value === "string" ? value.replace(/\s+/g, " ").trim() : value, most);
}

/** Return the time of day, with its date unless that is today. */
export function clock(time: string | undefined): string {
  const moment = new Date(time ?? "");
  if (Number.isNaN(moment.getTime())) return "";
  const today = moment.toDateString() === new Date().toDateString();
  const hours = moment.toLocaleTimeString(undefined, { timeStyle: "short" });
  if (today) return hours;
  const sameYear = moment.getFullYear() === new Date().getFullYear();
  const day = moment.toLocaleDateString(undefined, {
    day: "numeric",
    month: "short",
    ...(sameYear ? {} : { year: "numeric" }),
  });
  return `${day}, ${hours}`;
}

/** Return date and time in full. */
export function fullTime(time: string | undefined): string {
  const moment = new Date(time ?? "");
  return Number.isNaN(moment.getTime())
    ? ""
    : moment.toLocaleString(undefined, { dateStyle: "full", timeStyle: "medium" });
}

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["week", 604_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

/** Return how long ago something was, such as "5 min. ago". */
export function ago(time: string | undefined, now = Date.now()): string {
  const moment = new Date(time ?? "").getTime();
  if (Number.isNaN(moment)) return "";
  const seconds = (moment - now) / 1000;
  for (const [unit, size] of UNITS)
    if (Math.abs(seconds) >= size) return RELATIVE.format(Math.round(seconds / size), unit);
  return seconds > 5 ? "in a moment" : "just now";
}

/** Return a length of time, such as "1 min 20 s". */
export function duration(seconds: number | undefined | null): string {
  if (seconds === undefined || seconds === null || !Number.isFinite(seconds)) return "";
  if (seconds < 0.05) return "< 0.1 s";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1_440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return plural(Math.round(seconds / 86_400), "day");
}

/** Return a cost with as many digits as tell something, such as "$0.0042". */
export function dollars(cost: number): string {
  return `$${cost === 0 ? "0" : cost.toFixed(cost < 0.1 ? 4 : 2)}`;
}

export function count(value: number | undefined | null): string {
  return Number(value ?? 0).toLocaleString("en");
}

/** Return "1 file", "2 files". */
export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function bytes(size: number): string {
  if (size < 1_000) return `${size} B`;
  if (size < 1_000_000) return `${(size / 1_000).toFixed(1)} KB`;
  return `${(size / 1_000_000).toFixed(1)} MB`;
}
