// One question, whole, with everything a person needs to decide it in one look.

import { signal, useSignal } from "@preact/signals";
import type { ComponentChild, VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Json, parsed } from "../lib/exact";
import { Markdown } from "../lib/markdown";
import { oneLine, shown } from "../lib/text";
import type { Question } from "../model/types";
import { agentName, iconOf, inWords } from "../model/words";
import { pause } from "../server/looking";
import { Failure, readData } from "../server/mcp";
import { linkTo, may, server } from "../state";
import { AnswerForm } from "./answer_form";
import { ArgumentFields } from "./arguments";
import { Call } from "./call";
import { Changed } from "./diff";
import { Icon } from "./icons";
import { Remember } from "./remember";
import { Act, Ago, Refused } from "./small";

export type Answers = Record<string, unknown>;
export type Mode = "" | "edit" | "reject" | "respond" | "remember";

/** What the keys of the page do to the question that is looked at. */
export interface Commands {
  approve: () => void;
  open: (mode: Mode) => void;
}

/** Questions that were loaded whole, by id. */
export const wholes = new Map<string, Question>();
/** Changes when one more was. */
export const wholesKnown = signal(0);

/** Return a question as its own resource shows it, once it is there. */
export function useWhole(question: Question): { whole: Question; loading: boolean; problem: string } {
  const found = useSignal<Question | null>(wholes.get(question.id) ?? null);
  const problem = useSignal("");
  useEffect(() => {
    found.value = wholes.get(question.id) ?? null;
    if (found.value || !server.current.canRead || !question.run_id) return;
    const end = new AbortController();
    const again = (failure: unknown) =>
      failure instanceof Failure && failure.kind !== "refused"
        ? pause(2, end.signal).then(load)
        : Promise.reject(failure as Error);
    const uri = `run://${encodeURIComponent(question.run_id)}/questions/${encodeURIComponent(question.id)}`;
    const load = (): Promise<unknown> => readData(server.current, uri, end.signal).catch(again);
    load()
      .then((data) => {
        const whole = { ...question, ...(data as Question), whole: true };
        wholes.set(question.id, whole);
        wholesKnown.value += 1;
        found.value = whole;
      })
      .catch((failure: unknown) => {
        if (!end.signal.aborted) problem.value = String((failure as Error).message ?? failure);
      });
    return () => end.abort();
  }, [question.id, question.run_id]);
  const whole = found.value ?? question;
  const loading = !found.value && !problem.value && server.current.canRead && Boolean(question.run_id);
  return { whole, loading, problem: problem.value };
}

/** Whether all that a call would do is on the page. */
export function isWhole(question: Question): boolean {
  return typeof question.args_json === "string" && parsed(question.args_json) !== undefined;
}

/** Return the answer that approves a question: for exactly the arguments that were shown. */
export function approval(question: Question): Answers[string] {
  return { decision: "approve", ...(question.digest && { digest: question.digest }) };
}

const DECISIONS = ["approve", "edit", "reject", "respond"];

interface CardProps {
  question: Question;
  answer: (answers: Answers) => Promise<void>;
  /** Whether the keys of the page decide this one. */
  current?: boolean;
  commands?: { current: Commands | null };
  /** Whether to say and link the thread. */
  linked?: boolean;
}

