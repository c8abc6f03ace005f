// JSON as text. Read as values, long numbers would change: what a person sees and sends on is the
// text itself.

import { UNSEEN } from "./text";

/** JSON that is sent as it was written. */
export class Json {
  constructor(readonly text: string) {}
}

/** A call that would not arrive as it was written. */
export class Inexact extends Error {}

export const TOKENS = /"(?:[^"\\]|\\.)*"|[^\s",:[\]{}]+|[,:[\]{}]/g;
const BLANKS = /(?! )\p{Zs}/gu; // they look like a space
const DEEPEST = 40;

/** Return the value of JSON, or undefined for what is none. */
export function parsed(text: string | null | undefined): unknown {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return undefined;
  }
}

/** Return JSON over lines, for reading and editing; unseen characters become escapes. */
export function spread(text: string): string {
  const line = (depth: number) => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
  let depth = 0;
  let before = "";
  let made = "";
  for (const token of text.match(TOKENS) ?? []) {
    const opened = before === "{" || before === "[";
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    if (closes ? !opened : opened || before === ",") made += line(depth);
    made += token === ":" ? ": " : token.replace(UNSEEN, escaped).replace(BLANKS, escaped);
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return made;
}

function escaped(characters: string): string {
  return characters
    .split("")
    .map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");
}

export function prettyJson(value: unknown): string {
  return spread(JSON.stringify(value));
}

/** Return the top-level entries of a JSON object as text, in their order; undefined for others. */
export function entriesOf(text: string): [name: string, json: string][] | undefined {
  const value = parsed(text);
  if (value === null || typeof value !== "object" || Array.isArray(value)) return undefined;
  const found: [string, string][] = [];
  let depth = 0;
  let name: string | undefined;
  let json = "";
  const done = () => {
    if (name !== undefined) found.push([name, json]);
    name = undefined;
    json = "";
  };
  for (const token of text.match(TOKENS) ?? []) {
    if (token === "}" || token === "]") depth -= 1;
    if (depth === 0) {
      done();
      if (token === "{") depth = 1;
      continue;
    }
    if (depth === 1 && token === ",") done();
    else if (depth === 1 && name === undefined) name = JSON.parse(token) as string;
    else if (!(depth === 1 && token === ":" && json === "")) json += token;
    if (token === "{" || token === "[") depth += 1;
  }
  return found;
}

/** Return a value as JSON, the `Json` in it as it is. */
export function jsonText(value: unknown): string {
  if (value instanceof Json) return value.text;
  if (Array.isArray(value)) return `[${value.map(jsonText)}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  return `{${entries.map(([name, one]) => `${JSON.stringify(name)}:${jsonText(one)}`)}}`;
}

/** Return the first number in a text of JSON that would change as a value, or undefined. */
export function changing(text: string): string | undefined {
  return (text.match(TOKENS) ?? []).find((one) => {
    if (!/^-?\d/.test(one)) return false;
    return /[.eE]/.test(one) ? isEndless(one) : Number(one) !== 0 && String(Number(one)) !== one;
  });
}

/** Whether a token is a number that nobody can calculate with, such as 1e400. */
export function isEndless(token: string): boolean {
  return /^-?\d.*[.eE]/.test(token) && !Number.isFinite(Number(token));
}

/** Return plain values for a way that takes no text; fails if a number would change. */
export function plainly(value: unknown): unknown {
  if (value instanceof Json) {
    const lost = changing(value.text);
    if (lost === undefined) return JSON.parse(value.text);
    throw new Inexact(
      `The number ${lost} does not pass through this application unchanged, so nothing was sent. ` +
        "Answer in a browser, at the server's own page.",
    );
  }
  if (Array.isArray(value)) return value.map(plainly);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plainly(one)]));
}
