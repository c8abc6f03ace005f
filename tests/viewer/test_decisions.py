"""What a person approves is what will be done, and only what they meant to approve."""

from __future__ import annotations

import json
from typing import Any

from tests.viewer.browser import Browser
from tests.viewer.conftest import Served
from tests.viewer.host import hosting
from tests.viewer.scripts import EXACT
from tests.viewer.test_accessible import AXE, found_by_axe
from tests.viewer.test_runs import card, open_run, until_status

QUESTIONS = "document.querySelectorAll('.question').length"


def result_of_pay(served: Served, run_id: str) -> dict[str, Any]:
    events = served.call("wait", run_id=run_id, events_after=0)["events"]
    ended = [one for one in events if one.get("event") == "tool_end"]
    assert ended[-1]["status"] == "success", ended
    text: str = ended[-1]["text"]
    return json.JSONDecoder().raw_decode(text, text.index('{"account"'))[0]


def point(browser: Browser, label: str) -> tuple[float, float]:
    """Return where the middle of a button is."""
    x, y = browser.run(
        """const found = [...document.querySelectorAll('button')].find(
            (one) => one.innerText === arguments[0]);
        const {x, y, width, height} = found.getBoundingClientRect();
        return [x + width / 2, y + height / 2];""",
        label,
    )
    return x, y


def click_at(browser: Browser, place: tuple[float, float], count: int) -> None:
    """Click with the mouse, as the `count`th of several fast clicks."""
    for kind in ("mousePressed", "mouseReleased"):
        browser.devtools(
            "Input.dispatchMouseEvent",
            type=kind,
            x=place[0],
            y=place[1],
            button="left",
            clickCount=count,
        )


def test_arguments_are_shown_and_sent_as_they_are(browser: Browser, served: Served) -> None:
    run_id = open_run(browser, served, "pay exactly")
    browser.until_text("Approve")
    shown = browser.text(".question dl")
    for part in ("12345678901234567891", "1e+22", "a[U+200B]b[U+3164]c[U+00A0]d"):
        assert part in shown, part
    assert "\u2764\ufe0f \u0645\u06cc\u200c\u062e" in shown, "where they belong they stay"
    browser.press("Edit…")
    field = ".question textarea"
    written = browser.run(f"return document.querySelector('{field}').value")
    browser.write(field, written.replace("1e+22", "1e400"), clear=True)
    browser.press("Approve with these arguments")
    assert browser.run(f"return document.querySelector('{field}').validationMessage") == (
        "1e400 is too large for a number."
    )
    browser.write(field, written.replace("1e+22", "2.50"), clear=True)
    browser.press("Approve with these arguments")
    until_status(browser, "done")
    assert result_of_pay(served, run_id) == {**EXACT, "amount": 2.5}


def test_a_host_that_would_change_a_number_gets_none(browser: Browser, served: Served) -> None:
    run_id = served.begin("pay exactly")
    served.status(run_id)
    with hosting(browser, served) as host:
        host.show("wait", {"run_id": run_id}, call_tool=False)
        browser.press("Edit…")
        browser.press("Approve with these arguments")
        browser.until_text("The number 12345678901234567891 does not pass through")
        assert served.status(run_id) == "needs_approval"
        browser.press("Back")
        browser.press("Approve")
        until_status(browser, "done")
    assert result_of_pay(served, run_id) == EXACT


def test_a_second_click_decides_nothing_else(browser: Browser, served: Served) -> None:
    run_id = open_run(browser, served, "ask twice")
    browser.press("Approve", card("/a.txt"))
    # The other question is under the pointer at once.
    browser.until(
        f"{QUESTIONS} === 1 && (document.querySelector('.question button').click(), true)"
    )
    browser.until("!document.querySelector('.question [aria-disabled]')")
    click_at(browser, point(browser, "Approve"), 2)
    assert served.status(run_id) == "needs_approval"
    place = point(browser, "Cancel")
    click_at(browser, place, 1)
    click_at(browser, place, 2)
    browser.until_text("Stop the run")
    assert served.status(run_id) == "needs_approval"
    browser.press("Approve")
    until_status(browser, "done")


