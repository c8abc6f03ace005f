// Starting a task.

import { useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { shown } from "../lib/text";
import { acting } from "../model/thread";
import { Act, Refused } from "../parts/small";
import { Failure, toolData } from "../server/mcp";
import { linkTo, me, server } from "../state";
import { title } from "./inbox_watch";

export function NewTask(): VNode {
  title.value = "New task · Deep Agent";
  const goal = useRef<HTMLTextAreaElement>(null);
  const agent = useSignal("");
  const dollars = useRef<HTMLInputElement>(null);
  const minutes = useRef<HTMLInputElement>(null);
  const refused = useSignal("");
  const files = useSignal<File[]>([]);
  // The same task sent twice by a click too many, or by a lost answer, is one.
  const key = useRef(freshKey());
  useEffect(() => goal.current?.focus(), []);
  const agents = me.value?.agents ?? [];
  const start = async () => {
    if (![goal, dollars, minutes].every((one) => one.current?.reportValidity())) return;
    refused.value = "";
    const limits = {
      ...(dollars.current!.value && { cost: Number(dollars.current!.value) }),
      ...(minutes.current!.value && { seconds: Number(minutes.current!.value) * 60 }),
    };
    try {
      const data = await acting(
        toolData(
          server.current,
          "task",
          {
            goal: goal.current!.value.trim(),
            thread_id: "new",
            wait_seconds: 0,
            idempotency_key: key.current,
            ...(agent.value && { agent: agent.value }),
            ...(Object.keys(limits).length > 0 && { limits }),
            ...(files.value.length > 0 && { files: await Promise.all(files.value.map(sent)) }),
          },
          0,
          new AbortController().signal,
        ),
      );
      location.hash = linkTo(String(data.run_id));
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      refused.value = failure.message;
    }
  };
  return (
    <div class="page new-task">
      <h1>New task</h1>
      <label>
        What should be done?
        <textarea
          ref={goal}
          required
          rows={6}
          onInput={() => (key.current = freshKey())}
          placeholder="Describe the goal, what to keep in mind, and how to know that it is done."
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void start();
          }}
        />
      </label>
      {agents.length ? (
        <label>
          Agent
          <select onChange={(event) => (agent.value = event.currentTarget.value)}>
            <option value="">The main agent</option>
            {agents.map((one) => (
              <option value={one.name}>
                {shown(one.name, 60)} – {shown(one.description, 90)}
              </option>
            ))}
          </select>
        </label>
      ) : null}
      <label>
        Files for the agent
        <input
          type="file"
          multiple
          onChange={(event) => (files.value = [...(event.currentTarget.files ?? [])])}
        />
      </label>
      <details>
        <summary>Budget</summary>
        <div class="row budget">
          <label>
            Most it may cost, in dollars
            <input ref={dollars} type="number" min="0.01" step="any" />
          </label>
          <label>
            Longest it may work, in minutes
            <input ref={minutes} type="number" min="0.1" step="any" />
          </label>
        </div>
      </details>
      {me.value?.root ? (
        <p class="quiet">
          The agent works in <code>{shown(me.value.root, 200)}</code>
          {me.value.model ? (
            <>
              {" "}
              with <code>{shown(me.value.model, 100)}</code>
            </>
          ) : null}
          .
        </p>
      ) : null}
      <Refused text={refused.value} />
      <div class="row">
        <Act label="Start" icon="play" style="main" act={start} />
        <span class="quiet">
          <kbd>Ctrl</kbd> <kbd>Enter</kbd>
        </span>
      </div>
    </div>
  );
}

function freshKey(): string {
  return `studio-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
}

/** Return a file as `task` takes it. */
async function sent(file: File): Promise<{ name: string; data: string }> {
  const all = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < all.length; at += 8_192)
    binary += String.fromCharCode(...all.subarray(at, at + 8_192));
  return { name: file.name, data: btoa(binary) };
}
