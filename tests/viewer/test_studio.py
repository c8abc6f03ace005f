"""A reviewer's tour: the inbox by keyboard alone, the history of a thread, and a new task."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.viewer.browser import Browser
from tests.viewer.conftest import Served
from tests.viewer.showcase import GOAL, LONG, showcase
from tests.viewer.test_accessible import AXE, found_by_axe
from tests.viewer.test_runs import until_status

ENTRIES = "document.querySelectorAll('.entry').length"
CURRENT = "document.querySelector('.entry[aria-current]').innerText"

FORCED = "document.querySelector('dialog button.stop')"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    with showcase(tmp_path_factory.mktemp("tour")) as found:
        yield found


def test_an_edit_is_judged_by_its_diff_and_approved_by_keyboard_alone(
    browser: Browser, shown: tuple[Served, dict[str, str]]
) -> None:
    served, runs = shown
    browser.go(served.page)
    browser.until("document.title.startsWith('(3)')")
    browser.keys("i")
    browser.until(f"{ENTRIES} === 3")
    browser.until("!document.querySelector('.inbox-one [aria-disabled]')")
    browser.keys("j")
    browser.until(f"{CURRENT}.includes('steps.py')")
    browser.until("document.querySelectorAll('.question .ins').length === 150")
    assert browser.run("return document.querySelectorAll('.question .del').length") == 150
    browser.until("!document.querySelector('.inbox-one [aria-disabled]')")
    browser.keys("a")
    browser.until(f"{ENTRIES} === 2")
    assert served.status(runs[LONG]) == "done"
    assert "with_retry(value + 149)" in (served.setup.root / "notes" / "steps.py").read_text()


def test_a_rewind_says_what_it_will_change(
    browser: Browser, shown: tuple[Served, dict[str, str]]
) -> None:
    served, runs = shown
    notes = served.setup.root / "notes" / "changes.md"
    before = notes.read_text()
    browser.go(f"{served.page}#{runs[GOAL]}")
    browser.press("Approve")
    until_status(browser, "done")
    assert notes.read_text() != before
    browser.click("#tab-history")
    browser.until("document.querySelectorAll('.checkpoint').length > 5")
    browser.until("document.querySelector('.decisions')?.innerText.includes('Approved edit_file')")
    if AXE.exists():
        assert found_by_axe(browser) == []
    browser.click(
        "//button[contains(@class, 'checkpoint')][contains(., 'Calls write_todos, edit')]"
    )
    browser.press("Rewind to here…")
    browser.until("document.querySelector('dialog .plan')?.innerText.includes('/notes/changes.md')")
    assert notes.read_text() != before, "so far it only says what it would do"
    browser.press("Change nothing", "//dialog")
    changed = notes.read_text()
    notes.write_text("Somebody else's\n")
    browser.press("Rewind to here…")
    browser.until(f"{FORCED} && !{FORCED}.disabled")
    assert "somebody else changed" in browser.text("dialog")
    notes.write_text(changed)
    browser.press("Change nothing", "//dialog")
    browser.press("Rewind to here…")
    browser.press("Rewind", "//dialog")
    browser.until("!document.querySelector('dialog')")
    browser.until(
        "document.querySelector('#steps') && !document.body.innerText.includes('four entries')"
    )
    assert notes.read_text() == before
    browser.complaints()


def test_a_task_is_started_from_the_page(
    browser: Browser, shown: tuple[Served, dict[str, str]]
) -> None:
    served, _ = shown
    browser.go(f"{served.page}#new")
    browser.until("document.querySelector('.new-task textarea')")
    browser.press("Start")
    assert browser.run("return document.querySelector('.new-task textarea').matches(':invalid')")
    browser.write(".new-task textarea", "Translate the welcome text")
    browser.press("Start")
    until_status(browser, "done")
    browser.until_text("Willkommen")
    assert browser.run("return document.querySelector('#steps em').innerText") == "Willkommen"
