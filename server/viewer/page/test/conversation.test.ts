import { describe, expect, it } from "vitest";
import { Conversation } from "../src/model/conversation";
import type { Step } from "../src/model/types";

const call = (id: string, name: string, args: object, subagent_ns: string | null = null) => ({
  call_id: id,
  name,
  args_json: JSON.stringify(args),
  subagent_ns,
});
const NS = "task:c1@s1";
const STEPS: Step[] = [
  { key: "u", n: 1, kind: "user", ns: "", text: "Do it" },
  {
    key: "a",
    n: 2,
    kind: "text",
    ns: "",
    agent: "main",
    text: "I ask.",
    calls: [call("c1", "task", { description: "Look", subagent_type: "scout" }, NS)],
  },
  { key: "su", n: 3, kind: "user", ns: NS, text: "Look" },
  { key: "sa", n: 4, kind: "text", ns: NS, agent: "scout", text: "Seen.", calls: [] },
  { key: "r", n: 5, kind: "tool", ns: "", call_id: "c1", name: "task", status: "ok", text: "Seen." },
];
const words = (talk: Conversation) =>
  talk.flat(() => false).map(({ row, depth }) => `${depth} ${row.kind} ${row.name} ${row.state}`);

describe("a conversation", () => {
  const WHOLE = ["0 user  success", "0 text main success", "0 tool task success", "1 text scout success"];

  it("puts what a subagent did below the call that started it", () => {
    const talk = new Conversation();
    talk.takeSteps(STEPS);
    expect(words(talk)).toEqual(WHOLE);
    expect([...talk.agents.values()].map((one) => one.task)).toEqual(["", "Look"]);
  });

  it("is the same when its pages come newest first, and twice", () => {
    for (let cut = 1; cut < STEPS.length; cut += 1) {
      const talk = new Conversation();
      talk.takeSteps(STEPS.slice(cut));
      talk.takeSteps(STEPS.slice(0, cut), true);
      talk.takeSteps(STEPS.slice(-1));
      expect(words(talk), `cut at ${cut}`).toEqual(WHOLE);
    }
  });

  it("counts the lines that a call changed as its result does, in any order of pages", () => {
    const args = { path: "/a.txt", content: "x\n".repeat(600) };
    const guess = { path: "/a.txt", added: 600, removed: null };
    const file = { path: "/a.txt", added: 150, removed: 150, created: false };
    const steps: Step[] = [
      { key: "a", n: 1, kind: "text", calls: [{ ...call("w", "write_file", args), file: guess }] },
      { key: "r", n: 2, kind: "tool", call_id: "w", name: "write_file", status: "ok", file },
    ];
    const counts = (talk: Conversation) => talk.flat(() => false).map(({ row }) => row.file);
    const talk = new Conversation();
    talk.takeSteps(steps.slice(0, 1));
    expect(counts(talk)).toEqual([guess]);
    talk.takeSteps(steps.slice(1));
    expect(counts(talk)).toEqual([file]);
    talk.takeSteps(steps.slice(0, 1));
    expect(counts(talk)).toEqual([file]);
    const backwards = new Conversation();
    backwards.takeSteps(steps.slice(1));
    backwards.takeSteps(steps.slice(0, 1), true);
    expect(counts(backwards)).toEqual([file]);
    const live = new Conversation();
    const event = { mode: "tasks", path: ["main", "w"] };
    live.takeEvents({
      events: [
        { ...event, seq: 1, event: "tool_start", name: "write_file", args },
        { ...event, seq: 2, event: "tool_end", status: "success", changed: file },
      ],
    });
    expect(counts(live)).toEqual([file]);
  });

  it("marks the call that waits for a person", () => {
    const talk = new Conversation();
    talk.takeSteps(STEPS.slice(0, 2));
    talk.markWaiting([["main", "c1"]]);
    expect(words(talk).at(-1)).toBe("0 tool task waiting");
    talk.markWaiting([]);
    expect(words(talk).at(-1)).toBe("0 tool task works");
  });
});
