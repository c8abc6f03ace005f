// What a call would do: the change of a file, a command with its sandbox, or its arguments.

import type { VNode } from "preact";
import { entriesOf, parsed } from "../lib/exact";
import { coloured } from "../lib/highlight";
import { count, seen, shown } from "../lib/text";
import type { CommandPreview, FilePreview, Question } from "../model/types";
import { Arguments } from "./arguments";
import { Diff } from "./diff";
import { Icon } from "./icons";

export function Call({
  question,
  loading,
  problem,
}: {
  question: Question;
  loading: boolean;
  problem: string;
}): VNode {
  const { preview, args_json: json } = question;
  const size = question.args_chars;
  if (loading && (typeof json !== "string" || isFileTool(question)))
    return <p class="quiet">Loading all of it{size ? ` (${count(size)} characters)` : ""}…</p>;
  const cut = typeof json !== "string" || parsed(json) === undefined;
  return (
    <div class="call">
      {preview ? null : (
        <p class="quiet tool">
          Call of <code>{shown(question.tool, 200)}</code>
        </p>
      )}
      {preview?.kind === "file" ? <FileChange question={question} preview={preview} /> : null}
      {preview?.kind === "command" ? <Command preview={preview} /> : null}
      {!preview && typeof json === "string" ? <Arguments json={json} /> : null}
      {preview && typeof json === "string" && hasMore(question, preview) ? (
        <details>
          <summary>Arguments</summary>
          <Arguments json={json} />
        </details>
      ) : null}
      {cut ? (
        <p class="refused">
          <Icon name="warn" />
          {typeof json === "string" && !json.endsWith("…")
            ? "The arguments are not valid JSON. They are shown as the model wrote them."
            : "The arguments are too long to show in full here, so you cannot approve this call " +
              "here. Open the server's own page in a browser, or reject the call."}
        </p>
      ) : null}
      {problem ? <p class="quiet">Details could not be loaded: {shown(problem, 500)}</p> : null}
    </div>
  );
}

/** Whether the arguments say more than the change or the command does. */
function hasMore(question: Question, preview: FilePreview | CommandPreview): boolean {
  const names = entriesOf(question.args_json ?? "")?.map(([name]) => name) ?? [];
  const said = preview.kind === "file" ? ["path", "content", "old_string", "new_string"] : ["command"];
  return names.some((one) => !said.includes(one));
}

function isFileTool(question: Question): boolean {
  return question.tool === "write_file" || question.tool === "edit_file";
}

function FileChange({ question, preview }: { question: Question; preview: FilePreview }): VNode {
  // Without the texts, or for what is no text, the arguments say what would be written.
  const shownWhole = preview.after !== null || (Boolean(preview.diff) && !preview.diff_cut);
  return (
    <>
      {preview.problem ? (
        <p class="refused">
          <Icon name="warn" />
          {shown(preview.problem, 1_000)}
        </p>
      ) : null}
      {shownWhole && !preview.binary ? (
        <Diff
          path={preview.path}
          before={preview.exists === false ? null : (preview.before ?? "")}
          after={preview.after}
          patch={preview.diff}
          added={preview.added}
          removed={preview.removed}
        />
      ) : (
        <Arguments json={question.args_json ?? ""} />
      )}
    </>
  );
}

function Command({ preview }: { preview: CommandPreview }): VNode {
  const { sandbox } = preview;
  return (
    <div class="terminal">
      <p class="where">
        <Icon name="terminal" />
        <code>{seen(preview.cwd)}</code>
      </p>
      <pre tabIndex={0} role="group" aria-label="Command">
        <span class="prompt" aria-hidden="true">
          ${" "}
        </span>
        {coloured(preview.command, "bash")}
      </pre>
      <p class="quiet">
        {sandbox.about
          ? shown(sandbox.about, 500)
          : sandbox.kind === "host"
            ? "Runs on this machine, without a sandbox."
            : `Runs in a sandbox (${shown(sandbox.kind, 40)}), ${sandbox.network ? "with" : "without"} network access.`}
        {preview.timeout ? ` Stopped after ${preview.timeout} s.` : ""}
      </p>
    </div>
  );
}
