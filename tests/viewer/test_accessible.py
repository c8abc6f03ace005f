"""Everybody can use the page: axe-core finds nothing in any of its states, and everything fits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.viewer.browser import ENTER, ESCAPE, TAB, Browser
from tests.viewer.conftest import Served
from tests.viewer.showcase import ASK, DONE, FAILS, GOAL, showcase

PAGE = Path(__file__).resolve().parents[2] / "server" / "viewer" / "page"
AXE = PAGE / "node_modules" / "axe-core" / "axe.min.js"

_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  ({violations}) =>
    done(violations.map(({id, nodes}) => [id, nodes.map((one) => one.html.slice(0, 200))])),
  (error) => done(String(error)),
);
"""

_OUTSIDE = """
return [...document.querySelectorAll('body *')].filter((one) => {
  const {left, right, width} = one.getBoundingClientRect();
  const scrolls = one.closest('.wide-table, .hunks, pre, .tabs, .unseen, .track, .what *, .match');
  return width > 0 && !scrolls && one.checkVisibility() && (left < -1 || right > innerWidth + 1);
}).map((one) => one.outerHTML.slice(0, 200));
"""

_CUT = """
const pen = document.createElement('canvas').getContext('2d');
return [...document.querySelectorAll('input')].filter((one) => {
  const style = getComputedStyle(one);
  pen.font = style.font;
  const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return one.checkVisibility() && pen.measureText(one.placeholder).width > room;
}).map((one) => one.placeholder);
"""

_REPLICAS = """
const real = window.fetch;
const replica = {id: 'r1', host: 'agents-1', version: '1', started: '2026-01-01T00:00:00Z',
                 silent_seconds: 9, working: 2, draining: true, self: true};
const queued = {run_id: 'run_1', title: 'Later', since: '2026-01-01T00:00:00Z', doing: 'a worker'};
window.fetch = async (url, options) => {
  const response = await real(url, options);
  if (!options.body.includes('studio://fleet')) return response;
  const message = JSON.parse((await response.text()).match(/{.*}/)[0]);
  const [content] = message.result.contents;
  const facts = {...JSON.parse(content.text), replicas: [replica], queued: [queued]};
  content.text = JSON.stringify(facts);
  return new Response(JSON.stringify(message));
};
dispatchEvent(new Event('look-now'));
"""
"""Has the server tell of replicas and a queue, which would need a database."""

QUESTION = "document.querySelector('.question .hunks')"
LATER = "//button[contains(@class, 'checkpoint')][contains(., 'Calls write_todos, read')]"
IN_TABS = {"desktop": "//aside", "phone": "//div[contains(@class, 'narrow-tabs')]"}

