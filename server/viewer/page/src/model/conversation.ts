// A thread as a conversation: a tree of agents, each with what it said and did, in order.

import { parsed } from "../lib/exact";
import type { Agent, Row, Shown } from "./rows";
import type { CallState } from "./words";
import type { Step, StepCall, Writing } from "./types";

const MAIN = ["main"];

/** Gathers steps, or events of a run where there is nothing else. */
export class Conversation {
  /** By namespace, or by path where only events are known. */
  readonly agents = new Map<string, Agent>();
  private readonly rows = new Map<string, Row>();
  /** The newest call of an id, and the newest agent of a chain of calls. */
  private readonly calls = new Map<string, Row>();
  private readonly chains = new Map<string, Agent>();
  private readonly thinking = new Map<Agent, Row>();
  private readonly begun = new Map<string, Agent[]>();
  private top: Agent | null = null;
  private lastSeq = 0;
  private writing: Row[] = [];
  missing = 0;
  /** How many rows have come at the end; what is loaded from before does not count. */
  appended = 0;

  get main(): Agent {
    return this.top ?? this.agent("", MAIN);
  }

  get after(): number {
    return this.lastSeq;
  }

  /** Return an agent, made if it is new; `path`: names and ids of calls in turn. */
  private agent(key: string, path: string[]): Agent {
    const found = this.agents.get(key);
    if (found) return found;
    const subagents = [...this.agents.values()].filter((one) => one.path.length > 2).length;
    const made: Agent = {
      key,
      path,
      name: path.at(-1) ?? "main",
      task: "",
      state: "works",
      rows: [],
      number: path.length > 2 ? subagents + 1 : 0,
      call: null,
    };
    this.agents.set(key, made);
    this.chains.set(chainOf(path), made);
    if (path.length > 2) {
      const callKey = chainOf(path);
      this.begun.set(callKey, [...(this.begun.get(callKey) ?? []), made]);
      const call = this.calls.get(callKey);
      if (call) this.bind(made, call);
    } else this.top ??= made;
    return made;
  }

  /** Return the agent of a path of events, and those above it. */
  private byPath(path: string[]): Agent {
    const chain = chainOf(path);
    const found = this.chains.get(chain);
    if (found) return found;
    if (path.length > 2) this.byPath(path.slice(0, -2));
    return this.agent(chain, path);
  }

