// Decisions that last: the rules that were written from here, and the way to revoke them.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect } from "preact/hooks";
import { shown } from "../lib/text";
import { type Rule, RuleFacts } from "../parts/remember";
import { Ago, Loading, Refused, Twice } from "../parts/small";
import { keepLooking, lookNow } from "../server/looking";
import { Failure, readData } from "../server/mcp";
import { http, linkTo, server } from "../state";
import { title } from "./inbox_watch";

export function Rules(): VNode {
  title.value = "Rules · Deep Agent";
  const rules = useSignal<Rule[] | null>(null);
  const refused = useSignal("");
  useEffect(() => {
    const end = new AbortController();
    const look = async () => {
      rules.value = ((await readData(server.current, "studio://rules", end.signal)).rules ?? []) as Rule[];
      return 5;
    };
    void keepLooking(look, end.signal);
    return () => end.abort();
  }, []);
  const revoke = async (id: string) => {
    refused.value = "";
    try {
      await http().method("rules/revoke", { id }, new AbortController().signal);
      lookNow();
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
    }
  };
  return (
    <div class="page">
      <h1>Rules</h1>
      <p class="quiet">
        Approvals that you asked to be remembered. The server's own policy is not listed here, and you cannot
        change it here.
      </p>
      <Refused text={refused.value} />
      {rules.value === null ? (
        <Loading />
      ) : rules.value.length ? (
        <ul class="rules">
          {rules.value.map((one) => (
            <li key={one.id}>
              <div>
                <p dir="auto">
                  <strong>{one.scope === "thread" ? "In one thread" : "In all threads"}</strong>: {shown(one.says, 500)}
                </p>
                <p class="quiet">
                  {one.by ? `${shown(one.by, 60)} · ` : ""}
                  <Ago time={one.created} />
                  {one.thread_id ? (
                    <>
                      {" · "}
                      <a href={linkTo(one.thread_id)}>Open the thread</a>
                    </>
                  ) : null}
                </p>
                <details>
                  <summary>The rule</summary>
                  <RuleFacts rule={one} />
                </details>
              </div>
              <Twice label="Revoke" sure="Revoke the rule" back="Keep it" act={() => revoke(one.id)} />
            </li>
          ))}
        </ul>
      ) : (
        <div class="empty">
          <h2>No rules yet.</h2>
          <p>When you approve a call, choose “Remember…” to approve similar calls without being asked again.</p>
        </div>
      )}
    </div>
  );
}