STATES: dict[str, tuple[str, str, list[str]]] = {
    "threads": ("", "document.querySelectorAll('#threads tbody tr').length === 5", []),
    "keys": ("", "document.querySelector('#threads')", ["key:?"]),
    "nothing found": ("", "document.querySelector('#threads')", ["search:zzz", "see:.empty"]),
    "inbox": ("inbox", "document.querySelectorAll('.entry').length === 3", []),
    "new task": ("new", "document.querySelector('.new-task')", []),
    "no rules": ("rules", "document.querySelector('.empty')", []),
    "server": ("fleet", "document.querySelector('table')", []),
    "replicas": ("fleet", "document.querySelector('table')", ["replicas", "see:section + section"]),
    "approval": (GOAL, QUESTION, []),
    "edit": (GOAL, QUESTION, ["press:Edit…", "see:.fields"]),
    "reject": (GOAL, QUESTION, ["press:Reject…", "see:.fields"]),
    "rule": (GOAL, QUESTION, ["press:Remember…", "see:.rule-facts"]),
    "agents": (GOAL, QUESTION, ["tab:Agents", "see:.waterfall li"]),
    "files": (GOAL, QUESTION, ["tab:Files", "see:.tree .file"]),
    "file": (GOAL, QUESTION, ["tab:Files", "see:.tree .file", "click:.tree .file", "see:dialog p"]),
    "history": (GOAL, QUESTION, ["tab:History", "see:.checkpoint"]),
    "rewind": (
        GOAL,
        QUESTION,
        ["tab:History", "see:.checkpoint", f"click:{LATER}", "press:Rewind to here…", "see:.plan"],
    ),
    "question": (ASK, "document.querySelector('.question input')", []),
    "failed": (FAILS, "document.querySelector('.reason')", []),
    "delete": (DONE, "document.querySelector('#steps')", ["press:Delete", "see:.stop"]),
    "what the model saw": (
        DONE,
        "document.querySelector('#steps')",
        ["press:What the model saw", "see:.request"],
    ),
    "sign in": ("", "document.querySelector('#threads')", ["forget", "see:#token"]),
}
"""States: an address or a run's goal, when that is there, and what to do then."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("no axe-core: `npm ci` in server/viewer/page/")
        pytest.skip("no axe-core: run `npm ci` in server/viewer/page/")
    with showcase(tmp_path_factory.mktemp("shown")) as found:
        yield found


@pytest.fixture(params=["desktop", "phone"])
def device(browser: Browser, request: pytest.FixtureRequest) -> Iterator[str]:
    """A desktop by day, or a phone by night."""
    name = str(request.param)
    is_phone = name == "phone"
    scheme = "dark" if is_phone else "light"
    browser.emulate(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    if is_phone:
        browser.device(320, 700)
    yield name
    browser.device()
    browser.emulate()


def act(browser: Browser, step: str, device: str) -> None:
    kind, _, what = step.partition(":")
    match kind:
        case "see":
            browser.until(f"document.querySelector({what!r})?.checkVisibility()")
        case "press":
            browser.press(what)
        case "tab":
            browser.click(f"{IN_TABS[device]}//button[starts-with(normalize-space(), '{what}')]")
        case "click":
            browser.click(what)
        case "key":
            browser.keys(what)
        case "search":
            browser.write("#search", what)
        case "replicas":
            browser.run(_REPLICAS)
        case _:  # as if the token had expired
            answer = "new Response('{}', {status: 401})"
            browser.run(
                f"window.fetch = async () => {answer}; dispatchEvent(new Event('look-now'))"
            )


def found_by_axe(browser: Browser) -> Any:
    # The page's own rules let no script in; the browser's tools may put one there.
    browser.devtools("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
    return browser.run_async(_RUN)


@pytest.mark.exhaustive(cases=6)
@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing_and_everything_fits(
    browser: Browser, shown: tuple[Served, dict[str, str]], state: str, device: str
) -> None:
    served, runs = shown
    place, ready, steps = STATES[state]
    browser.go("about:blank")
    browser.go(f"{served.page}#{runs.get(place, place)}".removesuffix("#"))
    browser.until(ready)
    browser.until("!document.querySelector('[aria-disabled]')")
    for step in steps:
        act(browser, step, device)
    browser.until("!document.querySelector('[aria-disabled], .loading')")
    assert found_by_axe(browser) == []
    assert browser.run(_OUTSIDE) == []
    assert browser.run(_CUT) == []


def test_the_keyboard_stays_in_a_dialog_and_returns(
    browser: Browser, shown: tuple[Served, dict[str, str]]
) -> None:
    served, runs = shown
    focus = "return document.activeElement.innerText"
    inside = "return document.activeElement.closest('dialog') !== null"
    browser.go(f"{served.page}#{runs[DONE]}")
    browser.until("document.querySelector('#steps')")
    browser.run("document.querySelector('.speaker .faint').focus()")
    browser.keys(ENTER)
    browser.until("document.querySelector('dialog .request')")
    assert browser.run(inside)
    for _ in range(40):  # it goes round, by way of the browser's own buttons
        browser.keys(TAB)
        assert browser.run(inside) or browser.run(focus) == browser.text()
    browser.keys("i", ESCAPE)  # a command of the page is none in a dialog
    browser.until("!document.querySelector('dialog')")
    assert browser.run(focus) == "What the model saw"
    assert runs[DONE] in browser.run("return location.hash")
    # An answer that only calls a tool has no line of its own: the call says what the model saw.
    browser.run("document.querySelector('.step[data-kind=tool] summary').focus()")
    browser.keys(ENTER)
    browser.until("document.querySelector('.step[data-kind=tool] .body button')")
    browser.keys(TAB)
    assert browser.run(focus) == "What the model saw"
    browser.keys(ENTER)
    browser.until("document.querySelector('dialog .request')")
    browser.keys(ESCAPE)
    browser.press("Delete")
    browser.until("document.activeElement.innerText === 'Keep it'")  # not the one that deletes
    browser.keys(ESCAPE)
    browser.until("document.activeElement.innerText === 'Delete'")
