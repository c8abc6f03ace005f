// How a run looks: built once, then changed piece by piece as it goes on.

const TODO_MARKS = { pending: "☐", in_progress: "▶", completed: "☑" };
const AGENT_WORDS = {
  works: "works",
  success: "done",
  error: "failed",
  waiting: "waits for an answer",
};
const STATES = {
  running: "works",
  needs_approval: "waiting",
  done: "success",
  failed: "error",
  cancelled: "cancelled",
  paused: "paused",
};
const MOST_AGENTS = 50;
const ENDED = ["done", "failed", "cancelled"];

class RunPage {
  /** `acts`: { answer, cancel, goOn, transcript, rest }, as the person may ask for them. */
  constructor(acts) {
    this.acts = acts;
    this.log = new RunLog();
    this.made = new Map();
    this.goal = el("h2", { dir: "auto", tabindex: "-1" }, "A run");
    this.mark = el("span", { role: "status" });
    this.ids = el("span", { class: "quiet" });
    this.buttons = el("span", { class: "row" });
    this.refused = el("p", { class: "refused", role: "alert", hidden: true });
    this.pending = el("section", { "aria-label": "Questions", hidden: true });
    this.questions = new Questions(this.pending, acts.answer);
    this.outcome = el("section", { "aria-label": "Outcome" });
    this.steps = el("ol", { id: "steps", tabindex: "0", "aria-label": "Steps" });
    this.doing = el("p", { id: "doing", class: "quiet", hidden: true });
    this.before = el("p", { class: "quiet", hidden: true });
    this.todos = el("ul", { class: "todos" });
    this.agents = el("div", { class: "agents" });
    this.cost = el("div");
    this.runs = el("section", { hidden: true });
    this.transcript = el("section", { hidden: true });
    this.element = el(
      "div",
      {},
      el("div", {}, this.goal, el("div", { class: "row" }, this.mark, this.ids, this.buttons)),
      this.refused,
      this.pending,
      this.outcome,
      el(
        "div",
        { class: "panes" },
        el(
          "div",
          {},
          el("section", {}, el("h3", {}, "Steps"), this.before, this.steps, this.doing),
        ),
        el(
          "div",
          {},
          el("section", {}, el("h3", {}, "Todos"), this.todos),
          el("section", {}, el("h3", {}, "Agents"), this.agents),
          el("section", {}, el("h3", {}, "Used"), this.cost),
          this.runs,
        ),
      ),
      this.transcript,
    );
    this.showTodos([]);
  }

  /** Show what `wait` said. */
  showRun(data) {
    const changed = data.status !== this.status;
    this.status = data.status;
    this.showEvents(this.log.take(data));
    this.showAgents();
    this.doing.hidden = data.status !== "running";
    say(this.doing, `Right now: ${data.doing ? oneLine(data.doing, 300) : "it works"}`);
    if (data.usage) this.showCost(data.usage);
    if (!this.cost.hasChildNodes()) say(this.cost, "No model was asked yet.");
    if (data.status !== "running" && !isCrowded(data))
      this.questions.show(data.pending ?? [], isCut(data));
    if (changed || data.reason !== this.reason) this.showReason(data.reason);
    if (!changed) return;
    this.mark.replaceChildren(statusMark(data.status));
    this.ids.replaceChildren(el("code", {}, shown(data.run_id, 100)));
    this.showButtons();
  }

  showReason(reason) {
    this.reason = reason;
    this.outcome.replaceChildren();
    if (reason) this.outcome.append(el("p", { class: "text" }, `Reason: ${shown(reason)}`));
  }

  /** Show a thread as `threads` says it is: the goal, todos, and what is asked meanwhile. */
  showThread(thread, runId, linked) {
    const run = (thread.runs ?? []).find((one) => one.run_id === runId);
    if (run?.goal) say(this.goal, shown(run.goal) + (run.goal.length >= 120 ? " …" : ""));
    document.title = `${this.goal.textContent.slice(0, 60)} · Deep Agent`;
    this.showTodos(thread.todos ?? []);
    if (this.status === "running") this.questions.show(thread.pending ?? [], isCut(thread));
    const others = (thread.runs ?? []).filter((one) => one.run_id !== runId);
    this.runs.hidden = !linked || others.length === 0;
    fill(this.runs, others, () => [
      el("h3", {}, "Other runs of this thread"),
      el(
        "ul",
        {},
        others.map((one) => el("li", {}, runLink(one), " ", statusMark(one.status))),
      ),
    ]);
  }

