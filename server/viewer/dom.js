// Making elements. Whatever a run says becomes text nodes and nothing else.

/** Make an element; strings among the children become text, functions in `on` listen. */
function el(tag, attributes = {}, ...children) {
  const { on = {}, ...others } = attributes;
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(others))
    if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children.flat().filter((one) => one != null && one !== false));
  return made;
}

function button(label, act, style = "") {
  return el("button", { type: "button", class: style || null, on: { click: act } }, label);
}

const MOST_SHOWN = 20_000;
// Characters that nobody sees, or that turn the order of others around: shown by their number, so
// that a person approves what will be done and not what it looks like. Those that belong to a script
// or an emoji are let be where they have their use.
const UNSEEN = new RegExp(
  "(?<!\\p{Extended_Pictographic}\\ufe0f?\\p{Emoji_Modifier}?)\\u200d|" +
    "\\u200d(?!\\p{Extended_Pictographic})|" +
    "(?<!\\p{Extended_Pictographic})\\ufe0f|(?<![\\p{Script=Arabic}\\u0900-\\u0dff])\\u200c|" +
    "(?![\\t\\n\\u200c\\u200d\\ufe0f])" +
    "[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}\\u2800]",
  "gu",
);

/** Return any value as text that is safe to look at, not longer than a page bears. */
function shown(value, most = MOST_SHOWN) {
  const given =
    typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  const text = given.replace(/\r\n/g, "\n");
  const whole = text.length <= most;
  const halfPair = /[\ud800-\udbff]$/;
  const kept = whole ? text : text.slice(0, most).replace(halfPair, "");
  const more = text.length - kept.length;
  const seen = kept.replace(
    UNSEEN,
    (one) => `[U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`,
  );
  return whole ? seen : `${seen} … (${more} more characters)`;
}

function oneLine(value, most = 160) {
  return shown(typeof value === "string" ? value.replace(/\s+/g, " ") : value, most);
}

/** Put children into an element unless they were made of the same data: what is marked stays so. */
function fill(element, data, make) {
  const key = JSON.stringify(data);
  if (element.madeOf === key) return;
  element.madeOf = key;
  const held = element.contains(document.activeElement);
  const focused = held && document.activeElement.getAttribute("href");
  element.replaceChildren(...make());
  if (!focused) return;
  const links = [...element.querySelectorAll("a")];
  links.find((one) => one.getAttribute("href") === focused)?.focus();
}

/** Write into an element unless it says so already: screen readers hear changes only. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function statusMark(status) {
  return el(
    "span",
    { class: "status", "data-status": status },
    STATUS_WORDS[status] ?? shown(status),
  );
}

const STATUS_WORDS = {
  running: "running",
  needs_approval: "needs an answer",
  paused: "paused",
  done: "done",
  failed: "failed",
  cancelled: "cancelled",
};

/** Return the time of day, with its date unless that is today. */
function clock(time) {
  const moment = new Date(time);
  if (Number.isNaN(moment.getTime())) return "";
  const today = moment.toDateString() === new Date().toDateString();
  return today ? moment.toLocaleTimeString() : moment.toLocaleString();
}
