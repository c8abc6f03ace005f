// Decisions that last: a rule is shown as it will be written before anything is.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { coloured } from "../lib/highlight";
import { shown } from "../lib/text";
import type { Question } from "../model/types";
import { Failure } from "../server/mcp";
import { http } from "../state";
import { Act, Loading, Refused } from "./small";

interface Proposal {
  proposal: string;
  scope: "thread" | "always";
  what: string;
  toml: string;
}

const SCOPES = { thread: "In this thread", always: "Always" };

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
                {shown(proposal.what, 500)}
              </span>
            </label>
          ))}
        </fieldset>
      ) : null}
      {one ? (
        <>
          <p class="quiet">This rule will be written. It can be revoked under “Rules”.</p>
          <pre tabIndex={0} role="group" aria-label="The rule">
            {coloured(one.toml, "ini")}
          </pre>
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
