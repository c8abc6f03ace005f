import { render } from "preact";
import { describe, expect, it } from "vitest";
import { Markdown } from "../src/lib/markdown";
import { ago, duration, seen } from "../src/lib/text";
import { Conversation } from "../src/model/conversation";
import type { FileLines, Question } from "../src/model/types";
import { counted } from "../src/parts/diff";
import { headline } from "../src/parts/question";
import { RowView } from "../src/parts/rows";
import { dayOf, readQuery } from "../src/views/threads";

function drawn(text: string): HTMLElement {
  const place = document.createElement("div");
  render(<Markdown text={text} />, place);
  return place;
}

describe("times", () => {
  it("are rounded, and in the singular where there is one", () => {
    const said = [0.01, 9.96, 59.7, 119.7, 3_599.8, 86_399, 100_000, 200_000].map(duration);
    expect(said).toEqual(
      ["< 0.1 s", "10 s", "1 min 0 s", "2 min 0 s", "1 h 0 min", "1 day", "1 day", "2 days"],
    );
    expect(ago("2026-01-01T00:00:30Z", Date.parse("2026-01-01T00:00:00Z"))).toBe("in a moment");
  });
});

describe("the row of a call that writes a file", () => {
  const row = (file: FileLines, status?: string) => {
    const talk = new Conversation();
    const args_json = JSON.stringify({ path: "/a.txt", content: "x\n".repeat(600) });
    const calls = [{ call_id: "w", name: "write_file", args_json, file }];
    talk.takeSteps([{ key: "a", n: 1, kind: "text", calls }]);
    if (status) talk.takeSteps([{ key: "r", n: 2, kind: "tool", call_id: "w", status, file }]);
    const place = document.createElement("div");
    const actions = { fold: () => {}, isFolded: () => false };
    const shown = talk.flat(() => false)[0]!.row;
    render(<RowView row={shown} version={1} depth={0} folded={false} actions={actions} />, place);
    return place.querySelector(".changed")?.textContent;
  };

  it("says what changed once that is known, and its length before", () => {
    expect(row({ path: "/a.txt", added: 600, removed: null })).toBe("600 lines");
    expect(row({ path: "/a.txt", added: 150, removed: 150, created: false }, "ok")).toBe("+150 −150");
    expect(row({ path: "/a.txt", added: 600, removed: 0, created: true }, "ok")).toBe("+600");
  });
});

describe("a question", () => {
  it("is shown whole, with a long address in it", () => {
    const message = `Open https://bank.example/?state=${"x".repeat(4_000)} in a browser.`;
    expect(headline({ message } as Question)).toBe(message);
  });
});

describe("Markdown", () => {
  it("becomes elements, and HTML in it stays text", () => {
    const place = drawn("# A\n\n- **b** <img src=x onerror=alert(1)>\n\n<script>x</script>");
    expect(place.querySelector("h2")?.textContent).toBe("A");
    expect(place.querySelector("strong")?.textContent).toBe("b");
    expect(place.querySelector("img, script")).toBeNull();
    expect(place.textContent).toContain("<img src=x onerror=alert(1)>");
  });

  it("links to the web only, and says where to", () => {
    const place = drawn("[a](javascript:alert(1)) [b](https://example.org/x) ![c](https://e.org/p)");
    const links = [...place.querySelectorAll("a")];
    expect(links.map((one) => one.href)).toEqual(["https://example.org/x"]);
    expect(place.textContent).toContain("(example.org)");
    expect(place.querySelector("img")).toBeNull();
  });
});

describe("texts", () => {
  it("show characters that nobody sees", () => {
    expect(seen("a\u202eb\u200bc")).toBe("a[U+202E]b[U+200B]c");
  });

  it("of a search box are words and filters", () => {
    expect(readQuery('retry status:waiting agent:"code reviewer" x:y')).toEqual({
      status: "waiting",
      agent: "code reviewer",
      q: "retry x:y",
    });
    const friday = new Date(2026, 10, 27, 12);
    expect(new Date(dayOf("monday", friday)).getDate()).toBe(23);
    expect(dayOf("2d", friday)).toBe("2d");
  });

  it("of a diff are counted by line", () => {
    const hunk = { oldStart: 1, newStart: 1, oldLines: 1, newLines: 2, lines: ["-a", "+b", "+c", " d"] };
    expect(counted([hunk])).toEqual({ added: 2, removed: 1 });
  });
});
