"""Inside a host of MCP Apps the page shows the run of a tool's call, through the host alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.servers import ERAS, Era
from tests.viewer.browser import Browser
from tests.viewer.conftest import Served
from tests.viewer.host import hosting
from tests.viewer.test_runs import until_status


def heard(browser: Browser) -> list[dict[str, Any]]:
    browser.leave_frame()
    messages: list[dict[str, Any]] = browser.run("return heard")
    browser.enter_frame()
    return messages


@pytest.mark.parametrize("mode", ERAS)
def test_a_call_of_task_shows_its_run_and_the_person_decides(
    browser: Browser, served: Served, mode: Era
) -> None:
    with hosting(browser, served, mode) as host:
        host.show("task", {"goal": "survey the house"})
        until_status(browser, "needs an answer")
        browser.until_text("look at the cellar")
        browser.press("Approve")
        until_status(browser, "done")
        browser.until_text("The survey is written.")
        browser.press("Transcript")
        browser.until_text("# Thread thr_")
        assert browser.run("return document.querySelectorAll('a').length") == 0  # nowhere to go
        messages = heard(browser)
    assert (served.setup.root / "survey.txt").exists()
    methods = [one.get("method") for one in messages]
    assert methods[:2] == ["ui/initialize", "ui/notifications/initialized"]
    assert set(methods[2:]) == {
        "ui/notifications/size-changed", "tools/call", "resources/read"
    }  # fmt: skip
    assert all(one["jsonrpc"] == "2.0" for one in messages)
    sizes = [one["params"] for one in messages if "size-changed" in one.get("method", "")]
    assert sizes[-1]["height"] > 300


def test_the_run_is_seen_while_the_call_still_waits(browser: Browser, served: Served) -> None:
    with hosting(browser, served) as host:
        host.show("task", {"goal": "take your time", "wait_seconds": 20})
        until_status(browser, "running")
        browser.until_text("Right now: main: thinking")
        browser.press("Cancel")
        browser.press("Stop the run")
        until_status(browser, "cancelled")


@pytest.mark.parametrize("mode", ERAS)
def test_looking_at_a_run_puts_no_form_to_the_person(
    browser: Browser, served: Served, mode: Era
) -> None:
    run_id = served.begin("write once")
    served.status(run_id)
    with hosting(browser, served, mode, forms=True) as host:
        host.show("wait", {"run_id": run_id}, call_tool=False)
        browser.until_text("Approve")
        browser.look()
        browser.press("Reject…")
        browser.press("Reject")
        until_status(browser, "done")
        waits = [one for one in heard(browser) if (one.get("params") or {}).get("name") == "wait"]
        assert len(waits) >= 2
        assert host.asked == []


def test_it_looks_as_the_host_does_and_stops_when_told_to(browser: Browser, served: Served) -> None:
    run_id = served.begin("write once")
    served.status(run_id)
    context = {"theme": "dark", "styles": {"variables": {"--color-background-primary": "#123456"}}}
    with hosting(browser, served) as host:
        host.show("wait", {"run_id": run_id}, call_tool=False, context=context)
        browser.until_text("Approve")
        looks = "return getComputedStyle(document.body).{}"
        assert browser.run(looks.format("backgroundColor")) == "rgb(18, 52, 86)"
        assert browser.run(looks.format("colorScheme")) == "dark"
        browser.leave_frame()
        browser.run(
            """send({method: "ui/notifications/host-context-changed", params: {theme: "light"}});
            send({id: "p", method: "ping"});
            send({id: "x", method: "ui/unknown", params: {}});
            send({id: "t", method: "ui/resource-teardown", params: {reason: "closed"}});"""
        )
        browser.until("heard.some((one) => one.id === 't' && one.result)")
        answers = {one.get("id"): one for one in browser.run("return heard") if "method" not in one}
        assert answers["p"]["result"] == {} and answers["x"]["error"]["code"] == -32601
        browser.enter_frame()
        assert browser.run(looks.format("colorScheme")) == "light"
    served.call("cancel", run_id=run_id)


def test_messages_of_anybody_but_the_host_are_not_heard(browser: Browser, served: Served) -> None:
    run_id = served.begin("write once")
    served.status(run_id)
    with hosting(browser, served) as host:
        host.show("wait", {"run_id": run_id}, call_tool=False)
        browser.until_text("Approve")
        browser.run(
            """const result = {structuredContent: {run_id: "run_false", thread_id: "t",
              status: "done", next: ""}};
            window.postMessage({jsonrpc: "2.0", method: "ui/notifications/tool-result",
              params: result}, "*");"""
        )
        browser.run(
            """window.waits = [];
            const real = window.setTimeout;
            window.setTimeout = (act, delay) => (waits.push(delay), real(act, delay));"""
        )
        browser.look()
        browser.leave_frame()
        browser.until("heard.filter((one) => one.params?.name === 'wait').length > 1")
        browser.enter_frame()
        assert "run_false" not in str(heard(browser))
        browser.until_text("Approve", run_id)
        longest = browser.run("return Math.max(...waits)")
        assert longest >= 60_000, "a host may ask the person first"
    served.call("cancel", run_id=run_id)


def test_a_host_that_passes_no_calls_on_still_shows_the_result(
    browser: Browser, served: Served
) -> None:
    with hosting(browser, served) as host:
        host.show("task", {"goal": "write once"}, capabilities={})
        browser.until_text("This application does not let pages call tools", "needs an answer")
        assert browser.run("return document.querySelectorAll('button').length") == 0
        run_id = browser.text("main code")
    served.call("cancel", run_id=run_id)


def test_a_call_that_began_no_run_is_quoted_and_no_run_is_looked_for(
    browser: Browser, served: Served
) -> None:
    looks = "heard.filter((one) => one.params?.name === 'threads').length"
    with hosting(browser, served) as host:
        host.show("task", {"goal": "survey the house", "agent": "nobody"})
        browser.until_text("There is no subagent 'nobody'")
        assert "The run is starting" not in browser.text()
        browser.leave_frame()
        before = browser.run(f"return {looks}")
        browser.enter_frame()
        browser.look()
        browser.leave_frame()
        browser.run("""send({id: "p", method: "ping"});""")
        browser.until("heard.some((one) => one.id === 'p' && one.result)")
        assert browser.run(f"return {looks}") == before
        browser.enter_frame()


def test_a_host_that_refuses_a_call_is_quoted(browser: Browser, served: Served) -> None:
    with hosting(browser, served) as host:
        host.show("wait", {"run_id": "run_nobody"}, call_tool=False)
        browser.until_text("There is no run run_nobody on this server", "Try again")
