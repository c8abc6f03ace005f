// The rows of a conversation: what people and models say, and what tools do.

import type { ComponentChild, VNode } from "preact";
import { Markdown } from "../lib/markdown";
import { memo } from "../lib/memo";
import { entriesOf, parsed, prettyJson } from "../lib/exact";
import { coloured, languageOf } from "../lib/highlight";
import { clock, duration, fullTime, oneLine, plural, shown } from "../lib/text";
import type { Agent, Row } from "../model/rows";
import type { Todo } from "../model/types";
import { brief, iconOf, inWords } from "../model/words";
import { Arguments } from "./arguments";
import { Changed, Diff } from "./diff";
import { Icon } from "./icons";
import { Todos } from "./todos";
import { useOpened } from "./virtual";

export interface RowActions {
  fold: (row: Row) => void;
  isFolded: (row: Row) => boolean;
  /** Loads what was cut. */
  whole?: (row: Row) => void;
  /** Opens what the model saw before it said this. */
  request?: (row: Row) => void;
}

/** `version`: rows change; a part whose attributes are the same would not be drawn anew. */
interface Drawn {
  row: Row;
  version: number;
  actions: RowActions;
}

interface RowProps {
  row: Row;
  version: number;
  depth: number;
  folded: boolean;
  actions: RowActions;
}

/** A guess, until it has been in sight. */
export function heightOf(row: Row): number {
  if (row.kind === "tool") return row.state === "error" ? 120 : 36;
  if (row.kind === "note") return 30;
  return 52 + Math.ceil(row.text.length / 90) * 22;
}

export const RowView = memo(function RowView({ row, depth, folded, actions }: RowProps): VNode {
  return (
    <div
      class="step"
      data-kind={row.kind}
      data-state={row.state}
      data-depth={Math.min(depth, 6)}
      data-hue={row.agent.number ? row.agent.number % 6 : undefined}
    >
      {bodyOf(row, folded, actions)}
    </div>
  );
});

function bodyOf(row: Row, folded: boolean, actions: RowActions): ComponentChild {
  switch (row.kind) {
    case "tool":
      return row.agents.length || row.name === "task" ? (
        <Handed row={row} version={row.version} folded={folded} actions={actions} />
      ) : (
        <Called row={row} version={row.version} actions={actions} />
      );
    case "note":
      return (
        <p class="note quiet">
          <Icon name="note" />
          <span dir="auto">
            {shown(row.name, 100)} {oneLine(brief(row.args), 300)}
          </span>
          <Time row={row} version={row.version} />
        </p>
      );
    case "notice":
      return <Notice row={row} version={row.version} actions={actions} />;
    case "user":
      return (
        <div class="said">
          <p class="speaker">
            Request
            <Time row={row} version={row.version} />
          </p>
          <Markdown text={row.text} />
          <Cut row={row} version={row.version} actions={actions} />
        </div>
      );
    default:
      return (
        <div class="said">
          <p class="speaker">
            {shown(row.agent.name, 100)}
            <Time row={row} version={row.version} />
            {row.kind === "text" ? <Saw row={row} version={row.version} actions={actions} /> : null}
          </p>
          {row.thinking ? (
            <details class="thinking">
              <summary>Thinking</summary>
              <Markdown text={row.thinking} />
            </details>
          ) : null}
          {row.text ? <Markdown text={row.text} /> : null}
          {row.kind === "writing" ? (
            <span class="writing">{row.text ? "" : "Thinking"}</span>
          ) : null}
          <Cut row={row} version={row.version} actions={actions} />
        </div>
      );
  }
}

/** What middleware tells a model: one line until it is opened. */
function Notice({ row, actions }: Drawn): VNode {
  const [open, setOpen] = useOpened(row.key, false);
  return (
    <details class="tool" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Icon name="note" />
        <span class="what">
          Notice{row.name ? ` from ${shown(row.name, 60)}` : ""}: <span dir="auto">{oneLine(row.text)}</span>
        </span>
        <Time row={row} version={row.version} />
      </summary>
      {open ? (
        <div class="body">
          <Markdown text={row.text} />
          <Cut row={row} version={row.version} actions={actions} />
        </div>
      ) : null}
    </details>
  );
}

