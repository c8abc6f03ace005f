// What a thread is about, beside its conversation: todos, files, agents and cost, history.

import type { Signal } from "@preact/signals";
import type { VNode } from "preact";
import type { Thread } from "../model/thread";
import type { Todo } from "../model/types";
import { Todos } from "../parts/todos";
import { Agents } from "./agents";
import { Files } from "./files";
import { History } from "./history";

export type Tab = "todos" | "files" | "agents" | "history";
export type Attempt = (act: () => Promise<unknown>) => Promise<void>;

export const TABS: { id: Tab; label: string }[] = [
  { id: "todos", label: "Todos" },
  { id: "files", label: "Files" },
  { id: "agents", label: "Agents" },
  { id: "history", label: "History" },
];

/** Have the arrow keys choose the next or the previous tab. */
export function moveTab<T>(event: KeyboardEvent, all: T[], chosen: Signal<T>): void {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const at = Math.max(0, all.indexOf(chosen.value));
  chosen.value = all[(at + step + all.length) % all.length]!;
  const list = event.currentTarget as HTMLElement;
  setTimeout(() => list.querySelector<HTMLElement>("[aria-selected=true]")?.focus());
}

export function Panel({
  thread,
  tab,
  attempt,
}: {
  thread: Thread;
  tab: Signal<Tab | "talk">;
  attempt: Attempt;
}): VNode {
  const here = tab.value === "talk" ? "todos" : tab.value;
  return (
    <aside class="panel" aria-label="About the thread">
      <div class="tabs" role="tablist" aria-label="About the thread" onKeyDown={(event) => moveTab(event, TABS.map((one) => one.id), tab)}>
        {TABS.map((one) => (
          <button
            type="button"
            role="tab"
            id={`tab-${one.id}`}
            aria-selected={one.id === here}
            aria-controls="panel"
            tabIndex={one.id === here ? 0 : -1}
            onClick={() => (tab.value = one.id)}
          >
            {one.label}
            {one.id === "todos" ? <Progress todos={thread.overview.value!.todos} /> : null}
          </button>
        ))}
      </div>
      <div
        class="panel-body"
        id="panel"
        role="tabpanel"
        aria-labelledby={`tab-${here}`}
        tabIndex={0}
      >
        {here === "todos" ? <Todos todos={thread.overview.value!.todos} /> : null}
        {here === "files" ? <Files thread={thread} /> : null}
        {here === "agents" ? <Agents thread={thread} /> : null}
        {here === "history" ? <History thread={thread} attempt={attempt} /> : null}
      </div>
    </aside>
  );
}

function Progress({ todos }: { todos: Todo[] }): VNode | null {
  if (!todos.length) return null;
  const done = todos.filter((one) => one.status === "completed").length;
  return (
    <span class="quiet">
      {" "}
      {done}/{todos.length}
    </span>
  );
}
