"""A person follows and decides runs in a browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from click.testing import CliRunner

from deep_agent_mcp.server.cli.main import cli
from tests.ports_and_waits import free_port
from tests.viewer.browser import ENTER, Browser
from tests.viewer.conftest import Served, viewer_setup
from tests.viewer.scripts import HOSTILE

# If the page has not tried by itself in this moment.
TRY_NOW = """
[...document.querySelectorAll("button")].find((one) => one.innerText === "Try now")?.click();
"""
STATUS = "document.querySelector('[role=status]').innerText"


def open_run(browser: Browser, served: Served, goal: str) -> str:
    run_id = served.begin(goal)
    browser.go(f"{served.page}#{run_id}")
    browser.until_text(goal)
    return run_id


def until_status(browser: Browser, status: str) -> None:
    browser.until(f"{STATUS} === '{status}'")


def card(question: str) -> str:
    return f"//article[contains(., '{question}')]"


def test_a_run_is_found_followed_live_and_approved(browser: Browser, served: Served) -> None:
    run_id = served.begin("survey the house")
    browser.go(served.page)
    browser.until_text("Threads", "survey the house")
    browser.click(f"a[href='#{run_id}']")
    until_status(browser, "needs an answer")
    browser.until("document.querySelector('#steps').innerText.includes('Wants to write')")
    for todo in ("look around", "write it down"):
        assert todo in browser.text(".todos")
    steps = browser.text("#steps")
    for step in ("I make a plan.", "Updated the todo list: 0 of 2 done", "look at the attic",
                 "Listed /", "Nothing there.", "Wants to write /survey.txt"):  # fmt: skip
        assert step in steps, step
    browser.click("#tab-agents")
    browser.until_text("7 model calls")
    agents = browser.text(".agents")
    assert agents.count("general-purpose done") == 2 and "main needs an answer" in agents
    assert "look at the attic" in agents and "look at the cellar" in agents
    assert "3,702 tokens" in browser.text(".panel")
    assert not (served.setup.root / "survey.txt").exists()
    browser.press("Approve")
    until_status(browser, "done")
    browser.until_text("The survey is written.")
    assert (served.setup.root / "survey.txt").read_text() == "x\n"
    assert browser.run("return document.querySelectorAll('.question').length") == 0


def test_a_run_that_waits_for_an_overloaded_model_says_so(browser: Browser, served: Served) -> None:
    open_run(browser, served, "wait for the model")
    told = "The model is overloaded; next try in 300 s"
    browser.until_text(f"Right now: main: {told}")
    browser.press("Cancel")
    browser.press("Stop the run")
    until_status(browser, "cancelled")


def test_a_rejected_call_is_not_made_and_the_agent_hears_why(
    browser: Browser, served: Served
) -> None:
    open_run(browser, served, "write once")
    browser.press("Reject…")
    browser.write(".question textarea", "not on a Sunday")
    browser.press("Reject")
    until_status(browser, "done")
    browser.until_text("It went on.", "not on a Sunday")  # what a failed step says is in sight
    assert not (served.setup.root / "once.txt").exists()


def test_a_call_is_edited_before_it_is_made(browser: Browser, served: Served) -> None:
    run_id = open_run(browser, served, "write once")
    browser.press("Edit…")
    browser.press("Edit as JSON")
    browser.write(".question textarea", "[1]", clear=True)
    browser.press("Approve with these arguments")
    invalid = "document.querySelector('.question textarea').matches(':invalid')"
    assert browser.run(f"return {invalid}")
    assert served.status(run_id) == "needs_approval"
    args = '{"path": "/once.txt", "content": "edited"}'
    browser.write(".question textarea", args, clear=True)
    browser.press("Approve with these arguments")
    until_status(browser, "done")
    assert (served.setup.root / "once.txt").read_text() == "edited"


def test_two_calls_are_decided_one_by_one(browser: Browser, served: Served) -> None:
    open_run(browser, served, "ask twice")
    browser.until("document.querySelectorAll('.question').length === 2")
    browser.press("Respond…", card("/b.txt"))
    browser.write(".question textarea", "there is one already")
    browser.press("Approve", card("/a.txt"))  # what was typed for the other one stays
    browser.until("document.querySelectorAll('.question').length === 1")
    browser.press("Respond", card("/b.txt"))
    until_status(browser, "done")
    browser.click("//summary[contains(., '/b.txt')]")
    browser.until("document.querySelector('#steps').textContent.includes('one already')")
    assert (served.setup.root / "a.txt").exists()
    assert not (served.setup.root / "b.txt").exists()


def test_questions_are_answered_in_words_and_by_forms(browser: Browser, served: Served) -> None:
    run_id = open_run(browser, served, "ask the person")
    browser.until_text("Which name?")
    browser.write(".question textarea", "Ann")
    browser.press("Answer")
    browser.until_text("How many?")
    browser.press("Answer")  # the number is missing
    assert browser.run("return document.querySelector('input[type=number]').matches(':invalid')")
    browser.write(".question select", "green")
    browser.write(".question input[type=number]", "3")
    browser.click(".question input[type=checkbox]")
    browser.press("Answer")
    until_status(browser, "done")
    events = str(served.call("wait", run_id=run_id, events_after=0)["events"])
    assert "Ann" in events
    assert '{"colour": "green", "count": 3, "urgent": true}' in events


def test_a_run_is_cancelled_only_after_a_second_look(browser: Browser, served: Served) -> None:
    run_id = open_run(browser, served, "take your time")
    until_status(browser, "running")
    browser.until_text("Right now: main: thinking")
    browser.press("Cancel")
    browser.press("Keep it running")
    assert served.call("wait", run_id=run_id, wait_seconds=0)["status"] == "running"
    browser.press("Cancel")
    browser.press("Stop the run")
    until_status(browser, "cancelled")
    browser.until_text("The run was cancelled.")
    assert served.status(run_id) == "cancelled"


def test_what_another_client_decides_is_seen(browser: Browser, served: Served) -> None:
    browser.go(served.page)
    browser.until_text("Threads")
    run_id = served.begin("write once")
    browser.look()
    browser.until(f"document.querySelector(\"a[href='#{run_id}']\")")
    browser.click(f"a[href='#{run_id}']")
    browser.until_text("Approve")
    (question,) = served.call("wait", run_id=run_id, wait_seconds=0)["pending"]
    served.call("reply", run_id=run_id, answers={question["id"]: "reject"}, wait_seconds=5)
    browser.look()
    until_status(browser, "done")
    assert browser.run("return document.querySelectorAll('.question').length") == 0


def test_a_conversation_that_another_client_rewinds_is_shown_as_it_is_now(
    browser: Browser, served: Served
) -> None:
    done = served.call("task", goal="say nothing", wait_seconds=20)
    thread = done["thread_id"]
    browser.go(f"{served.page}#{done['run_id']}")
    conversation = "document.querySelector('#steps').innerText"
    browser.until(f"{conversation}.includes('Nothing to do.')")
    *_, first = served.call("threads", thread_id=thread)["checkpoints"]
    served.call("rewind", thread_id=thread, checkpoint_id=first["checkpoint_id"])
    browser.look()
    browser.until(f"!{conversation}.includes('Nothing to do.')")
    assert browser.run(f"return {conversation}.includes('say nothing')")


def test_a_failed_run_says_why_and_can_go_on(browser: Browser, served: Served) -> None:
    open_run(browser, served, "fail at once")
    until_status(browser, "failed")
    browser.until_text("Reason: ")
    browser.press("Continue")
    until_status(browser, "failed")


def test_a_long_answer_is_cut_and_shown_whole_when_asked_for(
    browser: Browser, served: Served
) -> None:
    open_run(browser, served, "say much")
    length = "document.querySelector('#steps').textContent.length"
    browser.until_text("Only the beginning of 30,000 characters.")
    assert browser.run(f"return {length}") > 20_000
    browser.press("Show all")
    browser.until("!document.body.innerText.includes('Only the beginning')")
    assert browser.run(f"return {length}") > 30_000


def test_a_long_run_is_caught_up_with_at_once(browser: Browser, served: Served) -> None:
    run_id = served.begin("look everywhere")
    assert served.status(run_id) == "done"
    browser.go(f"{served.page}#{run_id}")
    browser.until("document.querySelector('#steps').lastChild?.innerText.includes('Looked.')")
    drawn = "document.querySelectorAll('#steps > li').length"
    assert browser.run(f"return {drawn}") < 100, "only what is in sight is there"
    scroller = "document.querySelector('.scroller')"
    browser.until(f"{scroller}.scrollHeight - {scroller}.scrollTop - {scroller}.clientHeight < 2")
    # What came before is loaded on the way, and what one reads stays where it is meanwhile.
    first = "document.querySelector('#steps > li').innerText.includes('look everywhere')"
    browser.until(f"({scroller}.scrollTop = 0, {first})")
    assert browser.run("return +document.querySelector('#steps > li').ariaSetSize") > 400
    browser.until_text("Jump to the end")
    assert browser.run(f"return {drawn}") < 100
    browser.press("Jump to the end")
    browser.until("document.querySelector('#steps').lastChild?.innerText.includes('Looked.')")


def test_there_is_a_way_to_every_thread(browser: Browser, served: Served) -> None:
    made = [served.call("write_todos", todos=[], thread_id="new")["thread_id"] for _ in range(51)]
    browser.go(f"{served.page}")
    browser.until("document.querySelector('#search')")
    browser.write("#search", "sort:updated")
    rows = "document.querySelectorAll('#threads tbody tr').length"
    browser.until(f"{rows} === 50")
    browser.press("Show more")
    browser.until(f"{rows} > 50")
    browser.write("#search", made[0], clear=True)
    browser.until(f"{rows} === 1")
    browser.write("#search", "no such words", clear=True)
    browser.until_text("Nothing found")


def test_an_unknown_run_is_said_to_be_unknown(browser: Browser, served: Served) -> None:
    browser.go(f"{served.page}#run_nobody")
    browser.until_text("There is no run run_nobody on this server", "Try again")
    browser.go(f"{served.page}#thr_nobody")
    browser.until_text("There is no thread thr_nobody on this server")
    browser.go(f"{served.page}#%E0%A4%A")  # no text at all
    browser.until_text("There is no thread")
    refused = browser.complaints()
    assert all("400 (Bad Request)" in one for one in refused), refused  # the browser's own words


def test_threads_of_other_clients_and_copies_show_their_todos(
    browser: Browser, served: Served
) -> None:
    made = served.call("write_todos", todos=[{"content": "water the plants", "status": "pending"}])
    browser.go(f"{served.page}#{made['thread_id']}")
    browser.until_text("water the plants", "Updated the todo list", "done")
    args = ["threads", "--state-dir", str(served.setup.state), "fork", made["thread_id"]]
    copied = CliRunner().invoke(cli, args).output
    copy = next(one for one in re.findall(r"thr_\w+", copied) if one != made["thread_id"])
    browser.go(f"{served.page}#{copy}")
    browser.until_text(copy, "No runs yet.", "water the plants")


def test_texts_of_a_run_are_texts_and_nothing_else(browser: Browser, served: Served) -> None:
    goal = HOSTILE
    run_id = served.begin(goal)
    browser.go(served.page)
    browser.until_text("<script>window.owned")
    browser.go(f"{served.page}#{run_id}")
    browser.until_text("Approve", "<img src=x onerror=", "[U+202E]gpj.exe[U+202C]")
    browser.until("document.querySelector('.question .hunks')?.innerText.includes('[U+202E]gpj')")
    browser.press("Edit…")
    assert "\\u202e" in browser.run("return document.querySelector('.question textarea').value")
    browser.press("Approve with these arguments")
    browser.until(
        "!document.querySelector('.question .hunks') && document.querySelector('.question')"
    )
    written = (served.setup.root / ("x" * 20)).read_text()
    assert written == HOSTILE, "escapes are for the eye only"
    browser.write(".question textarea", HOSTILE.replace("\u202e", ""))
    browser.press("Answer")
    until_status(browser, "done")
    found: dict[str, Any] = browser.run(
        """const every = [...document.querySelectorAll('body *')];
        return {
          owned: window.owned ?? null,
          scripts: document.scripts.length,
          images: document.images.length,
          links: every.filter(one => one.href && !one.getAttribute('href').startsWith('#')).length,
          handlers: every.filter(one => [...one.attributes].some(
            named => named.name.startsWith('on'))).length,
          reversed: /[\\u202a-\\u202e\\u2066-\\u2069\\u200b]/.test(document.body.innerText),
          wide: document.documentElement.scrollWidth - innerWidth,
        }"""
    )
    assert found.pop("wide") <= 0
    assert found == {
        "owned": None, "scripts": 1, "images": 0, "links": 0, "handlers": 0, "reversed": False
    }  # fmt: skip


def test_everything_can_be_done_with_the_keyboard(browser: Browser, served: Served) -> None:
    run_id = served.begin("write once")
    served.status(run_id)
    browser.go(served.page)
    browser.until(f"document.querySelector(\"a[href='#{run_id}']\")")
    focus = "return document.activeElement.getAttribute('href') ?? document.activeElement.innerText"

    def tab_to(wanted: str) -> None:
        for _ in range(60):
            if browser.run(focus) == wanted:
                return
            browser.keys("\ue004")
        raise AssertionError(f"Tab does not lead to {wanted}")

    tab_to(f"#{run_id}")
    browser.keys(ENTER)
    browser.until_text("Approve")
    browser.until("!document.querySelector('[aria-disabled], .question button:disabled')")
    tab_to("Approve")
    browser.keys(ENTER)
    until_status(browser, "done")
    browser.until("document.activeElement.tagName === 'H1'")  # not lost with the question


def test_a_page_outlives_its_server(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    setup = viewer_setup(tmp_path_factory.mktemp("mortal"), "--port", str(free_port()))
    with setup.serving() as server:
        served = Served(setup, server)
        open_run(browser, served, "write once")
        browser.until_text("Approve")
        server.kill()
        browser.until_text("The server does not answer. Trying again in", "Try now")
    with setup.serving():
        browser.run(TRY_NOW)
        browser.until("!document.getElementById('trouble').checkVisibility()")
        browser.press("Approve")
        until_status(browser, "done")
    browser.go("about:blank")
    refused = browser.complaints()
    assert all("net::ERR_" in one for one in refused), refused  # what the browser itself says
