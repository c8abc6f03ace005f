import { beforeEach, describe, expect, it } from "vitest";
import { Thread } from "../src/model/thread";
import type { StepPage } from "../src/model/types";
import { server } from "../src/state";

const OVERVIEW = { runs: [], open_questions: [] };
let asked: string[] = [];
let pages: (StepPage | Promise<StepPage>)[] = [];

const page = (after: string, texts: string[], more: Partial<StepPage> = {}): StepPage => ({
  steps: texts.map((text) => ({ key: text, n: Number(after), kind: "user", ns: "", text })),
  before: null,
  after,
  ...more,
});
const texts = (thread: Thread) => thread.conversation.flat(() => false).map(({ row }) => row.text);

beforeEach(() => {
  asked = [];
  const read = async (uri: string) => {
    const isSteps = uri.includes("/steps");
    if (isSteps) asked.push(uri.split("?")[1] ?? "");
    const text = JSON.stringify(isSteps ? await pages.shift() : OVERVIEW);
    return { contents: [{ uri, text }] };
  };
  server.current = { patience: 1, canCall: true, canRead: true, hosted: false, read } as never;
});

describe("a thread that somebody else rewinds", () => {
  it("shows the conversation as it is now, and follows it", async () => {
    const thread = new Thread("t", "", new AbortController().signal);
    pages = [page("2", ["one", "two"]), page("3", ["one"], { reset: true, before: "1" }), page("4", ["new"])];
    await thread.look();
    expect(texts(thread)).toEqual(["one", "two"]);
    await thread.look();
    expect(texts(thread)).toEqual(["one"]);
    expect(thread.older.value).toBe("1");
    await thread.look();
    expect(texts(thread)).toEqual(["one", "new"]);
    expect(asked).toEqual(["limit=150", "after=2", "after=3"]);
  });

  it("drops an older page that was asked for before", async () => {
    const thread = new Thread("t", "", new AbortController().signal);
    let answer: (page: StepPage) => void = () => undefined;
    const older = new Promise<StepPage>((resolve) => (answer = resolve));
    pages = [page("5", ["five"], { before: "5" }), older, page("6", ["six"], { reset: true, before: "6" })];
    await thread.look();
    const loading = thread.loadOlder();
    await thread.look();
    answer(page("4", ["four"]));
    await loading;
    expect([texts(thread), thread.older.value]).toEqual([["six"], "6"]);
  });
});