function Time({ row }: Omit<Drawn, "actions">): VNode | null {
  if (!row.time) return null;
  return (
    <time dateTime={shown(row.time, 40)} title={fullTime(row.time)}>
      {row.seconds && row.seconds >= 0.1 ? (
        <span class="took">{duration(row.seconds)} · </span>
      ) : null}
      {clock(row.time)}
    </time>
  );
}

/** Opens what the model saw before it said something, or called a tool. */
function Saw({ row, actions }: Drawn): VNode | null {
  if (!(row.answer ?? row.step)?.checkpoint_id || !actions.request) return null;
  return (
    <button type="button" class="link faint" onClick={() => actions.request?.(row)}>
      What the model saw
    </button>
  );
}

function Cut({ row, actions }: Drawn): VNode | null {
  const size = row.cut && Object.values(row.cut)[0];
  if (!size) return null;
  return (
    <p class="quiet">
      Only the beginning of {size.toLocaleString()} characters.{" "}
      {actions.whole ? (
        <button type="button" class="link" onClick={() => actions.whole?.(row)}>
          Show all
        </button>
      ) : null}
    </p>
  );
}

const STATE_WORDS = { works: "at work", success: "done", error: "failed", waiting: "waits for an answer" };

/** A call of a tool: one line until it is opened; errors open by themselves. */
function Called({ row, actions }: Drawn): VNode {
  const [open, setOpen] = useOpened(row.key, row.state === "error");
  const { verb, about, code } = inWords(row.name, row.args, row.state);
  return (
    <details class="tool" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary title={shown(row.name, 200)}>
        <Icon name={row.state === "error" ? "warn" : iconOf(row.name)} />
        <span class="what">
          {verb} {code ? <code dir="auto">{oneLine(about)}</code> : <span dir="auto">{oneLine(about)}</span>}
        </span>
        <Extent row={row} version={row.version} />
        <span class="unseen">{`, ${STATE_WORDS[row.state]}`}</span>
        <Time row={row} version={row.version} />
      </summary>
      {open ? <CallBody row={row} version={row.version} actions={actions} /> : null}
    </details>
  );
}

function Extent({ row }: Omit<Drawn, "actions">): VNode | null {
  const { file } = row;
  if (typeof file?.removed === "number") return <Changed added={file.added} removed={file.removed} />;
  // What it replaces is not known, or not yet.
  return file ? <span class="changed">{plural(file.added, "line")}</span> : null;
}

function CallBody({ row, actions }: Drawn): VNode {
  const given = (row.args ?? {}) as Record<string, unknown>;
  const path = typeof given.path === "string" ? given.path : "";
  const text = (name: string) => (typeof given[name] === "string" ? (given[name] as string) : null);
  const old = text("old_string");
  const made = text("new_string");
  const content = text("content");
  const json = row.argsText ?? (typeof row.args === "string" ? row.args : JSON.stringify(row.args ?? {}));
  const todos = row.name === "write_todos" && Array.isArray(given.todos) ? (given.todos as Todo[]) : null;
  const isEdit = row.name === "edit_file" && old !== null && made !== null;
  const isWrite = row.name === "write_file" && content !== null;
  return (
    <div class="body">
      {isEdit ? (
        <Diff path={path} before={old} after={made} added={row.file?.added} removed={row.file?.removed} />
      ) : null}
      {isWrite ? <Written row={row} path={path} content={content} /> : null}
      {todos ? <Todos todos={todos} /> : null}
      {!isEdit && !isWrite && !todos ? (
        <>
          <p class="label">
            <code>{shown(row.name, 200)}</code>
          </p>
          {row.name === "execute" && text("command") !== null ? (
            <pre tabIndex={0} role="group" aria-label="Command" class="command">
              {coloured(text("command")!, "bash")}
            </pre>
          ) : entriesOf(json)?.length === 0 ? null : (
            <Arguments json={json} />
          )}
        </>
      ) : null}
      {row.images?.map((image) =>
        image.data && /^image\/(png|jpeg|gif|webp)$/.test(image.mime) ? (
          <img src={`data:${image.mime};base64,${image.data}`} alt="Part of the result" />
        ) : (
          <p class="quiet">[image: {shown(image.mime, 200)}]</p>
        ),
      )}
      {row.text && !(todos && !given.merge && row.state === "success") ? (
        <>
          <p class="label">{row.state === "error" ? "What went wrong" : "Result"}</p>
          <Result text={row.text} path={row.name === "read_file" ? path : ""} />
        </>
      ) : row.state === "works" ? (
        <p class="quiet">Still running.</p>
      ) : null}
      <Cut row={row} version={row.version} actions={actions} />
      {row.answer ? <Saw row={row} version={row.version} actions={actions} /> : null}
    </div>
  );
}

