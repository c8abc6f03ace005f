// What needs a person, over all threads: a list on one side, the question that is looked at beside.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { parsed } from "../lib/exact";
import { oneLine } from "../lib/text";
import type { Inbox as Box, Question } from "../model/types";
import { agentName, iconOf, inWords } from "../model/words";
import { Icon } from "../parts/icons";
import { type Answers, type Commands, QuestionCard } from "../parts/question";
import { listen } from "../parts/questions";
import { holdHasty, unsettle } from "../parts/settle";
import { Ago, Loading } from "../parts/small";
import { keepLooking, lookNow } from "../server/looking";
import { readData, toolData } from "../server/mcp";
import { acting } from "../model/thread";
import { inbox, route, server } from "../state";
import { title } from "./inbox_watch";

export function Inbox(): VNode {
  title.value = "Inbox · Deep Agent";
  const chosen = useSignal(route.value.id);
  const answered = useSignal<Set<string>>(new Set());
  const commands = useRef<Commands | null>(null);
  const place = useRef<HTMLDivElement>(null);
  const open = useSignal(Boolean(route.value.id));

  useEffect(() => {
    const end = new AbortController();
    const look = async () => {
      const found = (await readData(server.current, "inbox://questions?limit=100", end.signal)) as Box;
      if (found.version !== inbox.value?.version) inbox.value = found;
      return 1.5;
    };
    void keepLooking(look, end.signal);
    return () => end.abort();
  }, []);

  const questions = (inbox.value?.questions ?? []).filter((one) => !answered.value.has(one.id));
  const at = Math.max(0, questions.findIndex((one) => one.id === chosen.value));
  const question = questions[at];
  const all = useRef(questions);
  all.current = questions;
  const here = useRef(question);
  here.current = question;

  const before = useRef(question?.id);
  useLayoutEffect(() => {
    if (before.current === question?.id) return;
    before.current = question?.id;
    unsettle();
    const lost = document.activeElement === null || document.activeElement === document.body;
    if (lost) (place.current?.querySelector<HTMLElement>(".question") ?? place.current)?.focus();
  }, [question?.id]);

  useLayoutEffect(() => {
    unsettle();
    return listen(commands, (step) => {
      const now = all.current.findIndex((one) => one.id === here.current?.id);
      const next = all.current[Math.max(0, Math.min(all.current.length - 1, now + step))];
      if (next) chosen.value = next.id;
    });
  }, []);

  const answer = async (answers: Answers) => {
    const run = here.current!.run_id;
    const next = all.current[at + 1] ?? all.current[at - 1];
    await acting(
      toolData(
        server.current,
        "reply",
        { run_id: run, answers, wait_seconds: 0 },
        0,
        new AbortController().signal,
      ),
    );
    answered.value = new Set([...answered.value, ...Object.keys(answers)]);
    if (next) chosen.value = next.id;
    lookNow();
  };

  if (inbox.value === null)
    return (
      <div class="page">
        <h1>Inbox</h1>
        <Loading />
      </div>
    );
  if (!question)
    return (
      <div class="page" ref={place} tabIndex={-1}>
        <h1>Inbox</h1>
        <div class="empty">
          <Icon name="check" />
          <h2>Nothing needs you.</h2>
          <p>
            Questions and approvals of all threads appear here as soon as an agent asks.
            {inbox.value.runs_working
              ? ` ${inbox.value.runs_working === 1 ? "One run is" : `${inbox.value.runs_working} runs are`} working.`
              : ""}
          </p>
        </div>
      </div>
    );
  return (
    <div class={`inbox${open.value ? " opened" : ""}`} ref={place} tabIndex={-1}>
      <section class="inbox-list" aria-label="Questions">
        <h1>
          Inbox <span class="quiet">{questions.length}</span>
        </h1>
        <ul>
          {questions.map((one) => (
            <li key={one.id}>
              <Entry
                question={one}
                current={one.id === question.id}
                choose={() => {
                  chosen.value = one.id;
                  open.value = true;
                }}
              />
            </li>
          ))}
        </ul>
        {inbox.value.next ? <p class="quiet">There are more. They appear once you have answered these.</p> : null}
      </section>
      <section class="inbox-one" aria-label="The question" onClickCapture={holdHasty}>
        <button type="button" class="link narrow" onClick={() => (open.value = false)}>
          <Icon name="back" /> All questions
        </button>
        <QuestionCard
          key={question.id}
          question={question}
          answer={answer}
          current
          commands={commands}
          linked
        />
      </section>
    </div>
  );
}

function Entry({
  question,
  current,
  choose,
}: {
  question: Question;
  current: boolean;
  choose: () => void;
}): VNode {
  const words = question.tool
    ? inWords(question.tool, parsed(question.args_json ?? "") ?? {}, "waiting")
    : { verb: question.message, about: "", code: false };
  return (
    <button type="button" class="entry" aria-current={current ? "true" : undefined} onClick={choose}>
      <Icon name={question.tool ? iconOf(question.tool) : "question"} />
      <span class="what" dir="auto">
        {oneLine(`${words.verb} ${words.about}`, 100)}
      </span>
      <span class="quiet where" dir="auto">
        {question.asked_by.slice(1).map((one) => `${agentName(one, 40)} · `)}
        {oneLine(question.title ?? "", 60)}
      </span>
      <Ago time={question.since} />
    </button>
  );
}