  /** Return the agent of a namespace such as `task:call_1@step/task:call_2@step`. */
  private byNamespace(ns: string): Agent {
    const found = this.agents.get(ns);
    if (found) return found;
    if (!ns) return this.agent("", MAIN);
    const at = ns.lastIndexOf("/");
    const parent = this.byNamespace(at < 0 ? "" : ns.slice(0, at));
    const call = ns.slice(at + 1).replace(/^task:/, "").replace(/@[^@]*$/, "");
    const row = this.calls.get(chainOf([...parent.path, call]));
    const name = (row?.args as { subagent_type?: unknown } | undefined)?.subagent_type;
    return this.agent(ns, [...parent.path, call, typeof name === "string" ? name : "subagent"]);
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

  private put(agent: Agent, key: string, made: Partial<Row> & Pick<Row, "kind">): Row {
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
    agent.rows.push(row);
    this.appended += 1;
    return row;
  }

  // --- steps -----------------------------------------------------------------------------------

  /** Take in a page of steps; `older`: they come before all that is here. */
  takeSteps(steps: Step[], older = false): void {
    if (!older) {
      for (const step of steps) this.takeStep(step);
      return;
    }
    const appended = this.appended;
    const held = [...this.agents.values()].map((one) => [one, one.rows] as const);
    const calls = new Map(this.calls);
    const begun = new Map(this.begun);
    for (const [agent] of held) agent.rows = [];
    this.calls.clear();
    this.begun.clear();
    for (const step of steps) this.takeStep(step);
    for (const [agent, rows] of held) agent.rows = [...agent.rows, ...rows];
    this.appended = appended;
    // What began there may have ended here.
    for (const [key, row] of calls) {
      const before = this.calls.get(key);
      if (before?.state === "works" && !row.argsText) this.join(before, row);
      else this.calls.set(key, row);
    }
    for (const [key, agents] of begun) {
      const call = this.calls.get(key);
      for (const one of agents) if (call && !one.call) this.bind(one, call);
      this.begun.set(key, agents);
    }
  }

  /** Make one row of a call and of its result, which came on another page. */
  private join(call: Row, result: Row): void {
    const { text, state, images, cut, step, seconds } = result;
    const file = result.file ?? call.file;
    Object.assign(call, { text, state, images, cut, step, seconds, file });
    call.version += 1;
    result.agent.rows = result.agent.rows.filter((one) => one !== result);
    this.rows.delete(result.key);
    for (const one of call.agents) this.end(one, state);
  }

  private takeStep(step: Step): void {
    const agent = this.byNamespace(step.ns ?? "");
    const { key: id, time, text = "" } = step;
    const key = `${agent.key}\n${id}`;
    if (step.kind === "tool") return this.result(agent, step, key);
    if (step.kind !== "text") {
      const isTask = agent.path.length > 2 && step.kind === "user" && !agent.rows.length;
      if (isTask) {
        agent.task ||= text;
        return; // its call says it
      }
      const name = step.source ?? "";
      this.put(agent, key, { kind: step.kind, text, time, step, cut: step.cut, name, images: step.images });
      return;
    }
    if (step.agent) agent.name = step.agent;
    if (text || step.thinking || !step.calls?.length) {
      const { thinking, cut } = step;
      this.put(agent, key, { kind: "text", text, thinking, time, step, cut, name: agent.name });
    }
    for (const call of step.calls ?? []) this.called(agent, step, call, key);
  }

  private called(agent: Agent, step: Step, call: StepCall, key: string): void {
    const chain = chainOf([...agent.path, call.call_id]);
    const rowKey = `${key}\n${call.call_id}`;
    const ended = this.rows.get(rowKey)?.step;
    const row = this.put(agent, rowKey, {
      kind: "tool",
      name: call.name,
      args: parsed(call.args_json) ?? call.args_json,
      argsText: call.args_json,
      file: ended?.file ?? call.file,
      ...(!step.text && { answer: step }),
      ...(!ended && { time: step.time, state: "works" as const }),
    });
    this.calls.set(chain, row);
    const own = call.subagent_ns ? this.agents.get(call.subagent_ns) : undefined;
    if (own) this.bind(own, row);
    else for (const one of this.begun.get(chain) ?? []) if (!one.call) this.bind(one, row);
    if (call.subagent_ns && !own) this.bind(this.byNamespace(call.subagent_ns), row);
  }

  private result(agent: Agent, step: Step, key: string): void {
    const chain = chainOf([...agent.path, step.call_id ?? step.key]);
    const state: CallState = step.status === "error" ? "error" : "success";
    const call = this.calls.get(chain);
    const { text = "", images, cut, time } = step;
    const row = this.put(agent, call?.key ?? key, {
      kind: "tool",
      name: step.name ?? call?.name ?? "",
      text,
      state,
      images,
      step,
      cut,
      ...(step.file && { file: step.file }),
      seconds: call?.seconds ?? secondsBetween(call?.time, time),
      ...(!call && { time }),
    });
    this.calls.set(chain, row);
    for (const one of row.agents) this.end(one, state);
  }

  private end(agent: Agent, state: CallState): void {
    agent.state = state;
    for (const row of agent.rows) for (const one of row.agents) this.end(one, state);
  }

  /** Show what is being written right now. */
  takeWriting(writing: Writing[]): void {
    const gone = new Set(this.writing);
    this.writing = [];
    for (const { path, text, thinking } of writing) {
      if (!text && !thinking) continue;
      const agent = this.byPath(path.length ? path : MAIN);
      const key = `${agent.key}\nwriting`;
      const row = this.put(agent, key, { kind: "writing", text, thinking, name: agent.name, state: "works" });
      gone.delete(row);
      this.writing.push(row);
      if (agent.rows.at(-1) !== row) agent.rows = [...agent.rows.filter((one) => one !== row), row];
    }
    for (const row of gone) {
      row.agent.rows = row.agent.rows.filter((one) => one !== row);
      this.rows.delete(row.key);
    }
  }

  /** Mark the calls that wait for a person, by the paths of their questions. */
  markWaiting(paths: string[][]): void {
    const waiting = new Set(paths.map((path) => this.calls.get(chainOf(path))));
    for (const row of this.rows.values()) {
      if (row.kind !== "tool" || row.step) continue;
      const state = waiting.has(row) ? "waiting" : row.state === "waiting" ? "works" : row.state;
      if (state === row.state) continue;
      row.state = state;
      row.version += 1;
      for (const one of row.agents) one.state = state;
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
    const agent = this.byPath(path.length % 2 === 0 ? path.slice(0, -1) : path);
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
        const chain = chainOf(path);
        this.calls.set(chain, row);
        for (const one of this.begun.get(chain) ?? []) this.bind(one, row);
        return;
      }
      case "tool_end": {
        const row = this.put(agent, path.join("\n"), {
          kind: "tool",
          state: event.status,
          text: event.text ?? "",
          ...(Number.isInteger(event.changed?.added) && { file: event.changed }),
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

/** Return the calls that lead to an agent, or to a call of it. */
function chainOf(path: string[]): string {
  return path.filter((_, at) => at % 2 === 1).join("\n");
}

function secondsBetween(from: string | undefined, to: string | undefined): number | undefined {
  const seconds = (Date.parse(to ?? "") - Date.parse(from ?? "")) / 1000;
  return Number.isFinite(seconds) ? seconds : undefined;
}

function taskOf(call: Row): string {
  const args = call.args as { description?: unknown } | string | undefined;
  if (typeof args === "string") return args; // too long to have come whole
  return typeof args?.description === "string" ? args.description : "";
}