def test_several_calls_are_approved_at_once_after_a_second_look(
    browser: Browser, served: Served
) -> None:
    open_run(browser, served, "write much")
    browser.until(f"{QUESTIONS} === 6")
    browser.press("Approve all 6…")
    browser.press("Back")
    browser.press("Approve all 6…")
    assert "Approve these 6 calls" in browser.text(".all")
    assert "write_file" in browser.text(".all") and "/5.txt" in browser.text(".all")
    assert not list(served.setup.root.iterdir())
    browser.press("Approve these 6 calls")
    until_status(browser, "done")
    assert len(list(served.setup.root.iterdir())) == 6


def test_what_is_long_is_approved_only_once_it_is_there_whole(
    browser: Browser, served: Served
) -> None:
    run_id = served.begin("write too much")
    assert served.status(run_id) == "needs_approval"
    browser.go(served.page)
    browser.until("document.querySelector('#threads')")
    browser.run(
        """const real = window.fetch;
        window.release = new Promise((resolve) => (window.goOn = resolve));
        window.fetch = async (url, options) => {
          if (/run:..[^"]*.questions/.test(options.body)) await window.release;
          return real(url, options);
        };
        location.hash = arguments[0];""",
        run_id,
    )
    browser.until(f"{QUESTIONS} === 3")
    approve = "[...document.querySelectorAll('.question button')].filter(" \
              "(one) => one.textContent === 'Approve')"  # fmt: skip
    assert browser.run(f"return {approve}.every((one) => one.disabled)")
    assert "Approve all" not in browser.text()
    browser.keys("a")
    browser.run("window.goOn()")
    browser.until_text("Approve all 3…", "y" * 3_000)
    assert served.status(run_id) == "needs_approval"
    browser.press("Approve", card("/b"))
    browser.until(f"{QUESTIONS} === 2")
    served.call("cancel", run_id=run_id)


def test_an_answer_from_before_the_decision_does_not_ask_again(
    browser: Browser, served: Served
) -> None:
    run_id = open_run(browser, served, "ask twice")
    browser.until(f"{QUESTIONS} === 2")
    browser.run(
        """const real = window.fetch;
        window.release = new Promise((resolve) => (window.goOn = resolve));
        window.fetch = async (url, options) => {
          const response = await real(url, options);
          if (!options.body.includes('/overview"')) return response;
          window.held = true;
          await window.release;
          window.looked = (window.looked ?? 0) + 1;
          return response;
        };
        window.most = 0;
        new MutationObserver(() => {
          window.most = Math.max(window.most, document.querySelectorAll('.question').length);
        }).observe(document.body, {subtree: true, childList: true});"""
    )
    browser.until("window.held")
    browser.press("Approve", card("/a.txt"))
    browser.until(f"{QUESTIONS} === 1")
    browser.run("window.most = 0; window.goOn();")
    browser.until("window.looked > 1")
    assert browser.run("return window.most") <= 1
    served.call("cancel", run_id=run_id)


def test_a_decision_without_an_answer_is_not_said_to_have_failed(
    browser: Browser, served: Served
) -> None:
    run_id = open_run(browser, served, "write once")
    browser.until_text("Approve")
    browser.run("window.fetch = async () => { throw new TypeError('away'); };")
    browser.press("Approve")
    browser.until_text("It may have received this")
    served.call("cancel", run_id=run_id)


def test_a_rule_is_shown_before_it_is_written_and_can_be_revoked(
    browser: Browser, served: Served
) -> None:
    open_run(browser, served, "write once")
    browser.press("Remember…")
    browser.until("document.querySelector('.rule-facts')")
    browser.click("//label[contains(., 'Every write_file on /once.txt')]")
    browser.until("document.querySelector('.rule-facts').innerText.includes('/once.txt')")
    assert not (served.setup.root / "once.txt").exists()
    browser.press("Approve and save the rule")
    until_status(browser, "done")
    browser.go(f"{served.page}#rules")
    browser.until_text("In one thread")
    if AXE.exists():
        assert found_by_axe(browser) == []
    browser.device(390, 760)
    height = "return document.querySelector('.rules .twice button').offsetHeight"
    assert browser.run(height) < 50, "its label is on one line"
    browser.device()
    browser.press("Revoke")
    browser.press("Revoke the rule")
    browser.until_text("No rules yet.")
