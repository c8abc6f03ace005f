// Changes of files, whole: hunks with three lines of context, or all of the file.

import { useSignal } from "@preact/signals";
import { parsePatch, structuredPatch } from "diff";
import type { ComponentChild, VNode } from "preact";
import { colouredLines, languageOf } from "../lib/highlight";
import { memo } from "../lib/memo";
import { plural, seen } from "../lib/text";
import { CopyButton } from "./copy";

interface Hunk {
  oldStart: number;
  newStart: number;
  oldLines: number;
  newLines: number;
  lines: string[];
}

interface Given {
  path: string;
  before?: string | null;
  after?: string | null;
  /** In the unified format, where the texts are not known. */
  patch?: string;
  /** The counts of the server, which leave out lines that moved. */
  added?: number | null;
  removed?: number | null;
  open?: boolean;
}

function endsInCarriageReturns(text: string): boolean {
  const lines = text.split("\n");
  return lines.length > 1 && lines.slice(0, -1).every((line) => line.endsWith("\r"));
}

function hunksOf(before: string, after: string, context: number): Hunk[] {
  return structuredPatch("a", "b", before, after, "", "", { context }).hunks;
}

/** Count the lines that come and go. */
export function counted(hunks: Hunk[]): { added: number; removed: number } {
  let added = 0;
  let removed = 0;
  for (const { lines } of hunks)
    for (const line of lines)
      if (line.startsWith("+")) added += 1;
      else if (line.startsWith("-")) removed += 1;
  return { added, removed };
}

export function Changed({
  added = 0,
  removed = 0,
}: {
  added?: number | null;
  removed?: number | null;
}): VNode {
  const words = `${plural(added ?? 0, "line")} added, ${removed ?? 0} removed`;
  return (
    <span class="changed" role="img" aria-label={words}>
      <span class="added">+{added ?? 0}</span>
      {removed ? <span class="removed"> −{removed}</span> : null}
    </span>
  );
}

export const Diff = memo(function Diff({ path, before, after, patch, open = true, ...given }: Given): VNode {
  const everything = useSignal(false);
  const known = typeof after === "string";
  const crlf =
    known && endsInCarriageReturns(after) && (!before || endsInCarriageReturns(before));
  const strip = (text: string) => (crlf ? text.replaceAll("\r\n", "\n") : text);
  const old = strip(before ?? "");
  const made = strip(after ?? "");
  const hunks: Hunk[] = known
    ? hunksOf(old, made, everything.value ? 1_000_000 : 3)
    : (parsePatch(patch ?? "")[0]?.hunks ?? []);
  const own = counted(hunks);
  const language = languageOf(path);
  const fresh = known && (before === null || before === undefined);
  return (
    <figure class="diff" aria-label={`Change of ${seen(path)}`}>
      <figcaption>
        <span class="path" dir="ltr">
          {seen(path)}
        </span>
        {fresh ? <span class="tag">new file</span> : null}
        {crlf ? <span class="tag">CRLF line ends</span> : null}
        <Changed added={given.added ?? own.added} removed={given.removed ?? own.removed} />
        {known && !fresh && hunks.length > 0 ? (
          <button type="button" class="link" onClick={() => (everything.value = !everything.value)}>
            {everything.value ? "Show changes only" : "Show file"}
          </button>
        ) : null}
        {known ? <CopyButton text={after} label="Copy the new file" /> : null}
      </figcaption>
      {!open ? null : hunks.length ? (
        <div class="hunks" tabIndex={0} role="group" aria-label="Changed lines">
          <table>
            <tbody>{hunks.map((hunk, at) => <HunkRows hunk={hunk} first={at === 0} language={language} fresh={fresh} />)}</tbody>
          </table>
        </div>
      ) : (
        <p class="quiet">{fresh ? "The file is empty." : "Nothing in the file changes."}</p>
      )}
    </figure>
  );
});

function HunkRows({
  hunk,
  first,
  language,
  fresh,
}: {
  hunk: Hunk;
  first: boolean;
  language: string;
  fresh: boolean;
}): ComponentChild {
  // Each side is coloured as a whole, so that what goes over lines keeps its colour.
  const side = (mark: string) =>
    colouredLines(
      hunk.lines
        .filter((line) => line.startsWith(" ") || line.startsWith(mark))
        .map((line) => line.slice(1))
        .join("\n"),
      language,
    );
  const olds = side("-");
  const news = side("+");
  let oldAt = 0;
  let newAt = 0;
  const rows = hunk.lines.map((line) => {
    const mark = line[0]!;
    if (mark === "\\")
      return (
        <tr class="no-newline">
          <td />
          <td />
          <td colSpan={2}>No newline at the end of the file</td>
        </tr>
      );
    const kind = mark === "+" ? "ins" : mark === "-" ? "del" : "same";
    const text = mark === "-" ? olds[oldAt] : news[newAt];
    const numbers = [
      mark === "+" ? "" : hunk.oldStart + oldAt,
      mark === "-" ? "" : hunk.newStart + newAt,
    ];
    if (mark !== "+") oldAt += 1;
    if (mark !== "-") newAt += 1;
    return (
      <tr class={kind}>
        {fresh ? null : <td class="line">{numbers[0]}</td>}
        <td class="line">{numbers[1]}</td>
        <td class="mark">{mark === " " ? "" : mark === "-" ? "−" : "+"}</td>
        <td class="text">{text === "" ? "\u200a" : text}</td>
      </tr>
    );
  });
  return (
    <>
      {first && (fresh || (hunk.oldStart <= 1 && hunk.newStart <= 1)) ? null : (
        <tr class="hunk">
          <td colSpan={4}>
            Line {hunk.newStart}
            <span class="unseen"> and following</span>
          </td>
        </tr>
      )}
      {rows}
    </>
  );
}
