// A thread as a conversation: a tree of agents, each with what it said and did, in order.

import { parsed } from "../lib/exact";
import type { CallState } from "./words";
import type { Step, Writing } from "./types";

export interface Agent {
  key: string;
  path: string[];
  name: string;
  task: string;
  state: CallState;
  rows: Row[];
  /** Which of the agents below the main one this is, for its colour. */
  number: number;
  call: Row | null;
}

export interface Row {
  key: string;
  kind: "user" | "notice" | "text" | "tool" | "note" | "writing";
  agent: Agent;
  time?: string;
  seconds?: number | null;
  /** Of a tool: its result. */
  text: string;
  thinking?: string;
  name: string;
  args?: unknown;
  argsText?: string;
  state: CallState;
  file?: { path: string; added: number; removed: number } | null;
  images?: Step["images"];
  agents: Agent[];
  cut?: Record<string, number>;
  step?: Step;
  /** Counts up with every change: what is drawn is drawn anew. */
  version: number;
}

export interface Shown {
  row: Row;
  depth: number;
  key: string;
}

const MAIN = ["main"];

/** Gathers steps, or events of a run where there is nothing else. */
export class Conversation {
  readonly agents = new Map<string, Agent>();
  private readonly rows = new Map<string, Row>();
  private readonly thinking = new Map<Agent, Row>();
  private readonly begun = new Map<string, Agent[]>();
  private top: Agent | null = null;
  private lastSeq = 0;
  private writing: Row[] = [];
  missing = 0;

  get main(): Agent {
    return this.top ?? this.agent(MAIN);
  }

  get after(): number {
    return this.lastSeq;
  }

  get size(): number {
    let size = 0;
    for (const one of this.agents.values()) size += one.rows.length;
    return size;
  }

  agent(path: string[]): Agent {
    const key = path.join("\n");
    const found = this.agents.get(key);
    if (found) return found;
    const callKey = path.slice(0, -1).join("\n");
    const call = path.length > 2 ? (this.rows.get(callKey) ?? null) : null;
    const made: Agent = {
      key,
      path,
      name: path.at(-1) ?? "main",
      task: "",
      state: "works",
      rows: [],
      number: path.length > 2 ? [...this.agents.values()].filter((one) => one.path.length > 2).length + 1 : 0,
      call,
    };
    this.agents.set(key, made);
    if (path.length > 2) {
      this.agent(path.slice(0, -2));
      if (call) this.bind(made, call);
      this.begun.set(callKey, [...(this.begun.get(callKey) ?? []), made]);
    } else this.top ??= made;
    return made;
  }

  private bind(agent: Agent, call: Row): void {
    agent.call = call;
    agent.task ||= taskOf(call);
    if (call.state !== "works") agent.state = call.state;
    if (!call.agents.includes(agent)) {
      call.agents = [...call.agents, agent];
      call.version += 1;
    }
  }

  private put(agent: Agent, key: string, made: Partial<Row> & Pick<Row, "kind">, first = false): Row {
    const found = this.rows.get(key);
    if (found) {
      Object.assign(found, made);
      found.version += 1;
      return found;
    }
    const row: Row = {
      key,
      agent,
      text: "",
      name: "",
      state: "success",
      agents: [],
      version: 0,
      ...made,
    };
    this.rows.set(key, row);
    if (first) agent.rows.unshift(row);
    else agent.rows.push(row);
    return row;
  }

  // --- steps -----------------------------------------------------------------------------------

  /** Take in a page of steps; `older`: they come before all that is here. */
  takeSteps(steps: Step[], older = false): void {
    const held = older ? [...this.agents.values()].map((one) => [one, one.rows] as const) : [];
    if (older) for (const [agent] of held) agent.rows = [];
    for (const step of steps) this.takeStep(step);
    for (const [agent, rows] of held) agent.rows = [...agent.rows, ...rows];
  }

  private takeStep(step: Step): void {
    const path = step.path.length ? step.path : MAIN;
    const agent = this.agent(path.length % 2 ? path : path.slice(0, -1));
    const { key, time, text = "" } = step;
    if (step.kind === "tool") return this.result(agent, step);
    if (step.kind !== "text") {
      const own = agent.path.length > 2 && step.kind === "user";
      if (own) agent.task ||= text; // a subagent's first message is its task
      if (own && agent.call) return;
      this.put(agent, key, { kind: step.kind, text, time, step, cut: step.cut, name: step.source ?? "" });
      return;
    }
    if (text || step.thinking || !step.calls?.length)
      this.put(agent, key, {
        kind: "text",
        text,
        thinking: step.thinking,
        time,
        step,
        cut: step.cut,
        name: agent.name,
      });
    for (const call of step.calls ?? []) {
      const callKey = [...agent.path, call.call_id].join("\n");
      const args = parsed(call.args_json);
      const known = this.rows.get(callKey);
      const row = this.put(agent, callKey, {
        kind: "tool",
        name: call.name,
        args: args ?? call.args_json,
        argsText: call.args_json,
        time: known?.time ?? time,
        state: known?.step ? known.state : "works",
      });
      for (const one of this.begun.get(callKey) ?? []) this.bind(one, row);
    }
  }

