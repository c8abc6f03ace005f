// A thread: the conversation in the middle, what it is about beside it, and what one can do.

import { useSignal, useSignalEffect } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { count, dollars, duration, oneLine, plural, shown } from "../lib/text";
import { found, Thread } from "../model/thread";
import type { Overview, RunFacts } from "../model/types";
import { agentName, ENDED } from "../model/words";
import { ConversationView } from "../parts/conversation_view";
import { Icon } from "../parts/icons";
import type { Answers } from "../parts/question";
import { Questions } from "../parts/questions";
import { Act, Ago, Loading, Refused, Status, Twice, worked } from "../parts/small";
import { keepLooking, trouble } from "../server/looking";
import { Failure, readData } from "../server/mcp";
import { linkTo, may, server } from "../state";
import { title } from "./inbox_watch";
import { moveTab, Panel, TABS, type Tab } from "./panel";
import { RequestDialog } from "./request";

/** Show a run, or the thread of this id. */
export function ThreadPage({ id }: { id: string }): VNode {
  const thread = useSignal<Thread | null>(null);
  useEffect(() => {
    const end = new AbortController();
    let made: Thread | null = null;
    const look = async () => {
      if (!made) {
        let threadId = id;
        if (id.startsWith("run_")) {
          const asked = readData(server.current, `run://${encodeURIComponent(id)}`, end.signal);
          threadId = String((await found(`run ${id}`, asked)).thread_id);
        }
        made = new Thread(threadId, id.startsWith("run_") ? id : "", end.signal);
      }
      const seconds = await found(`thread ${made.id}`, made.look());
      thread.value = made;
      return seconds;
    };
    void keepLooking(look, end.signal);
    return () => end.abort();
  }, [id]);
  return thread.value ? (
    <Shown key={id} thread={thread.value} />
  ) : (
    <div class="page">
      {trouble.value ? <a href="#">All threads</a> : <Loading />}
    </div>
  );
}

function Shown({ thread }: { thread: Thread }): VNode {
  const tab = useSignal<Tab | "talk">("talk");
  const refused = useSignal("");
  const looking = useSignal<{ checkpoint: string; ns: string } | null>(null);
  const overview = thread.overview.value!;
  const run = thread.run;
  title.value = `${oneLine(overview.title || thread.id, 60)} · Deep Agent`;

  const attempt = async (act: () => Promise<unknown>) => {
    refused.value = "";
    try {
      await act();
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
    }
  };
  const answer = async (answers: Answers, runId: string) => {
    await thread.act("reply", { run_id: runId, answers, wait_seconds: 0 });
    const left = thread.overview.value!.open_questions.filter(
      (one) => !Object.hasOwn(answers, one.id),
    );
    thread.overview.value = { ...thread.overview.value!, open_questions: left };
  };
  const actions = useMemo(
    () => ({
      whole: (row: Parameters<Thread["whole"]>[0]) => void attempt(() => thread.whole(row)),
      request: (row: Parameters<Thread["whole"]>[0]) => {
        const said = row.answer ?? row.step;
        looking.value = { checkpoint: said?.checkpoint_id ?? "", ns: said?.ns ?? "" };
      },
    }),
    [thread],
  );
  useSignalEffect(() => {
    if (thread.only.value !== null) tab.value = tab.peek() === "talk" ? "talk" : tab.peek();
  });

  return (
    <div class="thread" data-tab={tab.value} data-run={run?.status}>
      <Head thread={thread} overview={overview} run={run} attempt={attempt} />
      <div
        class="tabs narrow-tabs"
        role="tablist"
        aria-label="Parts of the thread"
        onKeyDown={(event) => moveTab(event, ["talk", ...TABS.map((one) => one.id)], tab)}
      >
        {(["talk", ...TABS.map((one) => one.id)] as const).map((one) => (
          <button
            type="button"
            role="tab"
            aria-selected={tab.value === one}
            tabIndex={tab.value === one ? 0 : -1}
            onClick={() => (tab.value = one)}
          >
            {one === "talk" ? "Conversation" : TABS.find(({ id }) => id === one)!.label}
          </button>
        ))}
      </div>
      <div class="middle">
        <ConversationView
          conversation={thread.conversation}
          version={thread.version}
          only={thread.only}
          actions={actions}
          onStart={() => void thread.loadOlder()}
          before={
            thread.older.value ? (
              <p class="quiet row">
                <Act label="Load earlier steps" act={() => thread.loadOlder()} />
              </p>
            ) : null
          }
          after={
            <End
              overview={overview}
              run={run}
              doing={thread.doing.value}
            />
          }
        />
        <Refused text={refused.value} />
        <OpenQuestions overview={overview} answer={answer} />
        <Composer thread={thread} run={run} attempt={attempt} />
      </div>
      <Panel thread={thread} tab={tab} attempt={attempt} />
      {looking.value ? (
        <RequestDialog thread={thread} {...looking.value} close={() => (looking.value = null)} />
      ) : null}
    </div>
  );
}

type Attempt = (act: () => Promise<unknown>) => Promise<void>;

