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
  const given = answers[params.name];
  const result = Array.isArray(given) ? (given.length > 1 ? given.shift() : given[0]) : given;
  return new Response(JSON.stringify({jsonrpc: "2.0", id, result: {structuredContent: result}}));
};
location.hash = arguments[1];
"""


def answered(browser: Browser, served: Served, answers: dict[str, Any], run_id: str) -> None:
    """Show a run of a server that gives these answers."""
    browser.go(served.page)
    browser.until_text("Threads")
    browser.run(_SERVER, answers, f"#{run_id}")


def test_a_huge_run_keeps_the_page_small(browser: Browser, served: Served) -> None:
    def page(number: int) -> dict[str, Any]:
        events: list[dict[str, Any]] = []
        for at in range(number * 400, number * 400 + 400):
            call = ["main", f"call{at}"]
            args = {"description": f"part {at}", "subagent_type": "worker"}
            events += [
                {"event": "tool_start", "path": call, "name": "task", "args": args},
                {"event": "model_start", "path": [*call, "worker"]},
                {"event": "model_end", "path": [*call, "worker"], "text": "done " * 50},
                {"event": "tool_end", "path": call, "status": "success", "text": "ok " * 90},
            ]
        numbered = [
            {"seq": number * 1600 + at + 1, "mode": "tasks", "time": "2026-11-22T00:00:00Z", **one}
            for at, one in enumerate(events)
        ]
        return {"run_id": "run_huge", "thread_id": "thr_huge", "status": "running", "next": "",
                "events": numbered, "events_next": numbered[-1]["seq"],
                "events_more": number < 4}  # fmt: skip

    ended: dict[str, Any] = {**page(4), "events": [], "status": "cancelled", "events_more": False}
    answers: dict[str, Any] = {
        "wait": [*map(page, range(5)), ended],
        "threads": {"thread_id": "thr_huge"},
    }
    answered(browser, served, answers, "run_huge")
    browser.until_text("cancelled", "part 1999", "1950 earlier ones are not shown.")
    assert browser.run("return document.querySelectorAll('*').length") < 5_000


def test_names_that_mean_something_to_javascript_mean_nothing_here(
    browser: Browser, served: Served
) -> None:
    question = {
        "id": "__proto__",
        "question": "constructor",
        "asked_by": "main",
        "tool": "toString",
        "args": '{"__proto__": {"tool": 1}, "2": 0, "1": 0}',
        "decisions": ["constructor", "toString", "approve", "edit"],
    }
    form = {
        "id": "hasOwnProperty",
        "question": "which",
        "asked_by": "main",
        "answer_schema": {"type": "object", "properties": {"__proto__": {"type": "valueOf"}}},
    }
    run = {"run_id": "run_odd", "thread_id": "thr_odd", "status": "needs_approval", "next": "",
           "pending": [question, form]}  # fmt: skip
    answers = {"wait": run, "reply": run, "threads": {"thread_id": "thr_odd"}}
    answered(browser, served, answers, "run_odd")
    browser.until_text("toString")
    buttons = "return [...document.querySelector('.question').querySelectorAll('button')].map(" \
              "(one) => one.innerText)"  # fmt: skip
    assert browser.run(buttons) == ["Approve", "Edit…"]
    assert '"2": 0,\n  "1": 0' in browser.text(".question pre")
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
