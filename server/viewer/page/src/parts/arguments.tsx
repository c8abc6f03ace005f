// Arguments of a call: read as a labelled form, or edited; always the text that the server gave.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useRef } from "preact/hooks";
import { entriesOf, isEndless, parsed, spread, TOKENS } from "../lib/exact";
import { coloured } from "../lib/highlight";
import { seen, shown, UNSEEN } from "../lib/text";

const BLANKS = /(?! )\p{Zs}/gu;

/** Return a text with everything in it that one would not see, or take for a space. */
function visible(text: string): string {
  return seen(text).replace(
    BLANKS,
    (one) => `[U+${one.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}]`,
  );
}

/** Arguments as a labelled form, or as JSON; all of them, whole. */
export function Arguments({ json, skip = [] }: { json: string; skip?: string[] }): VNode {
  const raw = useSignal(false);
  const entries = entriesOf(json)?.filter(([name]) => !skip.includes(name));
  if (!entries || raw.value)
    return (
      <div class="arguments">
        <pre tabIndex={0} role="group" aria-label="Arguments">
          {parsed(json) === undefined ? shown(json, 1_000_000) : spread(json)}
        </pre>
        {entries ? (
          <button type="button" class="link" onClick={() => (raw.value = false)}>
            As a form
          </button>
        ) : null}
      </div>
    );
  return (
    <div class="arguments">
      {entries.length ? (
        <dl>
          {entries.map(([name, one]) => {
            const value = parsed(one);
            return (
              <>
                <dt>{visible(name)}</dt>
                <dd dir="auto">
                  {typeof value === "string" ? (
                    <span class="value">{visible(value) || <em class="quiet">empty</em>}</span>
                  ) : (
                    <code class="value">{coloured(spread(one), "json")}</code>
                  )}
                </dd>
              </>
            );
          })}
        </dl>
      ) : (
        <p class="quiet">No arguments.</p>
      )}
      <button type="button" class="link" onClick={() => (raw.value = true)}>
        As JSON
      </button>
    </div>
  );
}

/** Whether a text in a field is the text that was there: fields change ends of lines. */
function canBeTyped(text: string): boolean {
  return !text.includes("\r") && visible(text) === text && !UNSEEN.test(text);
}

/**
 * Fields for arguments. `read` in `onReady` returns the edited JSON, or null if something is wrong,
 * which the field then says.
 */
export function ArgumentFields({
  json,
  onReady,
}: {
  json: string;
  onReady: (read: () => string | null) => void;
}): VNode {
  const entries = entriesOf(json);
  const typed = (entries ?? []).every(([, one]) => {
    const value = parsed(one);
    return typeof value !== "string" || canBeTyped(value);
  });
  const asJson = useSignal(!entries || !entries.length || !typed);
  const text = useSignal(spread(json));
  const values = useSignal((entries ?? []).map(([, one]) => textOf(one)));
  const place = useRef<HTMLDivElement>(null);

  onReady(() => {
    const fields = [...(place.current?.querySelectorAll("textarea") ?? [])];
    if (asJson.value) {
      const value = parsed(text.value);
      const good = value !== null && typeof value === "object" && !Array.isArray(value);
      const endless = good && (text.value.match(TOKENS) ?? []).find(isEndless);
      fields[0]!.setCustomValidity(
        !good
          ? "This is not a JSON object."
          : endless
            ? `${endless} is too large for a number.`
            : "",
      );
      return fields[0]!.reportValidity() ? text.value : null;
    }
    return assembled(fields, entries!, values.value);
  });

  const toJson = () => {
    const made = assembled([], entries!, values.value);
    text.value = spread(made ?? json);
    asJson.value = true;
  };
  if (asJson.value)
    return (
      <div ref={place}>
        <label>
          Arguments, as JSON
          <textarea
            required
            spellcheck={false}
            value={text.value}
            onInput={(event) => {
              event.currentTarget.setCustomValidity("");
              text.value = event.currentTarget.value;
            }}
          />
        </label>
        {entries?.length && !typed ? (
          <p class="quiet">
            Edited as JSON: there are characters in it that a field would not show.
          </p>
        ) : null}
      </div>
    );
  return (
    <div ref={place}>
      {entries!.map(([name, one], at) => (
        <label>
          {visible(name)}
          {typeof parsed(one) === "string" ? null : <span class="quiet"> (JSON)</span>}
          <textarea
            spellcheck={false}
            rows={Math.min(16, Math.max(1, values.value[at]!.split("\n").length))}
            value={values.value[at]}
            onInput={(event) => {
              event.currentTarget.setCustomValidity("");
              values.value = values.value.with(at, event.currentTarget.value);
            }}
          />
        </label>
      ))}
      <button type="button" class="link" onClick={toJson}>
        Edit as JSON
      </button>
    </div>
  );
}

function textOf(json: string): string {
  const value = parsed(json);
  return typeof value === "string" ? value : spread(json);
}

/** Return the JSON of edited entries; the field of a wrong one says so. */
function assembled(
  fields: HTMLTextAreaElement[],
  entries: [string, string][],
  values: string[],
): string | null {
  const made: string[] = [];
  for (const [at, [name, was]] of entries.entries()) {
    const value = values[at]!;
    let json = value;
    if (textOf(was) === value) json = was;
    else if (typeof parsed(was) === "string") json = JSON.stringify(value);
    else {
      const endless = (value.match(TOKENS) ?? []).find(isEndless);
      const problem =
        parsed(value) === undefined
          ? "This is not JSON."
          : endless
            ? `${endless} is too large for a number.`
            : "";
      fields[at]?.setCustomValidity(problem);
      if (problem) {
        fields[at]?.reportValidity();
        return null;
      }
    }
    made.push(`${JSON.stringify(name)}: ${json}`);
  }
  return `{${made.join(", ")}}`;
}