function Head({
  thread,
  overview,
  run,
  attempt,
}: {
  thread: Thread;
  overview: Overview;
  run: RunFacts | undefined;
  attempt: Attempt;
}): VNode {
  const status = run?.status ?? overview.status;
  const goOn = run && ["failed", "paused"].includes(status);
  return (
    <header class="head">
      <div class="head-line">
        <a class="back" href="#" aria-label="All threads">
          <Icon name="back" />
        </a>
        <h1 dir="auto" tabIndex={-1}>
          {shown(overview.title || thread.id, 400)}
        </h1>
        <div class="row acts">
          {run && !ENDED.includes(status) && may("delegate") ? (
            <Twice
              label="Cancel"
              sure="Stop the run"
              back="Keep it running"
              icon="stop"
              act={() => attempt(() => thread.act("cancel", { run_id: run.run_id }))}
            />
          ) : null}
          {goOn ? (
            <Act
              label="Continue"
              icon="play"
              style="main"
              act={() => attempt(() => thread.act("reply", { run_id: run.run_id, wait_seconds: 0 }))}
            />
          ) : null}
          {may("delegate") && (!run || ENDED.includes(status) || status === "paused") ? (
            <Twice
              label="Delete"
              sure="Delete for good"
              back="Keep it"
              icon="trash"
              text="Deletes the thread and its history. Files on disk stay."
              act={() =>
                attempt(async () => {
                  await thread.method("threads/delete", { threadId: thread.id, confirm: thread.id });
                  location.hash = "#";
                })
              }
            />
          ) : null}
        </div>
      </div>
      <p class="facts">
        <Status status={status} live />
        {run?.agent ? <span>{agentName(run.agent)}</span> : null}
        <span>{duration(worked({ ...overview, status }))}</span>
        <span>{money(overview)}</span>
        <span class="quiet">
          <Ago time={overview.updated} />
        </span>
        <code class="quiet id">{shown(run?.run_id ?? thread.id, 100)}</code>
      </p>
      {run?.reason && status !== "done" ? (
        <p class="reason" data-status={status} dir="auto">
          Reason: {shown(run.reason, 4_000)}
        </p>
      ) : null}
    </header>
  );
}

export function money(facts: { cost?: number; unpriced?: number; tokens?: number }): string {
  const parts: string[] = [];
  if (facts.cost) parts.push(dollars(facts.cost));
  if (facts.unpriced) parts.push(`${plural(facts.unpriced, "call")} of unknown price`);
  if (facts.tokens) parts.push(`${count(facts.tokens)} tokens`);
  return parts.join(", ");
}

function End({
  overview,
  run,
  doing,
}: {
  overview: Overview;
  run: RunFacts | undefined;
  doing: string;
}): VNode | null {
  if (run?.status === "queued") return <p class="doing quiet">Waiting in the queue: {oneLine(run.goal, 300)}</p>;
  if (run?.status === "running") {
    const now = overview.todos.find((one) => one.status === "in_progress");
    return (
      <p class="doing quiet">
        <span class="dots" aria-hidden="true" />
        Right now: {doing ? oneLine(doing, 300) : now ? oneLine(now.content, 200) : "working"}
      </p>
    );
  }
  if (!run) return <p class="quiet">No runs yet.</p>;
  if (run.status === "cancelled") return <p class="doing quiet">The run was cancelled.</p>;
  if (run.status === "failed")
    return (
      <p class="doing quiet">
        The run failed. “Continue” tries again from its last step. Or write below what to do differently.
      </p>
    );
  return null;
}

function OpenQuestions({
  overview,
  answer,
}: {
  overview: Overview;
  answer: (answers: Answers, runId: string) => Promise<void>;
}): VNode {
  const questions = overview.open_questions;
  const runId = questions[0]?.run_id ?? "";
  return (
    <Questions
      questions={questions.filter((one) => one.run_id === runId)}
      answer={(answers) => answer(answers, runId)}
    />
  );
}

/** Where one writes: to a run at work, or to go on with what has ended. */
function Composer({
  thread,
  run,
  attempt,
}: {
  thread: Thread;
  run: RunFacts | undefined;
  attempt: Attempt;
}): VNode | null {
  const input = useRef<HTMLTextAreaElement>(null);
  const text = useSignal("");
  const sent = useSignal("");
  if (!run || !may("delegate") || run.kind === "drive") return null;
  const ended = ENDED.includes(run.status) || run.status === "paused";
  const send = () =>
    attempt(async () => {
      const message = text.value.trim();
      if (!message) return;
      const data = await thread.act("reply", { run_id: run.run_id, message, wait_seconds: 0 });
      text.value = "";
      sent.value = ended ? "" : "Sent. The agent reads it before its next step.";
      const next = String(data.run_id ?? run.run_id);
      if (next !== run.run_id) location.hash = linkTo(next);
      input.current?.focus();
    });
  return (
    <div class="composer">
      <label>
        <span class="unseen">{ended ? "Reply" : "Message to the agent"}</span>
        <textarea
          ref={input}
          rows={1}
          value={text.value}
          placeholder={ended ? "Reply, and the agent continues" : "Message the agent"}
          onInput={(event) => {
            text.value = event.currentTarget.value;
            sent.value = "";
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              void send();
            } else if (event.key === "Escape") event.currentTarget.blur();
          }}
        />
      </label>
      <Act label="Send" icon="send" style={text.value.trim() ? "main" : ""} act={send} disabled={!text.value.trim()} />
      <p class="quiet sent" role="status">
        {sent.value}
      </p>
    </div>
  );
}
