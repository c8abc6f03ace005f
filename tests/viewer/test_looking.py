"""The page asks for little, stays small, and does not disturb those who look at it."""

from __future__ import annotations

from typing import Any

from tests.viewer.browser import Browser
from tests.viewer.conftest import Served

_SERVER = """
const answers = arguments[0];
window.sent = [];
window.fetch = async (url, {body}) => {
  const {id, params} = JSON.parse(body);
  window.sent.push(body);
  const name = params.name ?? params.uri.replace(/[?].*/, "");
  const given = answers[name];
  const found = Array.isArray(given) ? (given.length > 1 ? given.shift() : given[0]) : given;
  const error = {code: -32602, message: `Resource not found: ${name}`};
  const result = params.uri
    ? {contents: [{uri: params.uri, text: JSON.stringify(found)}]}
    : {structuredContent: found};
  return new Response(JSON.stringify({jsonrpc: "2.0", id, ...(found ? {result} : {error})}));
};
location.hash = arguments[1];
"""


def answered(browser: Browser, served: Served, answers: dict[str, Any], thread_id: str) -> None:
    """Show a thread of a server that gives these answers."""
    browser.go(served.page)
    browser.until_text("Threads")
    browser.run(_SERVER, answers, f"#{thread_id}")


def overview(thread_id: str, status: str, **others: Any) -> dict[str, Any]:
    """Return what the server says of a thread with one run."""
    run = {"run_id": "run_1", "kind": "delegate", "agent": "main", "status": status}
    return {"thread_id": thread_id, "title": "a title", "status": status, "cost": 0, "tokens": 0,
            "unpriced": 0, "seconds": 1, "runs": [run], "costs": [], "todos": [],
            "checkpoint_id": "c", "open_questions": [], **others}  # fmt: skip


def test_a_huge_thread_keeps_the_page_small(browser: Browser, served: Served) -> None:
    def page(number: int) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        for at in range(number * 400, number * 400 + 400):
            call = {"call_id": f"call{at}", "name": "task", "subagent_ns": f"task:call{at}@s",
                    "args_json": f'{{"description": "part {at}"}}'}  # fmt: skip
            own = {"ns": f"task:call{at}@s", "agent": "worker", "calls": []}
            result = {"kind": "tool", "call_id": f"call{at}", "status": "ok", "text": "ok " * 90}
            steps += [
                {"kind": "text", "key": f"m{at}", "ns": "", "text": "", "calls": [call]},
                {"kind": "text", "key": f"s{at}", "text": "done " * 50, **own},
                {"key": f"r{at}", "ns": "", "name": "task", **result},
            ]
        return {"steps": steps, "before": None, "after": str(number), "more": number < 4,
                "total": 2_000, "working": []}  # fmt: skip

    ended: dict[str, Any] = {**page(4), "steps": [], "more": False}
    answers: dict[str, Any] = {
        "thread://thr_huge/overview": overview("thr_huge", "cancelled"),
        "thread://thr_huge/steps": [*map(page, range(5)), ended],
        "thread://thr_huge/agents": {"agents": []},
    }
    answered(browser, served, answers, "thr_huge")
    browser.until_text("cancelled", "part 1999")
    browser.click("#tab-agents")
    browser.until_text("1950 earlier ones are not shown.")
    assert browser.run("return document.querySelectorAll('*').length") < 5_000


def test_names_that_mean_something_to_javascript_mean_nothing_here(
    browser: Browser, served: Served
) -> None:
    asked = {"run_id": "run_1", "thread_id": "thr_odd", "asked_by": ["main"], "path": ["main", "x"]}
    question = {
        **asked,
        "id": "__proto__",
        "kind": "approval",
        "message": "constructor",
        "tool": "toString",
        "args_json": '{"__proto__": {"tool": 1}, "2": 0, "1": 0}',
        "decisions": ["constructor", "toString", "approve", "edit"],
    }
    form = {
        **asked,
        "id": "hasOwnProperty",
        "kind": "question",
        "message": "which",
        "decisions": [],
        "answer_schema": {"type": "object", "properties": {"__proto__": {"type": "valueOf"}}},
    }
    answers = {
        "thread://thr_odd/overview": overview(
            "thr_odd", "needs_approval", open_questions=[question, form]
        ),
        "thread://thr_odd/steps": {"steps": [], "before": None, "after": "", "total": 0},
        "run://run_1/questions/__proto__": question,
        "run://run_1/questions/hasOwnProperty": form,
        "reply": {"run_id": "run_1", "status": "needs_approval"},
    }
    answered(browser, served, answers, "thr_odd")
    browser.until_text("toString", "__proto__")
    buttons = "return [...document.querySelector('.question').querySelectorAll('.decide button')]" \
              ".map((one) => one.textContent)"  # fmt: skip
    assert browser.run(buttons) == ["Approve", "Edit…", "Remember…"]
    names = "return [...document.querySelectorAll('.question dt')].map((one) => one.innerText)"
    assert browser.run(names) == ["__proto__", "2", "1"]
    browser.press("Edit…")
    browser.press("Approve with these arguments")
    browser.until("window.sent.some((one) => one.includes('\"reply\"'))")
    assert browser.run("return ({}).tool === undefined && ({}).decision === undefined")
    sent = browser.run("return window.sent.find((one) => one.includes('\"reply\"'))")
    assert '"answers":{"__proto__":{"decision":"edit","args":{' in sent
    assert '"__proto__": {' in sent


def test_what_has_not_changed_stays_as_it_is(browser: Browser, served: Served) -> None:
    served.call("write_todos", todos=[])
    browser.go(served.page)
    browser.until("document.querySelector('#threads a')")
    browser.run(
        "document.querySelector('#threads a').mark = true; performance.clearResourceTimings()"
    )
    for asked in (1, 2):
        browser.run("window.dispatchEvent(new Event('look-now'))")
        browser.until(f"performance.getEntriesByType('resource').length >= {asked}")
    assert browser.run("return document.querySelector('#threads a').mark"), "a click would be lost"


def test_a_server_that_is_away_is_told_of_once_and_only_to_those_who_look(
    browser: Browser, served: Served
) -> None:
    browser.go(served.page)
    browser.until_text("Threads")
    browser.run(
        """window.later = window.setTimeout;
        window.setTimeout = (act, delay) => later(act, delay > 10_000 ? delay : delay / 100);
        window.asked = window.told = 0;
        window.fetch = async () => { window.asked += 1; throw new TypeError('away'); };
        new MutationObserver((all) => {
          window.told += all.filter(({target}) => target.role === 'alert').length;
        }).observe(document.getElementById('trouble'), {subtree: true, childList: true});
        window.dispatchEvent(new Event('look-now'));"""
    )
    browser.until("window.asked > 4")
    browser.until_text("The server does not answer. Trying again in")
    assert browser.run("return window.told") <= 1
    hidden = """Object.defineProperty(document, 'hidden', {value: true, configurable: true});
        const before = window.asked;
        return new Promise((done) =>
          window.later(() => done(window.asked - before), 500));"""
    assert browser.run(hidden) <= 1
    assert browser.run("return window.asked") > 4