  hasAnswer() {
    return this.outcome.querySelector(".answer") !== null;
  }

  showAnswer(text, rest) {
    this.outcome.querySelectorAll("button").forEach((one) => one.remove());
    const place =
      this.outcome.querySelector(".answer") ??
      this.outcome.appendChild(el("div", { class: "answer text", dir: "auto" }));
    place.append(shown(text) || (place.hasChildNodes() ? "" : "(The agent ended without a text.)"));
    if (rest)
      this.outcome.append(this.actButton("Show more", () => this.acts.rest(rest)));
  }

  showButtons() {
    this.buttons.replaceChildren();
    if (!ENDED.includes(this.status)) this.buttons.append(this.cancelButton());
    if (["failed", "paused"].includes(this.status))
      this.buttons.append(this.actButton("Go on", this.acts.goOn, "main"));
    if (this.acts.transcript)
      this.buttons.append(this.actButton("Transcript", this.acts.transcript));
  }

  /** Make a button that waits for what it does: two clicks are one. */
  actButton(label, act, style = "") {
    const made = button(
      label,
      async () => {
        made.disabled = true;
        await this.attempt(act);
        made.disabled = false;
      },
      style,
    );
    return made;
  }

  cancelButton() {
    const place = el("span", { class: "row" });
    const hold = (event) => event.detail > 1 && event.stopPropagation(); // it was for “Cancel”
    place.addEventListener("click", hold, true);
    const ask = () => {
      const stop = this.actButton("Stop the run", this.acts.cancel, "stop");
      place.replaceChildren(stop, button("Let it go on", rest));
      stop.focus();
    };
    const rest = () => place.replaceChildren(button("Cancel", ask, "stop"));
    rest();
    return place;
  }

  async attempt(act) {
    this.refused.hidden = true;
    try {
      await act();
    } catch (failure) {
      say(this.refused, shown(failure.message, 2_000));
      this.refused.hidden = false;
    }
  }

  showTranscript(text) {
    this.transcript.hidden = false;
    this.transcript.replaceChildren(
      el("h3", {}, "Transcript"),
      el("pre", { tabindex: "0", role: "group", "aria-label": "Transcript" }, shown(text, 200_000)),
    );
    this.transcript.scrollIntoView();
  }

  showTodos(todos) {
    const items = () =>
      todos.map((one) =>
        el(
          "li",
          { "data-status": shown(one.status, 20) },
          el("span", { "aria-hidden": "true" }, TODO_MARKS[one.status] ?? "·"),
          el("span", { dir: "auto" }, shown(one.content, 2_000)),
          el("span", { class: "unseen" }, shown(one.status, 20).replace("_", " ")),
        ),
      );
    const none = () => [el("li", { class: "quiet" }, "None.")];
    fill(this.todos, todos, todos.length ? items : none);
  }

  showAgents() {
    const top = this.log.top;
    const agent = top ?? { name: "main", children: [] };
    agent.state = STATES[this.status] ?? "works"; // its run's
    fill(this.agents, agentData(agent), () => [el("ul", {}, agentItem(agent))]);
  }

  showCost(used) {
    const tokens = (usage) =>
      Object.values(usage ?? {})
        .filter(Number.isFinite)
        .reduce((sum, one) => sum + one, 0);
    const number = (value) => Number(value ?? 0).toLocaleString();
    const known = `$${Number(used.cost ?? 0).toFixed(4)}`;
    const unknown = `${number(used.unpriced_calls)} calls of unknown price`;
    const price = !used.unpriced_calls ? known : used.cost ? `${known}, ${unknown}` : unknown;
    const lines = (used.ledger ?? []).map((line) =>
      el(
        "tr",
        {},
        el(
          "td",
          {},
          shown(line.agent, 200),
          el("br"),
          el("span", { class: "quiet" }, shown(line.model, 200)),
        ),
        el("td", { class: "number" }, number(line.calls)),
        el("td", { class: "number" }, number(tokens(line.usage ?? used.usage))),
      ),
    );
    const head = ["Agent", "Calls", "Tokens"].map((one, at) =>
      el("th", { class: at ? "number" : null }, one),
    );
    this.cost.replaceChildren(
      el(
        "p",
        { class: "total" },
        `${price}, ${number(tokens(used.usage))} tokens, ` +
          `${number(used.model_calls)} model calls, ${number(used.tool_calls)} tool calls, ` +
          `${Number(used.seconds ?? 0).toFixed(1)} s`,
      ),
      el("table", {}, el("tr", {}, head), lines),
    );
  }

