// Who works on a thread, with times and costs.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { count, dollars, duration, oneLine, shown } from "../lib/text";
import type { Agent } from "../model/rows";
import { type Thread, threadUri } from "../model/thread";
import type { LedgerLine, Overview, Usage } from "../model/types";
import { readData } from "../server/mcp";
import { server } from "../state";

const MOST_AGENTS = 50;
const WORDS = { works: "working", success: "done", error: "failed", waiting: "needs an answer" };

interface Timed {
  ns: string;
  name: string;
  task?: string;
  started?: string;
  ended?: string | null;
  last_step?: string;
  cost?: number | null;
  model_calls?: number;
  tool_calls?: number;
}

export function Agents({ thread }: { thread: Thread }): VNode {
  void thread.version.value;
  const overview = thread.overview.value!;
  const main = thread.conversation.main;
  return (
    <>
      <ul class="agents">
        <Branch agent={main} thread={thread} version={thread.version.value} />
      </ul>
      <Waterfall thread={thread} />
      <Costs overview={overview} />
    </>
  );
}

function below(agent: Agent): Agent[] {
  return agent.rows.flatMap((row) => row.agents);
}

function Branch({
  agent,
  thread,
  version,
}: {
  agent: Agent;
  thread: Thread;
  /** Agents change: the same one is drawn anew. */
  version: number;
}): VNode {
  const children = below(agent);
  const kept = children.slice(-MOST_AGENTS);
  const chosen = thread.only.value === agent.key;
  return (
    <li data-hue={agent.number ? agent.number % 6 : undefined}>
      <button
        type="button"
        class="agent"
        aria-pressed={chosen}
        title="Show only what it did"
        onClick={() => (thread.only.value = chosen || agent === thread.conversation.main ? null : agent.key)}
      >
        <strong>{shown(agent.name, 200)}</strong> {WORDS[agent.state]}
        {agent.task ? (
          <span class="task quiet" dir="auto">
            {oneLine(agent.task)}
          </span>
        ) : null}
      </button>
      {children.length ? (
        <ul>
          {children.length > kept.length ? (
            <li class="quiet">{children.length - kept.length} earlier ones are not shown.</li>
          ) : null}
          {kept.map((one) => (
            <Branch key={one.key} agent={one} thread={thread} version={version} />
          ))}
        </ul>
      ) : null}
    </li>
  );
}

/** When each agent of the run worked, one below the other. */
function Waterfall({ thread }: { thread: Thread }): VNode | null {
  const agents = useSignal<Timed[]>([]);
  const run = thread.run?.run_id;
  const checkpoints = thread.overview.value?.checkpoint_id;
  useEffect(() => {
    if (!run) return;
    const end = new AbortController();
    readData(server.current, threadUri(thread.id, "agents"), end.signal)
      .then((data) => (agents.value = (data.agents ?? []) as Timed[]))
      .catch(() => {}); // it is one way more to look at it, not the only one
    return () => end.abort();
  }, [run, checkpoints]);
  const timed = agents.value.filter((one) => one.started).slice(0, MOST_AGENTS);
  if (timed.length < 2) return null;
  const from = Math.min(...timed.map((one) => Date.parse(one.started!)));
  // Who waits for a person does not work meanwhile.
  const working = thread.run?.status === "running";
  const ends = timed.map((one) =>
    working && !one.ended ? Date.now() : Date.parse(one.ended ?? one.last_step ?? one.started!),
  );
  const whole = Math.max(1, Math.max(...ends) - from);
  return (
    <section>
      <h2>Time</h2>
      <ol class="waterfall">
        {timed.map((one, at) => {
          const start = Date.parse(one.started!) - from;
          const length = ends[at]! - from - start;
          return (
            <li>
              <span class="name" dir="auto" title={shown(one.task ?? "", 300)}>
                {oneLine(one.name, 40)}
              </span>
              <span class="track">
                <span
                  class="bar"
                  data-hue={hueOf(thread, one.ns)}
                  style={{
                    insetInlineStart: `${(start / whole) * 100}%`,
                    width: `${Math.max(1, (length / whole) * 100)}%`,
                  }}
                />
              </span>
              <span class="number">{duration(length / 1000)}</span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

function hueOf(thread: Thread, ns: string): number | undefined {
  const number = thread.conversation.agents.get(ns)?.number;
  return number ? number % 6 : undefined;
}

function tokens(usage: Usage | undefined): number {
  return Object.values(usage ?? {}).reduce<number>(
    (sum, one) => sum + (Number.isFinite(one) ? one! : 0),
    0,
  );
}

function price(cost: number | null | undefined): string {
  return typeof cost === "number" ? dollars(cost) : "?";
}

function Costs({ overview }: { overview: Overview }): VNode {
  const runs = overview.runs;
  const sum = (of: (one: (typeof runs)[number]) => number | undefined) =>
    runs.reduce((all, one) => all + (of(one) ?? 0), 0);
  const models = sum((one) => one.usage?.model_calls);
  const tools = sum((one) => one.usage?.tool_calls);
  const lines: LedgerLine[] = overview.costs ?? runs.flatMap((one) => one.usage?.ledger ?? []);
  const cached = lines.reduce((all, one) => all + (one.usage?.cache_read_tokens ?? 0), 0);
  const unpriced = overview.unpriced ?? sum((one) => one.usage?.unpriced_calls);
  const known = dollars(overview.cost ?? 0);
  const unknown = `${count(unpriced)} calls of unknown price`;
  const all = !unpriced ? known : overview.cost ? `${known}, ${unknown}` : unknown;
  return (
    <section>
      <h2>Usage</h2>
      {models || tools ? (
        <p class="total">
          {all}, {count(overview.tokens ?? lines.reduce((every, one) => every + tokens(one.usage), 0))} tokens
          {cached ? ` (${count(cached)} from cache)` : ""}, {count(models)} model calls, {count(tools)} tool calls,{" "}
          {duration(overview.seconds)}
        </p>
      ) : (
        <p class="quiet">No model calls yet.</p>
      )}
      {lines.length ? (
        <div class="wide-table" tabIndex={0} role="group" aria-label="Usage by agent">
          <table class="costs">
            <thead>
              <tr>
                <th scope="col">Agent</th>
                <th scope="col" class="number">
                  Calls
                </th>
                <th scope="col" class="number">
                  In
                </th>
                <th scope="col" class="number">
                  Cached
                </th>
                <th scope="col" class="number">
                  Out
                </th>
                <th scope="col" class="number">
                  Cost
                </th>
              </tr>
            </thead>
            <tbody>
              {lines.map((one) => (
                <tr>
                  <td>
                    {shown(one.agent, 200)}
                    <span class="quiet model">{shown(one.model, 200)}</span>
                  </td>
                  <td class="number">{count(one.calls)}</td>
                  <td class="number">{count(one.usage?.input_tokens)}</td>
                  <td class="number">{count(one.usage?.cache_read_tokens)}</td>
                  <td class="number">{count(one.usage?.output_tokens)}</td>
                  <td class="number">{price(one.cost || !unpriced ? one.cost : null)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </section>
  );
}
