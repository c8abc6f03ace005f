// Decisions that last: a rule is shown as it will be written before anything is.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { prettyJson } from "../lib/exact";
import { shown } from "../lib/text";
import type { Question } from "../model/types";
import { Failure } from "../server/mcp";
import { http } from "../state";
import { Act, Loading, Refused } from "./small";

export interface Rule {
  id: string;
  says: string;
  scope: string;
  tool: string;
  agent?: string | null;
  match?: { kind: string; value?: unknown } | null;
  created?: string;
  by?: string | null;
  client?: string | null;
  thread_id?: string | null;
}
type Proposal = Rule & { proposal: string };

const SCOPES: Record<string, string> = { thread: "In this thread", always: "Always" };
const MATCHES: Record<string, string> = {
  exact: "these arguments",
  path: "this file",
  below: "files below",
  command: "this command",
  any: "any arguments",
};

/** A rule, taken apart. */
export function RuleFacts({ rule }: { rule: Rule }): VNode {
  const { match } = rule;
  const value = match?.value;
  const text = typeof value === "string" ? value : value == null ? "" : prettyJson(value);
  return (
    <dl class="rule-facts">
      <dt>Tool</dt>
      <dd>
        <code>{shown(rule.tool, 200)}</code>
      </dd>
      {rule.agent ? (
        <>
          <dt>Agent</dt>
          <dd>{shown(rule.agent, 200)}</dd>
        </>
      ) : null}
      <dt>For</dt>
      <dd>
        {MATCHES[match?.kind ?? "any"] ?? shown(match?.kind, 40)}
        {text ? <pre tabIndex={0}>{shown(text, 20_000)}</pre> : null}
      </dd>
      <dt>Where</dt>
      <dd>{SCOPES[rule.scope] ?? shown(rule.scope, 20)}</dd>
    </dl>
  );
}

export function Remember({
  question,
  approve,
  back,
}: {
  question: Question;
  approve: () => Promise<void>;
  back: () => void;
}): VNode {
  const proposals = useSignal<Proposal[] | null>(null);
  const chosen = useSignal(0);
  const refused = useSignal("");
  useEffect(() => {
    const end = new AbortController();
    http()
      .method("rules/propose", { runId: question.run_id, questionId: question.id }, end.signal)
      .then((data) => (proposals.value = (data.proposals ?? []) as Proposal[]))
      .catch((failure: unknown) => {
        if (!end.signal.aborted) refused.value = String((failure as Error).message ?? failure);
      });
    return () => end.abort();
  }, [question.id]);
  const add = async () => {
    const { proposal } = proposals.value![chosen.value]!;
    refused.value = "";
    try {
      await http().method("rules/add", { proposal }, new AbortController().signal);
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
      return;
    }
    await approve();
  };
  const all = proposals.value;
  const one = all?.[chosen.value];
  return (
    <div class="fields">
      {all === null && !refused.value ? <Loading what="Asking for the rule…" /> : null}
      {all?.length === 0 ? <p>There is no rule that would cover just this call.</p> : null}
      {all?.length ? (
        <fieldset>
          <legend>Approve calls like this without asking again</legend>
          {all.map((proposal, at) => (
            <label class="choice">
              <input
                type="radio"
                name={`remember-${question.id}`}
                checked={at === chosen.value}
                onChange={() => (chosen.value = at)}
              />
              <span>
                <strong>{SCOPES[proposal.scope] ?? shown(proposal.scope, 20)}</strong>:{" "}
                {shown(proposal.says, 500)}
              </span>
            </label>
          ))}
        </fieldset>
      ) : null}
      {one ? (
        <>
          <p class="quiet">This rule will be written. It can be revoked under “Rules”.</p>
          <RuleFacts rule={one} />
        </>
      ) : null}
      <Refused text={refused.value} />
      <div class="row">
        {one ? <Act label="Approve and write the rule" style="main" act={add} /> : null}
        <button type="button" onClick={back}>
          Back
        </button>
      </div>
    </div>
  );
}
