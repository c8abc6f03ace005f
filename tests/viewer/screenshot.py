"""Take the screenshots in docs/viewer.md of real runs: `python -m tests.viewer.screenshot docs`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.viewer.browser import Browser, browsing
from tests.viewer.conftest import Served
from tests.viewer.showcase import GOAL, LONG, showcase

THREADS = 1_000
EDIT = "//button[contains(@class, 'checkpoint')][contains(., 'Calls write_todos, edit')]"
ENTRIES = "document.querySelectorAll('.entry').length"


def main(target: Path) -> None:
    """Start runs, and take screenshots of the page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        with (
            showcase(place, others=THREADS) as (served, runs),
            browsing(place / "browser") as browser,
        ):
            browser.device(1280, 800)
            approval(browser, served, runs, target)
            phone(browser, served, runs, target)
            browser.device(1280, 800)
            thread(browser, served, runs, target)
            search(browser, served, target)
            away(browser, served, runs, target)


def approval(browser: Browser, served: Served, runs: dict[str, str], target: Path) -> None:
    """Take a screenshot of an approval with its diff; then approve it, so that the run ends."""
    browser.go(f"{served.page}#inbox")
    browser.until(f"{ENTRIES} === 3")
    settled(browser)
    browser.click("//button[contains(@class, 'entry')][contains(., 'changes.md')]")
    browser.until("document.querySelector('.question .hunks')")
    take(browser, target / "viewer.png")
    browser.press("Approve")
    browser.until(f"{ENTRIES} === 2")
    served.status(runs[GOAL])


def phone(browser: Browser, served: Served, runs: dict[str, str], target: Path) -> None:
    """Take a screenshot of the edit of 300 lines on a phone, in dark mode."""
    browser.device(390, 760, 1.5)
    browser.emulate(prefers_color_scheme="dark")
    browser.go(f"{served.page}#{runs[LONG]}")
    browser.until("document.querySelectorAll('.question .ins').length === 150")
    take(browser, target / "studio-phone.png")
    browser.emulate()


def thread(browser: Browser, served: Served, runs: dict[str, str], target: Path) -> None:
    """Take screenshots of a thread with three subagents, and of a rewind's preview."""
    browser.go(f"{served.page}#{runs[GOAL]}")
    browser.until("document.querySelector('#steps')?.innerText.includes('four entries')")
    browser.click("#tab-agents")
    browser.until("document.querySelectorAll('.waterfall li').length === 4")
    browser.run("document.querySelector('.scroller').scrollTop = 0")
    take(browser, target / "studio-thread.png")
    browser.click("#tab-history")
    browser.until("document.querySelectorAll('.checkpoint').length > 5")
    browser.click(EDIT)
    browser.press("Rewind to here…")
    browser.until("document.querySelector('dialog .plan summary')")
    browser.click("dialog .plan summary")
    take(browser, target / "studio-rewind.png")


def search(browser: Browser, served: Served, target: Path) -> None:
    """Take a screenshot of a search over all threads."""
    browser.go("about:blank")
    browser.go(served.page)
    browser.until("document.querySelector('#search')")
    browser.write("#search", "handbook links status:failed")
    browser.until("/^\\d+ threads$/.test(document.querySelector('#threads + .row').innerText)")
    take(browser, target / "studio-search.png")


def away(browser: Browser, served: Served, runs: dict[str, str], target: Path) -> None:
    """Take a screenshot of a page whose server was killed."""
    browser.go(f"{served.page}#{runs[GOAL]}")
    browser.until("document.querySelector('#steps')?.innerText.includes('four entries')")
    served.server.kill()
    browser.until_text("The server does not answer.")
    take(browser, target / "studio-away.png")


def settled(browser: Browser) -> None:
    browser.until("!document.querySelector('[aria-disabled]')")


def take(browser: Browser, path: Path) -> None:
    settled(browser)
    path.write_bytes(browser.screenshot())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
