// Inside a host of MCP Apps: the one run that a tool's call is about.

import { signal, useSignal } from "@preact/signals";
import { render, type VNode } from "preact";
import { useEffect } from "preact/hooks";
import { shown } from "../lib/text";
import { linking } from "../lib/markdown";
import { Conversation } from "../model/conversation";
import { acting, found, questionOf } from "../model/thread";
import type { Question, Todo } from "../model/types";
import { ENDED } from "../model/words";
import { ConversationView } from "../parts/conversation_view";
import { Icon } from "../parts/icons";
import { Markdown } from "../lib/markdown";
import type { Answers } from "../parts/question";
import { Questions } from "../parts/questions";
import { Act, Loading, Refused, Status, Twice } from "../parts/small";
import { Todos } from "../parts/todos";
import { keepLooking, lookNow, pause, trouble } from "../server/looking";
import { type Data, Failure, HostServer, textOf, toolData, type ToolResult } from "../server/mcp";
import { server } from "../state";
import { TroubleBar } from "./shell";

const LOOK_SECONDS = 1.5;
const MOST_LOOKS = 60; // for a run that a call has begun

type Shown =
  | { kind: "text"; text: string }
  | { kind: "quiet"; text: string }
  | { kind: "run"; id: string }
  | { kind: "result"; data: Data };

const shownNow = signal<Shown>({ kind: "quiet", text: "Connecting…" });

export async function startInHost(place: HTMLElement): Promise<void> {
  linking.on = false; // there is nowhere to go
  document.documentElement.classList.add("hosted");
  let end = new AbortController();
  const follow = (runId: string | undefined) => {
    const now = shownNow.value;
    if (!runId || (now.kind === "run" && now.id === runId)) return;
    end.abort();
    end = new AbortController();
    shownNow.value = { kind: "run", id: runId };
  };
  const following = () => shownNow.value.kind === "run";
  const host = new HostServer(window.parent, {
    context: applyContext,
    teardown: () => {
      end.abort();
      render(null, place);
    },
    "tool-input": ({ arguments: args }) => {
      if (!following()) shownNow.value = { kind: "quiet", text: "The run is starting…" };
      if (!host.canCall) return;
      if (args?.run_id) follow(String(args.run_id));
      // If it is not found, the result names it.
      else if (args?.goal) findRun(host, args as Data, end.signal).then(follow, () => {});
    },
    "tool-result": (given) => {
      const result = given as ToolResult;
      const runId =
        result.structuredContent?.run_id ?? result.taskId ?? /\brun_\w+/.exec(textOf(result))?.[0];
      if (runId && host.canCall) return follow(String(runId));
      end.abort(); // there is nothing to look for
      end = new AbortController();
      showResult(result);
    },
    "tool-cancelled": () => {
      const text = "The call was cancelled. If it started a run, the run continues.";
      if (!following()) shownNow.value = { kind: "text", text };
    },
  });
  server.current = host;
  render(<Hosted />, place);
  const size = () =>
    host.tell("ui/notifications/size-changed", {
      width: Math.ceil(document.documentElement.scrollWidth),
      height: Math.ceil(document.body.getBoundingClientRect().height),
    });
  try {
    await host.connect();
    new ResizeObserver(size).observe(document.body);
  } catch (failure) {
    trouble.value = { text: (failure as Error).message };
  }
}

/** Show a result where no further calls are possible. */
function showResult(result: ToolResult): void {
  const data = result.structuredContent;
  if (!data?.run_id) {
    shownNow.value = { kind: "text", text: "" };
    trouble.value = { text: textOf(result) || "The call has no result." };
    return;
  }
  shownNow.value = { kind: "result", data };
  trouble.value = {
    text: "This application does not let pages call tools. You see the run as it was when the call ended.",
  };
}

/** Return the run of a call that is still under way: the newest that works on its goal, if any. */
async function findRun(host: HostServer, args: Data, end: AbortSignal): Promise<string | undefined> {
  for (let looks = 0; looks < MOST_LOOKS; looks += 1) {
    const { threads } = await toolData(host, "threads", { limit: 10 }, 0, end);
    const goal = String(args.goal).slice(0, 120);
    const hit = ((threads ?? []) as Data[]).find(
      ({ thread_id, last_run }) =>
        last_run?.status === "running" &&
        last_run.goal === goal &&
        (!args.thread_id || args.thread_id === thread_id),
    );
    if (hit) return String(hit.last_run.run_id);
    await pause(LOOK_SECONDS, end);
  }
  return undefined;
}

function applyContext({ theme, styles }: Data): void {
  const root = document.documentElement;
  if (theme === "light" || theme === "dark") root.style.colorScheme = theme;
  for (const [name, value] of Object.entries((styles?.variables ?? {}) as Data))
    if (/^--[a-z0-9-]+$/.test(name) && typeof value === "string") root.style.setProperty(name, value);
}

function Hosted(): VNode {
  const now = shownNow.value;
  return (
    <div class="frame">
      <TroubleBar />
      <main id="main">
        {now.kind === "run" ? <Run key={now.id} id={now.id} /> : null}
        {now.kind === "result" ? <Ended data={now.data} /> : null}
        {now.kind === "text" ? <p>{now.text}</p> : null}
        {now.kind === "quiet" ? <Loading what={now.text} /> : null}
      </main>
    </div>
  );
}

function Ended({ data }: { data: Data }): VNode {
  return (
    <>
      <Title goal="A run" status={String(data.status)} id={String(data.run_id)} />
      {data.reason ? <p class="reason">Reason: {shown(data.reason, 4_000)}</p> : null}
      {typeof data.answer === "string" ? <Markdown text={data.answer} /> : null}
    </>
  );
}

