// What a run has done, gathered from its events: a tree of agents, and steps in their order.

const MOST_ROWS = 300;

/**
 * `agents`: the main agent and those below it, as { name, task, state, children }.
 * `rows`: steps as { kind, agent, name, args, state, text, time }, oldest first.
 */
class RunLog {
  constructor() {
    this.after = 0;
    this.missing = 0;
    this.dropped = 0;
    this.rows = [];
    this.top = null;
    this.byPath = new Map();
    this.calls = new Map();
    this.begun = new Map();
    this.thinking = new Map();
  }

  /** Take in a page of events; return the rows that are new, changed or gone. */
  take(page) {
    const touched = new Set();
    this.missing += page.events_missing ?? 0;
    for (const event of page.events ?? []) {
      if (!(event.seq > this.after)) continue;
      this.after = event.seq;
      this.hear(event, touched);
    }
    while (this.rows.length > MOST_ROWS) {
      const old = this.rows.shift();
      old.gone = true;
      if (old.key && old.state !== "works") this.calls.delete(old.key);
      this.dropped += 1;
      touched.add(old);
    }
    return touched;
  }

  hear(event, touched) {
    const path = Array.isArray(event.path) && event.path.length ? event.path.map(String) : ["main"];
    const inCall = path.length % 2 === 0;
    const agent = this.agent(inCall ? path.slice(0, -1) : path);
    switch (event.mode === "tasks" ? event.event : event.mode) {
      case "model_start":
        this.thinks(agent, event, touched);
        break;
      case "model_end":
        this.thought(agent, event, touched);
        break;
      case "tool_start":
        this.calling(path, agent, event, touched);
        break;
      case "tool_end":
        this.called(path, agent, event, touched);
        break;
      default:
        this.noted(agent, event, touched);
    }
  }

  agent(path) {
    const key = path.join("\n");
    let found = this.byPath.get(key);
    if (found) return found;
    const callKey = path.slice(0, -1).join("\n");
    const call = this.calls.get(callKey);
    found = { name: path.at(-1), task: taskOf(call), state: "works", children: [] };
    this.byPath.set(key, found);
    this.begun.set(callKey, [...(this.begun.get(callKey) ?? []), found]);
    if (path.length >= 3) this.agent(path.slice(0, -2)).children.push(found);
    else this.top ??= found;
    return found;
  }

  add(row, touched) {
    this.rows.push(row);
    touched.add(row);
    return row;
  }

  thinks(agent, event, touched) {
    agent.state = "works";
    if (this.thinking.has(agent)) return; // begun anew after a restart
    const row = { kind: "model", agent, name: "thinks", state: "works", time: event.time };
    this.thinking.set(agent, this.add(row, touched));
  }

  thought(agent, event, touched) {
    const row = this.thinking.get(agent) ?? this.add({ kind: "model", agent }, touched);
    this.thinking.delete(agent);
    Object.assign(row, { name: "says", state: "success", text: event.text, time: event.time });
    row.gone = !event.text; // it only calls tools, which have rows of their own
    if (row.gone) this.rows.splice(this.rows.lastIndexOf(row), 1);
    touched.add(row);
  }

  calling(path, agent, event, touched) {
    const key = path.join("\n");
    const row = this.calls.get(key) ?? this.add({ kind: "tool", agent, key }, touched);
    Object.assign(row, { name: event.name, args: event.args, state: "works", time: event.time });
    this.calls.set(key, row);
    touched.add(row);
  }

  called(path, agent, event, touched) {
    const key = path.join("\n");
    if (!this.calls.has(key)) this.calling(path, agent, event, touched);
    const row = this.calls.get(key);
    Object.assign(row, { state: event.status, text: event.text });
    touched.add(row);
    const end = (one) => {
      one.state = row.state;
      one.children.forEach(end);
    };
    this.begun.get(key)?.forEach(end);
  }

  noted(agent, event, touched) {
    const { seq, time, path, mode, event: name, ...data } = event;
    const told = toldBy(data.data);
    if (told.event === "todos" || told.event === "model_asked_again") return; // seen elsewhere
    const waits = told.event === "model_retry";
    const args = waits ? told.text : "data" in data ? data.data : data;
    const row = { kind: "note", agent, name: waits ? "waits" : (name ?? mode), args, time };
    this.add({ ...row, state: "success" }, touched);
  }
}

/** What middleware notes, as { event, text }; of long notes only the beginning has come. */
function toldBy(data) {
  if (typeof data !== "string") return data ?? {};
  const [, event, text] = /^\{"event": "(\w+)"(?:, "text": "([^"\\]*)")?/.exec(data) ?? [];
  return { event, text };
}

function taskOf(call) {
  const args = call?.args;
  if (typeof args === "string") return args; // too long to have come whole
  return typeof args?.description === "string" ? args.description : "";
}