  private result(agent: Agent, step: Step): void {
    const callKey = [...agent.path, step.call_id ?? step.key].join("\n");
    const state: CallState = step.status === "error" ? "error" : "success";
    const row = this.put(agent, callKey, {
      kind: "tool",
      name: step.name ?? "",
      text: step.text ?? "",
      time: step.time,
      state,
      file: step.file,
      images: step.images,
      seconds: step.seconds,
      step,
      cut: step.cut,
      ...(step.args_json !== undefined && {
        args: parsed(step.args_json) ?? step.args_json,
        argsText: step.args_json,
      }),
    });
    if (step.subagent?.name) {
      const sub = this.agent([...agent.path, step.call_id ?? step.key, step.subagent.name]);
      sub.task ||= step.subagent.task;
      this.bind(sub, row);
    }
    for (const one of row.agents) this.end(one, state);
  }

  private end(agent: Agent, state: CallState): void {
    agent.state = state;
    for (const row of agent.rows) for (const one of row.agents) this.end(one, state);
  }

  /** Show what is being written right now. */
  takeWriting(writing: Writing[]): void {
    for (const row of this.writing) {
      row.agent.rows = row.agent.rows.filter((one) => one !== row);
      this.rows.delete(row.key);
    }
    this.writing = writing
      .filter((one) => one.text)
      .map(({ path, text }) => {
        const agent = this.agent(path.length ? path : MAIN);
        return this.put(agent, `${agent.key}\nwriting`, {
          kind: "writing",
          text,
          name: agent.name,
          state: "works",
        });
      });
  }

  /** Mark the calls that wait for a person. */
  markWaiting(keys: Set<string>): void {
    for (const [key, row] of this.rows) {
      if (row.kind !== "tool" || row.step) continue;
      const state = keys.has(key) ? "waiting" : row.state === "waiting" ? "works" : row.state;
      if (state === row.state) continue;
      row.state = state;
      row.version += 1;
    }
  }

  // --- events ----------------------------------------------------------------------------------

  /** Take in a page of events of a run. */
  takeEvents(page: Record<string, any>): void {
    this.missing += Number(page.events_missing ?? 0);
    for (const event of page.events ?? []) {
      if (!(event.seq > this.lastSeq)) continue;
      this.lastSeq = event.seq;
      this.hear(event);
    }
  }

  private hear(event: Record<string, any>): void {
    const path =
      Array.isArray(event.path) && event.path.length ? event.path.map(String) : MAIN;
    const agent = this.agent(path.length % 2 === 0 ? path.slice(0, -1) : path);
    const time = event.time as string;
    switch (event.mode === "tasks" ? event.event : event.mode) {
      case "model_start":
        agent.state = "works";
        if (!this.thinking.has(agent)) {
          const key = `${agent.key}\n#${event.seq}`;
          this.thinking.set(agent, this.put(agent, key, { kind: "writing", state: "works", time, name: agent.name }));
        }
        return;
      case "model_end":
        return this.thought(agent, event);
      case "tool_start": {
        const row = this.put(agent, path.join("\n"), {
          kind: "tool",
          name: event.name ?? "",
          args: event.args,
          state: "works",
          time,
        });
        for (const one of this.begun.get(row.key) ?? []) this.bind(one, row);
        return;
      }
      case "tool_end": {
        const row = this.put(agent, path.join("\n"), {
          kind: "tool",
          state: event.status,
          text: event.text ?? "",
        });
        for (const one of row.agents) this.end(one, row.state);
        return;
      }
      default:
        this.noted(agent, event);
    }
  }

  private thought(agent: Agent, event: Record<string, any>): void {
    const key = `${agent.key}\n#${event.seq}`;
    const row = this.thinking.get(agent) ?? this.put(agent, key, { kind: "text" });
    this.thinking.delete(agent);
    Object.assign(row, { kind: "text", state: "success", text: event.text ?? "", time: event.time });
    row.version += 1;
    // It only calls tools, which have rows of their own.
    if (!event.text) agent.rows = agent.rows.filter((one) => one !== row);
  }

  private noted(agent: Agent, event: Record<string, any>): void {
    const { seq, time, path: _path, mode, event: name, ...data } = event;
    const told = toldBy(data.data);
    if (told.event === "todos" || told.event === "model_asked_again") return; // seen elsewhere
    const waits = told.event === "model_retry";
    const args = waits ? told.text : "data" in data ? data.data : data;
    this.put(agent, `${agent.key}\n#${seq}`, {
      kind: "note",
      name: waits ? "waits" : String(name ?? mode),
      args,
      time,
    });
  }

  // --- what is shown ---------------------------------------------------------------------------

  /** Return all rows in the order of reading; `folded`: keys of calls whose agents are hidden. */
  flat(folded: (row: Row) => boolean, only: string | null = null): Shown[] {
    const found: Shown[] = [];
    const visit = (agent: Agent, depth: number) => {
      for (const row of agent.rows) {
        found.push({ row, depth, key: row.key });
        if (row.agents.length && !folded(row)) for (const one of row.agents) visit(one, depth + 1);
      }
    };
    const start = only === null ? this.main : this.agents.get(only);
    if (start) visit(start, 0);
    if (only === null)
      for (const one of this.agents.values()) {
        const orphan = one.path.length > 2 ? one.call === null : one !== this.main;
        if (orphan) visit(one, one.path.length > 2 ? 1 : 0);
      }
    return found;
  }
}

/** What middleware notes, as { event, text }; of long notes only the beginning has come. */
function toldBy(data: unknown): { event?: string; text?: string } {
  if (typeof data !== "string") return (data ?? {}) as { event?: string; text?: string };
  const [, event, text] = /^\{"event": "(\w+)"(?:, "text": "([^"\\]*)")?/.exec(data) ?? [];
  return { event, text };
}

function taskOf(call: Row): string {
  const args = call.args as { description?: unknown } | string | undefined;
  if (typeof args === "string") return args; // too long to have come whole
  return typeof args?.description === "string" ? args.description : "";
}