export function QuestionCard({ question, answer, current, commands, linked }: CardProps): VNode {
  const { whole, loading, problem } = useWhole(question);
  const mode = useSignal<Mode>("");
  const sending = useSignal(false);
  const refused = useSignal("");
  const card = useRef<HTMLElement>(null);
  const read = useRef<() => string | null>(() => null);

  const send = async (value: unknown) => {
    if (sending.value) return;
    sending.value = true;
    refused.value = "";
    try {
      await answer({ [question.id]: value });
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
    } finally {
      sending.value = false;
    }
  };
  const open = (wanted: Mode) => {
    mode.value = wanted;
  };
  const wasOpen = useRef(false);
  useEffect(() => {
    const fields = card.current?.querySelector<HTMLElement>(".fields");
    fields?.scrollIntoView({ block: "nearest" });
    if (fields) (fields.querySelector<HTMLElement>("textarea") ?? fields).focus();
    else if (wasOpen.current) card.current?.focus(); // what had the focus is gone
    wasOpen.current = Boolean(mode.value);
  }, [mode.value]);

  const isCall = typeof question.tool === "string";
  const decisions = question.decisions?.filter((one) => DECISIONS.includes(one)) ?? [];
  const ready = isCall && isWhole(whole) && !loading;
  const approve = () => send(approval(whole));
  if (current && commands)
    commands.current = {
      approve: () => {
        if (ready && !mode.value && decisions.includes("approve") && !sending.value) void approve();
      },
      open: (wanted) => {
        const needs = wanted === "remember" ? "approve" : wanted;
        if (isCall && (needs === "" || decisions.includes(needs))) open(wanted);
        else if (!isCall && wanted === "respond")
          card.current?.querySelector<HTMLElement>("textarea, input, select")?.focus();
      },
    };
  const escape = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !mode.value) return;
    event.stopPropagation();
    open("");
  };
  return (
    <article
      class={`question${current ? " current" : ""}`}
      data-id={shown(question.id)}
      tabIndex={-1}
      ref={card}
      onKeyDown={escape}
      inert={sending.value}
      aria-label={shown(question.message, 200)}
    >
      <Who question={whole} linked={linked} />
      <h2 dir="auto">{headline(whole)}</h2>
      {whole.why ? (
        <blockquote class="why">
          <Markdown text={whole.why} />
        </blockquote>
      ) : null}
      {isCall ? <Call question={whole} loading={loading} problem={problem} /> : null}
      {isCall ? <p class="rule quiet">{shown(reason(whole), 2_000)}</p> : null}
      {!may("approve") ? (
        <p class="quiet">
          <Icon name="note" /> To decide, you need the scope “approve”, which your token does not have.
        </p>
      ) : null}
      <div class="decide">
        {isCall ? (
          <>
            <div class="row" hidden={mode.value !== ""}>
              {decisions.includes("approve") ? (
                <Act label="Approve" style="main" hint="a" act={approve} disabled={!ready} />
              ) : null}
              {decisions.includes("edit") ? (
                <Act label="Edit…" hint="e" act={() => open("edit")} disabled={!ready} />
              ) : null}
              {decisions.includes("reject") ? (
                <Act label="Reject…" hint="r" act={() => open("reject")} />
              ) : null}
              {decisions.includes("respond") ? (
                <Act label="Respond…" hint="o" act={() => open("respond")} title="Your text is the result of the call, which is not made" />
              ) : null}
              {decisions.includes("approve") && !server.current.hosted && may("approve") ? (
                <Act label="Remember…" style="link" act={() => open("remember")} disabled={!ready} />
              ) : null}
            </div>
            {mode.value === "edit" ? (
              <Fields
                label="Approve with these arguments"
                back={() => open("")}
                act={() => {
                  const edited = read.current();
                  return edited === null
                    ? undefined
                    : send({ decision: "edit", args: new Json(edited) });
                }}
              >
                <ArgumentFields json={whole.args_json ?? "{}"} onReady={(one) => (read.current = one)} />
              </Fields>
            ) : null}
            {mode.value === "reject" ? (
              <Message
                key="reject"
                label="Reject"
                field="Reason for the agent (optional)"
                back={() => open("")}
                act={(message) => send({ decision: "reject", ...(message && { message }) })}
              />
            ) : null}
            {mode.value === "respond" ? (
              <Message
                key="respond"
                label="Respond"
                field="Result of the call, which is not made"
                required
                back={() => open("")}
                act={(message) => send({ decision: "respond", message })}
              />
            ) : null}
            {mode.value === "remember" ? (
              <Remember question={whole} back={() => open("")} approve={approve} />
            ) : null}
          </>
        ) : (
          <AnswerForm schema={question.answer_schema ?? {}} send={send} />
        )}
      </div>
      <Refused text={refused.value} />
    </article>
  );
}

function Who({ question, linked }: { question: Question; linked?: boolean }): VNode {
  const who = question.asked_by.map((one) => agentName(one, 100)).join(" › ");
  return (
    <p class="who">
      <Icon name={question.tool ? iconOf(question.tool) : "question"} />
      <span>
        Asked by {who}
        {question.principal ? `, for ${shown(question.principal, 100)}` : ""}
      </span>
      {question.since ? <Ago time={question.since} /> : null}
      {linked && question.title ? (
        <a href={linkTo(question.thread_id)} dir="auto">
          {oneLine(question.title, 90)}
        </a>
      ) : null}
    </p>
  );
}

/** Return which rule asks for an approval. */
function reason({ message, rule, tool }: Question): string {
  if (!rule) return message;
  if (rule.startsWith("Tool execution requires approval"))
    return `This server asks before each call of ${tool}.`;
  return `Rule: ${rule}`;
}

/** Return what is asked: a question whole, because addresses in it may be long, or a call. */
export function headline(question: Question): ComponentChild {
  if (!question.tool) return shown(question.message);
  const args = parsed(question.args_json ?? "");
  const { verb, about, code } = inWords(question.tool, args, "waiting");
  const { preview } = question;
  return (
    <>
      {verb} {code ? <code>{oneLine(about || question.tool, 160)}</code> : oneLine(about, 160)}{" "}
      {preview?.kind === "file" ? (
        <Changed added={preview.added} removed={preview.removed} />
      ) : null}
    </>
  );
}

function Fields({
  label,
  act,
  back,
  children,
}: {
  label: string;
  act: () => Promise<void> | undefined;
  back: () => void;
  children: ComponentChild;
}): VNode {
  return (
    <div class="fields" tabIndex={-1}>
      {children}
      <div class="row">
        <Act label={label} style="main" act={() => act()} />
        <button type="button" onClick={back}>
          Back
        </button>
      </div>
    </div>
  );
}

function Message({
  label,
  field,
  required = false,
  act,
  back,
}: {
  label: string;
  field: string;
  required?: boolean;
  act: (message: string) => Promise<void>;
  back: () => void;
}): VNode {
  const input = useRef<HTMLTextAreaElement>(null);
  return (
    <Fields
      label={label}
      back={back}
      act={() => (input.current!.reportValidity() ? act(input.current!.value) : undefined)}
    >
      <label>
        {field}
        <textarea ref={input} required={required} rows={2} spellcheck={false} />
      </label>
    </Fields>
  );
}
