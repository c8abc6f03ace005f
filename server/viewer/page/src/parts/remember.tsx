// Decisions that last: a rule is shown as it will be written before anything is.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
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

const SCOPES: Record<string, string> = { thread: "In this thread", always: "In all threads" };
const MATCHES: Record<string, string> = {
  exact: "these arguments",
  path: "this file",
  below: "files below",
  command: "commands that begin with",
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
        {text && match?.kind === "exact" ? (
          <details>
            <summary>{MATCHES.exact}</summary>
            <pre tabIndex={0}>{shown(text, 20_000)}</pre>
          </details>
        ) : (
          <>
            {MATCHES[match?.kind ?? "any"] ?? shown(match?.kind, 40)}{" "}
            {text ? <code>{shown(text, 20_000)}</code> : null}
          </>
        )}
      </dd>
      <dt>Where</dt>
      <dd>{SCOPES[rule.scope] ?? shown(rule.scope, 20)}</dd>
    </dl>
  );
}

/** Return what a proposal would cover, in words that need no other ones. */
function coverage({ tool, match }: Proposal): string {
  const value = typeof match?.value === "string" ? match.value : "";
  switch (match?.kind) {
    case "exact":
      return "Exactly this call";
    case "path":
      return `Every ${tool} on ${value}`;
    case "below":
      return `Every ${tool} below ${value}`;
    case "command":
      return `Commands that begin with ${value}`;
    default:
      return `Every call of ${tool}`;
  }
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
  const covering = useSignal("");
  const scope = useSignal("thread");
  const refused = useSignal("");
  const place = useRef<HTMLDivElement>(null);
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
  useEffect(() => {
    if (proposals.value) place.current?.scrollIntoView({ block: "nearest" });
  }, [proposals.value]);
  const all = proposals.value ?? [];
  const kinds = [...new Set(all.map(coverage))];
  const kind = covering.value || kinds[0];
  const scopes = all.filter((one) => coverage(one) === kind);
  const one = scopes.find((each) => each.scope === scope.value) ?? scopes[0];
  const add = async () => {
    refused.value = "";
    try {
      await http().method("rules/add", { proposal: one!.proposal }, new AbortController().signal);
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
      return;
    }
    await approve();
  };
  return (
    <div class="fields" tabIndex={-1} ref={place}>
      {proposals.value === null && !refused.value ? <Loading /> : null}
      {proposals.value?.length === 0 ? <p>No rule can cover just this call.</p> : null}
      {one ? (
        <>
          <Choices
            legend="Approve without asking again"
            options={kinds.map((name) => [name, name])}
            chosen={kind!}
            choose={(name) => (covering.value = name)}
          />
          <Choices
            legend="Where"
            options={scopes.map((each) => [each.scope, SCOPES[each.scope] ?? each.scope])}
            chosen={one.scope}
            choose={(name) => (scope.value = name)}
          />
          <p class="quiet">This rule will be saved. You can revoke it under “Rules”.</p>
          <RuleFacts rule={one} />
        </>
      ) : null}
      <Refused text={refused.value} />
      <div class="row">
        {one ? <Act label="Approve and save the rule" style="main" act={add} /> : null}
        <button type="button" onClick={back}>
          Back
        </button>
      </div>
    </div>
  );
}

function Choices({
  legend,
  options,
  chosen,
  choose,
}: {
  legend: string;
  options: [string, string][];
  chosen: string;
  choose: (name: string) => void;
}): VNode {
  return (
    <fieldset>
      <legend>{legend}</legend>
      {options.map(([name, label]) => (
        <label class="choice">
          <input
            type="radio"
            name={legend}
            checked={name === chosen}
            onChange={() => choose(name)}
          />
          <span>{shown(label, 500)}</span>
        </label>
      ))}
    </fieldset>
  );
}
