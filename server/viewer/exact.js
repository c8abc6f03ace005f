// JSON as text. Read as values, long numbers would change: what a person sees and sends on is the
// text itself.

/** JSON that is sent as it was written. */
class Json {
  constructor(text) {
    this.text = text;
  }
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[^\s",:[\]{}]+|[,:[\]{}]/g;
const BLANKS = /(?! )\p{Zs}/gu; // they look like a space
const DEEPEST = 40;

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Return JSON over lines, for reading and editing; unseen characters become escapes. */
function spread(text) {
  const line = (depth) => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
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

function escaped(characters) {
  return characters
    .split("")
    .map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");
}

function prettyJson(value) {
  return spread(JSON.stringify(value));
}

/** Return a value as JSON, the `Json` in it as it is. */
function jsonText(value) {
  if (value instanceof Json) return value.text;
  if (Array.isArray(value)) return `[${value.map(jsonText)}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  return `{${entries.map(([name, one]) => `${JSON.stringify(name)}:${jsonText(one)}`)}}`;
}

/** Return the first number in a text of JSON that would change as a value, or undefined. */
function changing(text) {
  return (text.match(TOKENS) ?? []).find((one) => {
    if (!/^-?\d/.test(one)) return false;
    return /[.eE]/.test(one) ? isEndless(one) : Number(one) !== 0 && String(Number(one)) !== one;
  });
}

/** Whether a token is a number that nobody can calculate with, such as 1e400. */
function isEndless(token) {
  return /^-?\d.*[.eE]/.test(token) && !Number.isFinite(Number(token));
}

/** Return plain values for a way that takes no text; fails if a number would change. */
function plainly(value) {
  if (value instanceof Json) {
    const lost = changing(value.text);
    if (lost === undefined) return JSON.parse(value.text);
    throw new Failure(
      "refused",
      `The number ${lost} does not pass through this application unchanged, so nothing was sent. ` +
        "Answer in a browser, at the server's own page.",
    );
  }
  if (Array.isArray(value)) return value.map(plainly);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, plainly(one)]));
}