function Title({ goal, status, id }: { goal: string; status: string; id: string }): VNode {
  return (
    <header class="head">
      <h1 dir="auto" tabIndex={-1}>
        {goal}
      </h1>
      <p class="facts">
        <Status status={status} live />
        <code class="quiet id">{shown(id, 100)}</code>
      </p>
    </header>
  );
}

/** Follow a run with nothing but the tools that every client has. */
function Run({ id }: { id: string }): VNode {
  const talk = useSignal(new Conversation());
  const version = useSignal(0);
  const only = useSignal<string | null>(null);
  const data = useSignal<Data | null>(null);
  const thread = useSignal<Data>({});
  const questions = useSignal<Question[]>([]);
  const cut = useSignal(false);
  const refused = useSignal("");
  const transcript = useSignal("");
  const acts = useSignal(0);

  useEffect(() => {
    const end = new AbortController();
    let last = "";
    let behind = true;
    const look = async (): Promise<number | null> => {
      const before = acts.value;
      const asked = { run_id: id, wait_seconds: 0, events_after: talk.value.after };
      const now = await found(`run ${id}`, toolData(server.current, "wait", asked, 0, end.signal));
      if (before !== acts.value) return 0; // it may tell of a time before what the person did
      const more = isCut(now) && now.events?.length > 0;
      behind = Boolean(now.events_more) || more;
      talk.value.takeEvents(now);
      version.value += 1;
      data.value = now;
      if (now.status !== "running" && !more) ask(now.pending, now);
      const stand = `${now.status} ${now.events_next}`;
      if (stand !== last && !(behind && last)) {
        const named = { thread_id: now.thread_id, limit: 1 };
        const found = await toolData(server.current, "threads", named, 0, end.signal);
        if (before !== acts.value) return 0;
        thread.value = found;
        if (now.status === "running") ask(found.pending, found);
        last = stand;
      }
      if (behind) return 0;
      if (now.status === "running" || now.status === "queued") return LOOK_SECONDS;
      return ["done", "cancelled"].includes(now.status) ? null : LOOK_SECONDS;
    };
    const ask = (pending: unknown, from: Data) => {
      const open = Array.isArray(pending) ? (pending as Data[]) : [];
      questions.value = open.map((one) => questionOf(one, id, String(from.thread_id ?? "")));
      cut.value = isCut(from);
    };
    void keepLooking(look, end.signal);
    return () => end.abort();
  }, [id]);

  const act = async (tool: string, args: Data) => {
    const now = await acting(
      toolData(server.current, tool, { run_id: id, ...args }, 0, new AbortController().signal),
    );
    acts.value += 1;
    data.value = { ...data.value, ...now };
    lookNow();
  };
  const attempt = async (what: () => Promise<void>) => {
    refused.value = "";
    try {
      await what();
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
    }
  };
  const answer = async (answers: Answers) => {
    await act("reply", { answers, wait_seconds: 0 });
    questions.value = questions.value.filter((one) => !Object.hasOwn(answers, one.id));
  };
  const now = data.value;
  if (!now) return <Loading what="The run is starting…" />;
  const status = String(now.status);
  const run = ((thread.value.runs ?? []) as Data[]).find((one) => one.run_id === id);
  const todos = (thread.value.todos ?? []) as Todo[];
  const goal = run?.goal ? shown(run.goal) + (run.goal.length >= 120 ? " …" : "") : "A run";
  return (
    <div>
      <Title goal={goal} status={status} id={id} />
      <div class="row acts">
        {!ENDED.includes(status) ? (
          <Twice
            label="Cancel"
            sure="Stop the run"
            back="Keep it running"
            icon="stop"
            act={() => attempt(() => act("cancel", {}))}
          />
        ) : null}
        {["failed", "paused"].includes(status) ? (
          <Act
            label="Continue"
            icon="play"
            style="main"
            act={() => attempt(() => act("reply", { wait_seconds: 0 }))}
          />
        ) : null}
        {server.current.canRead ? (
          <Act
            label="Transcript"
            act={() =>
              attempt(async () => {
                const uri = `thread://${String(now.thread_id)}/transcript`;
                const read = await server.current.read(uri, new AbortController().signal);
                transcript.value = read.contents?.[0]?.text ?? "";
              })
            }
          />
        ) : null}
      </div>
      {now.reason && status !== "done" ? (
        <p class="reason" data-status={status} dir="auto">
          Reason: {shown(now.reason, 4_000)}
        </p>
      ) : null}
      <Refused text={refused.value} />
      <Questions questions={questions.value} answer={answer} cut={cut.value} />
      {todos.length ? <Todos todos={todos} /> : null}
      {talk.value.missing ? (
        <p class="quiet">{talk.value.missing} earlier events are no longer kept.</p>
      ) : null}
      <ConversationView conversation={talk.value} version={version} only={only} />
      {status === "running" ? (
        <p class="doing quiet">Right now: {now.doing ? shown(now.doing, 300) : "working"}</p>
      ) : null}
      {typeof now.answer === "string" && status === "done" ? (
        <div class="answer">
          <Markdown text={now.answer || "(The agent ended without an answer.)"} />
        </div>
      ) : null}
      {transcript.value ? (
        <section>
          <h2>
            <Icon name="book" /> Transcript
          </h2>
          <pre tabIndex={0} role="group" aria-label="Transcript">
            {shown(transcript.value, 200_000)}
          </pre>
        </section>
      ) : null}
    </div>
  );
}

function isCut(data: Data): boolean {
  return Boolean(data.truncated?.includes?.("pending"));
}
