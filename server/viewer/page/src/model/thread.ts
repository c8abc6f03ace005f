// One thread as the page follows it: its conversation, and how it stands.

import { signal } from "@preact/signals";
import { parsed } from "../lib/exact";
import { Failure, readData, toolData, type Args, type Data } from "../server/mcp";
import { lookNow } from "../server/looking";
import { http, server } from "../state";
import { Conversation } from "./conversation";
import type { Row } from "./rows";
import type { Overview, Question, RunFacts, StepPage } from "./types";

const PAGE = 150;
const WORKING_SECONDS = 0.6;
const WAITING_SECONDS = 1.5;
const RESTING_SECONDS = 2.5;

export function threadUri(id: string, part: string, query: Record<string, string> = {}): string {
  const asked = Object.entries(query)
    .filter(([, one]) => one)
    .map(([name, one]) => `${name}=${encodeURIComponent(one)}`)
    .join("&");
  return `thread://${encodeURIComponent(id)}/${part}${asked ? `?${asked}` : ""}`;
}

export class Thread {
  conversation = new Conversation();
  readonly version = signal(0);
  readonly overview = signal<Overview | null>(null);
  readonly only = signal<string | null>(null);
  readonly doing = signal("");
  readonly loadingOlder = signal(false);
  readonly older = signal<string | null>(null);
  private after = "";
  private acts = 0;
  private shownAs = "";

  constructor(
    readonly id: string,
    /** The run that the address names; "" for the newest one. */
    readonly runId: string,
    private readonly end: AbortSignal,
  ) {}

  /** Return the run that the page is about. */
  get run(): RunFacts | undefined {
    const runs = this.overview.value?.runs ?? [];
    return runs.find((one) => one.run_id === this.runId) ?? runs[0];
  }

  /** Look once; return in how many seconds to look again. */
  async look(): Promise<number> {
    const before = this.acts;
    const steps = threadUri(this.id, "steps", this.after ? { after: this.after } : { limit: `${PAGE}` });
    const [overview, page] = await Promise.all([
      readData(server.current, threadUri(this.id, "overview"), this.end) as Promise<Overview>,
      this.steps(steps),
    ]);
    if (before !== this.acts) return 0; // it may tell of a time before what the person did
    this.take(overview, page);
    if (page.more) return 0;
    const status = this.run?.status ?? "";
    if (status === "running" || status === "queued") return WORKING_SECONDS;
    return status === "needs_approval" ? WAITING_SECONDS : RESTING_SECONDS;
  }

  private async steps(uri: string): Promise<StepPage> {
    try {
      return (await readData(server.current, uri, this.end)) as unknown as StepPage;
    } catch (failure) {
      // A thread whose first run waits in line has none yet.
      if (!(failure instanceof Failure) || failure.kind !== "refused") throw failure;
      return { steps: [], before: null, after: "", reset: true };
    }
  }

  private take(overview: Overview, page: StepPage): void {
    if (page.reset && this.after) this.begin();
    const first = !this.after;
    if (first) this.older.value = page.before;
    this.after = page.after || this.after;
    this.conversation.takeSteps(page.steps);
    this.conversation.takeWriting(page.working ?? []);
    const text = JSON.stringify(overview);
    if (text !== this.shownAs) this.overview.value = overview;
    this.shownAs = text;
    this.doing.value = page.doing ?? "";
    this.conversation.markWaiting(overview.open_questions.map((one) => one.path ?? []));
    const main = this.conversation.main;
    const states = { running: "works", queued: "works", needs_approval: "waiting", failed: "error" } as const;
    const status = this.run?.status ?? "";
    main.state = Object.hasOwn(states, status) ? states[status as keyof typeof states] : "success";
    this.version.value += 1;
  }

  /** Forget the conversation: a page from now replaces it. */
  private begin(): void {
    this.conversation = new Conversation();
    this.after = "";
    this.older.value = null;
  }

  /** Load what came before all that is here. */
  async loadOlder(): Promise<void> {
    if (!this.older.value || this.loadingOlder.value) return;
    this.loadingOlder.value = true;
    const talk = this.conversation;
    try {
      const uri = threadUri(this.id, "steps", { before: this.older.value, limit: "1000" });
      const page = (await readData(server.current, uri, this.end)) as unknown as StepPage;
      if (talk !== this.conversation) return; // it was rewound meanwhile
      talk.takeSteps(page.steps, true);
      this.older.value = page.before;
      this.version.value += 1;
    } catch (failure) {
      if (!(failure instanceof Failure) && !this.end.aborted) throw failure;
    } finally {
      this.loadingOlder.value = false;
    }
  }

  /** Load a step whole whose text was cut. */
  async whole(row: Row): Promise<void> {
    if (!row.step) return;
    const part = `steps/${encodeURIComponent(row.step.key)}`;
    const uri = threadUri(this.id, part, { ns: row.step.ns ?? "" });
    const data = await readData(server.current, uri, this.end);
    row.cut = undefined;
    row.text = String(data.text ?? row.text);
    if (typeof data.args_json === "string") {
      row.argsText = data.args_json;
      row.args = parsed(data.args_json);
    }
    row.version += 1;
    this.version.value += 1;
  }

  /** Have a tool do what a person asks for; fails with a `Failure` if it was refused. */
  async act(tool: string, args: Args): Promise<Data> {
    const data = await acting(toolData(server.current, tool, args, 0, this.end));
    this.acts += 1;
    lookNow();
    return data;
  }

  /** As `act`, for methods that are no tools. */
  async method(name: string, params: Args): Promise<Data> {
    const data = await acting(http().method(name, params, this.end));
    this.acts += 1;
    lookNow();
    return data;
  }
}

/** Say of an act without an answer that it may have been heard. */
export async function acting<T>(asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (failure) {
    if (!(failure instanceof Failure) || failure.kind !== "gone") throw failure;
    const advice = "It may have received this: check the run before you try again.";
    throw new Failure("gone", `${failure.message} ${advice}`);
  }
}

/** Return what was asked for. That it is not there is said as people need it, not as models do. */
export async function found<T>(what: string, asked: Promise<T>): Promise<T> {
  try {
    return await asked;
  } catch (failure) {
    if (!(failure instanceof Failure) || failure.kind !== "refused") throw failure;
    if (!/^(There is no |Resource not found)/.test(failure.message)) throw failure;
    const signedIn = !server.current.hosted && Boolean(http().token);
    const why = signedIn
      ? "that this token may see. It was deleted, or belongs to somebody else."
      : "on this server. It may have been deleted.";
    throw new Failure("refused", `There is no ${what} ${why}`);
  }
}

/** Return a question as results of tools show it, whose arguments may be cut. */
export function questionOf(shown: Data, runId: string, threadId: string): Question {
  return {
    id: String(shown.id),
    run_id: runId,
    thread_id: threadId,
    asked_by: String(shown.asked_by ?? "main").split(" > "),
    message: String(shown.question ?? ""),
    tool: "tool" in shown ? String(shown.tool) : null,
    args_json: typeof shown.args === "string" ? shown.args : null,
    decisions: Array.isArray(shown.decisions) ? shown.decisions.map(String) : [],
    answer_schema: shown.answer_schema ?? null,
  };
}