/** What a call writes; what it replaced is not stored with it. */
function Written({ row, path, content }: { row: Row; path: string; content: string }): VNode {
  if (row.file?.created) return <Diff path={path} before={null} after={content} />;
  return (
    <>
      <p class="label">
        <code>{shown(path, 1_000)}</code>
      </p>
      <pre tabIndex={0} role="group" aria-label="Content">
        {coloured(content, languageOf(path))}
      </pre>
    </>
  );
}

function Result({ text, path }: { text: string; path: string }): VNode {
  const start = text.trimStart()[0];
  const value = start === "{" || start === "[" ? parsed(text) : undefined;
  return (
    <pre tabIndex={0} role="group" aria-label="Result">
      {value !== undefined
        ? coloured(text.includes("\n") ? text : prettyJson(value), "json")
        : path
          ? coloured(text, languageOf(path))
          : shown(text, 200_000)}
    </pre>
  );
}

/** A task that was given to a subagent: its steps are below it, and can be folded. */
function Handed({ row, folded, actions }: Drawn & { folded: boolean }): VNode {
  const first = row.agents[0];
  const name = first?.name ?? nameOf(row.args);
  const steps = row.agents.reduce((sum, one) => sum + stepsOf(one), 0);
  const [open, setOpen] = useOpened(row.key, row.state === "error");
  const task = first?.task || brief(row.args);
  const saw = row.answer ? <Saw row={row} version={row.version} actions={actions} /> : null;
  return (
    <div class="handed" data-hue={first?.number ? first.number % 6 : undefined}>
      <button
        type="button"
        class="fold"
        aria-expanded={!folded}
        disabled={!row.agents.length}
        onClick={() => actions.fold(row)}
      >
        <Icon name={folded || !row.agents.length ? "right" : "down"} />
        <Icon name="agent" />
        <span class="what">
          <strong>{shown(name, 100)}</strong> <span dir="auto">{oneLine(task, 200)}</span>
        </span>
        <span class="quiet state">
          {STATE_WORDS[row.state]}
          {steps ? `, ${plural(steps, "step")}` : ""}
        </span>
        <Time row={row} version={row.version} />
      </button>
      {row.text ? (
        <details class="tool" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>
            <Icon name={row.state === "error" ? "warn" : "check"} />
            <span class="what">{row.state === "error" ? "What went wrong" : "What it reported"}</span>
          </summary>
          {open ? (
            <div class="body">
              <Markdown text={row.text} />
              <Cut row={row} version={row.version} actions={actions} />
              {saw}
            </div>
          ) : null}
        </details>
      ) : folded ? null : (
        <div class="body">{saw}</div>
      )}
    </div>
  );
}

function nameOf(args: unknown): string {
  const name = (args as { subagent_type?: unknown } | null)?.subagent_type;
  return typeof name === "string" ? name : "subagent";
}

export function stepsOf(agent: Agent): number {
  return agent.rows.reduce(
    (sum, row) => sum + 1 + row.agents.reduce((below, one) => below + stepsOf(one), 0),
    0,
  );
}
