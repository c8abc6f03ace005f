// The open questions of one run, below each other, and the keys that decide them.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { parsed } from "../lib/exact";
import { oneLine, shown } from "../lib/text";
import type { Question } from "../model/types";
import { brief } from "../model/words";
import { Failure } from "../server/mcp";
import { server } from "../state";
import {
  type Answers,
  approval,
  type Commands,
  isWhole,
  type Mode,
  QuestionCard,
  wholes,
  wholesKnown,
} from "./question";
import { holdHasty, settled, unsettle } from "./settle";
import { Act, isCommand, Refused } from "./small";

/** The open questions of one run; several calls can be approved at once after a second look. */
export function Questions({
  questions,
  answer,
  cut = false,
}: {
  questions: Question[];
  answer: (answers: Answers) => Promise<void>;
  /** Whether there are more than these. */
  cut?: boolean;
}): VNode | null {
  const place = useRef<HTMLElement>(null);
  const commands = useRef<Commands | null>(null);
  const at = useSignal(0);
  const ids = questions.map((one) => one.id).join("\n");
  const before = useRef(ids);
  useLayoutEffect(() => {
    if (before.current === ids) return;
    const lost = document.activeElement === null || document.activeElement === document.body;
    before.current = ids;
    unsettle();
    at.value = 0;
    if (lost) nextTo(place.current)?.focus();
  }, [ids]);
  useLayoutEffect(() => {
    unsettle();
    return listen(commands, (step) => {
      const cards = [...(place.current?.querySelectorAll<HTMLElement>(".question") ?? [])];
      at.value = Math.max(0, Math.min(cards.length - 1, at.value + step));
      cards[at.value]?.focus();
      cards[at.value]?.scrollIntoView({ block: "nearest" });
    });
  }, []);
  if (!questions.length) return null;
  return (
    <section class="questions" aria-label="Questions" ref={place} onClickCapture={holdHasty}>
      <ApproveAll questions={questions} answer={answer} />
      {questions.map((one, index) => (
        <QuestionCard
          key={one.id}
          question={one}
          answer={answer}
          current={index === Math.min(at.value, questions.length - 1)}
          commands={commands}
        />
      ))}
      {cut ? (
        <p class="quiet">There are more questions. They appear once you have answered these.</p>
      ) : null}
    </section>
  );
}

/**
 * Return where the keyboard goes on once a question is gone: the next one, or the heading. Not on
 * a button, because a key that is held down would decide the next question too.
 */
function nextTo(place: HTMLElement | null): HTMLElement | null {
  return place?.querySelector<HTMLElement>(".question") ?? document.querySelector<HTMLElement>("h1");
}

const KEYS: Record<string, Mode> = { e: "edit", r: "reject", o: "respond" };

/** Have the keys `a`, `e`, `r`, `o`, `j` and `k` do what they say; returns how to stop. */
export function listen(
  commands: { current: Commands | null },
  move: (step: number) => void,
): () => void {
  const hear = (event: KeyboardEvent) => {
    if (!isCommand(event)) return;
    if (event.key === "a") commands.current?.approve();
    else if (Object.hasOwn(KEYS, event.key)) commands.current?.open(KEYS[event.key]!);
    else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
    else return;
    event.preventDefault();
  };
  window.addEventListener("keydown", hear);
  return () => window.removeEventListener("keydown", hear);
}

function ApproveAll({
  questions,
  answer,
}: {
  questions: Question[];
  answer: (answers: Answers) => Promise<void>;
}): VNode | null {
  const asked = useSignal(false);
  const refused = useSignal("");
  const back = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (asked.value) back.current?.focus();
  }, [asked.value]);
  void wholesKnown.value;
  const able = questions
    .filter((one) => typeof one.tool === "string" && one.decisions?.includes("approve"))
    .map((one) => wholes.get(one.id) ?? (server.current.canRead ? null : one))
    .filter((one) => one !== null && isWhole(one)) as Question[];
  if (able.length < 2 || !settled.value) return null;
  const send = async () => {
    refused.value = "";
    try {
      await answer(Object.fromEntries(able.map((one) => [one.id, approval(one)])));
      asked.value = false;
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
    }
  };
  const tools = [...new Set(able.map(({ tool }) => shown(tool, 100)))].join(", ");
  return (
    <div class="all">
      <div class="row">
        {asked.value ? (
          <>
            <Act key="yes" label={`Approve these ${able.length} calls`} style="main" act={send} />
            <button key="back" type="button" ref={back} onClick={() => (asked.value = false)}>
              Back
            </button>
            <span class="quiet">
              {tools}: {able.map((one) => oneLine(brief(parsed(one.args_json)), 60)).join(", ")}
            </span>
          </>
        ) : (
          <button key="ask" type="button" onClick={() => (asked.value = true)}>
            Approve all {able.length}…
          </button>
        )}
      </div>
      <Refused text={refused.value} />
    </div>
  );
}