  showEvents(touched) {
    const atEnd = this.steps.scrollHeight - this.steps.scrollTop - this.steps.clientHeight < 40;
    for (const row of touched) {
      const old = this.made.get(row);
      if (row.gone) {
        old?.remove();
        this.made.delete(row);
        continue;
      }
      const made = stepItem(row);
      if (old) {
        made
          .querySelector("details")
          ?.toggleAttribute("open", Boolean(old.querySelector("details[open]")));
        old.replaceWith(made);
      } else this.steps.append(made);
      this.made.set(row, made);
    }
    if (atEnd && touched.size) this.steps.scrollTop = this.steps.scrollHeight;
    const { missing, dropped } = this.log;
    this.before.hidden = !missing && !dropped;
    say(
      this.before,
      [
        missing ? `${missing} earlier events are no longer kept.` : "",
        dropped ? `${dropped} earlier steps are not shown.` : "",
      ]
        .join(" ")
        .trim(),
    );
  }
}

function isCut(data) {
  return Boolean(data.truncated?.includes("pending"));
}

/** Whether events took the room of questions, so that the next look shows more of them. */
function isCrowded(data) {
  return isCut(data) && data.events?.length > 0;
}

function agentData(agent) {
  const { name, task, state, children } = agent;
  return [name, task, state, children.length, children.slice(-MOST_AGENTS).map(agentData)];
}

function agentItem(agent) {
  const word = AGENT_WORDS[agent.state] ?? agent.state;
  const before = agent.children.length - MOST_AGENTS;
  const unseen =
    before > 0 && el("li", { class: "quiet" }, `${before} earlier ones are not shown.`);
  const below = agent.children.slice(-MOST_AGENTS).map(agentItem);
  return el(
    "li",
    {},
    el("strong", {}, shown(agent.name, 200)),
    ` ${word}`,
    agent.task && el("span", { class: "task quiet", dir: "auto" }, oneLine(agent.task)),
    below.length > 0 && el("ul", {}, unseen, below),
  );
}

function stepItem(row) {
  const summary = row.kind === "model" ? row.text : brief(row.args);
  const what = el(
    "span",
    { class: "what" },
    row.kind === "tool" ? el("code", {}, shown(row.name, 200)) : shown(row.name, 200),
  );
  const head = [what, " ", el("span", { dir: "auto" }, oneLine(summary))];
  const who = el(
    "div",
    { class: "who" },
    `${clock(row.time)} ${shown(row.agent.name, 200)}${row.state === "error" ? ", failed" : ""}` +
      (row.state === "waiting" ? ", waits for an answer" : ""),
  );
  const parts = [row.kind === "tool" && row.args, row.text].filter(Boolean);
  const more = parts.length > 0 && (row.kind === "tool" || String(row.text).length > 160);
  const body = more
    ? el(
        "details",
        {},
        el("summary", {}, head),
        parts.map((one) =>
          el("pre", { tabindex: "0" }, typeof one === "string" ? shown(one) : prettyJson(one)),
        ),
      )
    : el("div", {}, head);
  const failure =
    row.state === "error" && el("div", { class: "what", dir: "auto" }, oneLine(row.text));
  return el("li", { "data-state": row.state, "data-kind": row.kind }, who, body, failure);
}

/** Return what a call is about in a few words. */
function brief(args) {
  const telling = ["description", "command", "pattern", "path", "query", "name", "goal"];
  const key = telling.find((one) => typeof args?.[one] === "string");
  if (Array.isArray(args?.todos)) return `${args.todos.length} items`;
  return key ? args[key] : args;
}

function runLink(run) {
  return el(
    "a",
    { href: `#${encodeURIComponent(run.run_id)}` },
    oneLine(run.goal || `${run.kind ?? ""} ${run.run_id}`.trim(), 120),
  );
}
