// What calls of tools do, in plain words.

import { shown } from "../lib/text";
import type { IconName } from "../parts/icons";

export type CallState = "works" | "success" | "error" | "waiting";

interface Words {
  icon: IconName;
  /** While it works, once it is done, and what it would do. */
  verbs: [string, string, string];
  /** The argument that says what it is about. */
  about?: string;
}

const TOOLS: Record<string, Words> = {
  write_file: { icon: "file", verbs: ["Writing", "Wrote", "write"], about: "path" },
  edit_file: { icon: "edit", verbs: ["Editing", "Edited", "edit"], about: "path" },
  read_file: { icon: "book", verbs: ["Reading", "Read", "read"], about: "path" },
  ls: { icon: "folder", verbs: ["Listing", "Listed", "list"], about: "path" },
  glob: { icon: "search", verbs: ["Looking for", "Looked for", "look for"], about: "pattern" },
  grep: { icon: "search", verbs: ["Searching for", "Searched for", "search for"], about: "pattern" },
  execute: { icon: "terminal", verbs: ["Running", "Ran", "run"], about: "command" },
  job: { icon: "terminal", verbs: ["Checking job", "Checked job", "check job"], about: "job_id" },
  skill: { icon: "book", verbs: ["Loading skill", "Loaded skill", "load skill"], about: "name" },
  task: { icon: "agent", verbs: ["Delegating", "Delegated", "delegate"], about: "description" },
  write_todos: { icon: "todo", verbs: ["Updating", "Updated", "update"] },
};

export function iconOf(tool: string): IconName {
  return Object.hasOwn(TOOLS, tool) ? TOOLS[tool]!.icon : "tool";
}

const TELLING = [
  "description", "command", "pattern", "path", "query", "question", "url", "name", "goal", "message",
];

/** Return what a call is about in a few words. */
export function brief(args: unknown): string {
  if (typeof args === "string") return args;
  if (args === null || typeof args !== "object") return "";
  const given = args as Record<string, unknown>;
  const key = TELLING.find((one) => typeof given[one] === "string");
  if (key) return given[key] as string;
  const text = JSON.stringify(args);
  return text === "{}" ? "" : text;
}

/** Return a call in plain words: what it did, and to what. */
export function inWords(
  tool: string,
  args: unknown,
  state: CallState,
): { verb: string; about: string; code: boolean } {
  const words = Object.hasOwn(TOOLS, tool) ? TOOLS[tool]! : undefined;
  if (!words) {
    const verbs = { works: "Calling", success: "Called", error: "Failed to call", waiting: "Wants to call" };
    const about = brief(args);
    return { verb: verbs[state], about: about ? `${tool}: ${about}` : tool, code: false };
  }
  const [working, done, would] = words.verbs;
  const verb = {
    works: working,
    success: done,
    error: `Failed to ${would}`,
    waiting: `Wants to ${would}`,
  }[state];
  const given = (args !== null && typeof args === "object" ? args : {}) as Record<string, unknown>;
  if (tool === "write_todos") {
    const todos = Array.isArray(given.todos) ? (given.todos as { status?: string }[]) : [];
    const finished = todos.filter((one) => one.status === "completed").length;
    return { verb, about: `the todo list: ${finished} of ${todos.length} done`, code: false };
  }
  const about = words.about ? given[words.about] : undefined;
  return {
    verb,
    about: typeof about === "string" ? about : brief(args),
    code: tool !== "task",
  };
}

/** Return an agent's name; the one that everybody has is no name of anybody's choice. */
export function agentName(name: string, most = 60): string {
  return name === "main" ? "the main agent" : shown(name, most);
}

export const STATUS_WORDS: Record<string, string> = {
  running: "running",
  queued: "queued",
  needs_approval: "needs an answer",
  paused: "paused",
  done: "done",
  failed: "failed",
  cancelled: "cancelled",
  idle: "idle",
};

export const ENDED = ["done", "failed", "cancelled"];
