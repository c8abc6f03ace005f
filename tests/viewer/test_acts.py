"""What a person does on the page: fork and delete, steer, download, schedules, notifications."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.viewer.browser import SECONDS, Browser
from tests.viewer.conftest import Served
from tests.viewer.showcase import DONE, GOAL, showcase
from tests.viewer.test_runs import open_run, until_status

_RECORD = """
window.told = [];
const Real = window.Notification;
window.Notification = class extends Real {
  constructor(title, options) { super(title, options); window.told.push(options.body); }
};
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    with showcase(tmp_path_factory.mktemp("acts")) as found:
        yield found


def test_a_thread_is_forked_and_the_copy_deleted(
    browser: Browser, shown: tuple[Served, dict[str, str]]
) -> None:
    served, runs = shown
    browser.go(f"{served.page}#{runs[DONE]}")
    browser.until("document.querySelector('#tab-history')")
    browser.click("#tab-history")
    browser.until("document.querySelector('.checkpoint')")
    browser.click(".checkpoint")
    browser.press("Fork")
    copy = browser.until("location.hash.startsWith('#thr_') && location.hash.slice(1)")
    browser.until("document.querySelector('#steps')?.innerText.includes('Willkommen')")
    browser.press("Delete")
    browser.press("Keep it")
    browser.press("Delete")
    browser.press("Delete for good")
    browser.until("location.hash === '' && document.querySelector('#threads')")
    browser.go(f"{served.page}#{copy}")
    browser.until_text(f"There is no thread {copy}")
    assert served.call("wait", run_id=runs[DONE])["status"] == "done", "only the copy is gone"
    browser.complaints()


def test_a_file_is_read_and_downloaded(
    browser: Browser, shown: tuple[Served, dict[str, str]], tmp_path: Path
) -> None:
    served, runs = shown
    browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.go(f"{served.page}#{runs[DONE]}")
    browser.until("document.querySelector('#tab-files')")
    browser.click("#tab-files")
    browser.until("document.querySelector('.tree .file')")
    browser.click("//button[contains(., 'note.py')]")
    browser.until("document.querySelector('dialog [class*=hljs]')")  # in colours
    browser.press("Download", "//dialog")
    wanted = (served.setup.root / "notes" / "note.py").read_text()
    saved = tmp_path / "note.py"
    end = time.monotonic() + SECONDS
    while not saved.exists() or saved.read_text() != wanted:
        assert time.monotonic() < end, [*tmp_path.iterdir()]
        time.sleep(0.02)


def test_schedules_are_listed(browser: Browser, shown: tuple[Served, dict[str, str]]) -> None:
    served, _ = shown
    browser.go(served.page)
    browser.until("document.querySelector('.rail [href$=fleet]')")
    browser.click(".rail [href$=fleet]")
    browser.until_text("morning", DONE, "0 7 * * MON-FRI", "never")


def test_what_a_subagents_model_saw_is_shown(
    browser: Browser, shown: tuple[Served, dict[str, str]]
) -> None:
    served, runs = shown
    browser.go(f"{served.page}#{runs[GOAL]}")
    answer = "[...document.querySelectorAll('#steps [data-hue] .said')].find("
    answer += "one => one.innerText.includes('There is no handbook'))?.querySelector('.faint')"
    browser.until(answer)
    browser.run(f"{answer}.click()")
    browser.until_text("System prompt", "Messages")
    assert "read_file" in browser.text("dialog")


def test_a_running_agent_is_told_something(browser: Browser, served: Served) -> None:
    run_id = open_run(browser, served, "take your time")
    until_status(browser, "running")
    browser.write(".composer textarea", "Skip the cellar")
    browser.press("Send")
    browser.until_text("Sent. The agent reads it before its next step.")
    assert browser.run("return document.querySelector('.composer textarea').value") == ""
    assert served.call("cancel", run_id=run_id)["status"] == "cancelled"


def test_who_looks_elsewhere_is_notified_and_the_title_counts(
    browser: Browser, served: Served
) -> None:
    browser.go(served.page)
    browser.until_text("Notify me")
    browser.devtools("Browser.grantPermissions", permissions=["notifications"], origin=served.base)
    browser.press("Notify me")
    browser.until("!document.body.innerText.includes('Notify me')")
    before = int(browser.run("return /^\\((\\d+)\\)/.exec(document.title)?.[1] ?? 0"))
    browser.run(_RECORD)
    browser.run("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    run_id = served.begin("write once")
    served.status(run_id)
    browser.look()
    assert "Wants to write /once.txt" in browser.until("window.told.at(-1)")
    browser.until(f"document.title.startsWith('({before + 1}) ')")
    served.call("cancel", run_id=run_id)
    browser.run("localStorage.clear()")
    browser.devtools("Browser.resetPermissions")
