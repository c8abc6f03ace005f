"""Takes the pictures in docs/viewer.md, of real runs: `python -m tests.viewer.screenshot docs`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.viewer.browser import Browser, browsing
from tests.viewer.showcase import GOAL, showcase

DIFF = "document.querySelector('.question .hunks')"


def main(target: Path) -> None:
    """Begin runs, and take pictures of what a person sees of them."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        with showcase(place) as (served, runs), browsing(place / "browser") as browser:
            browser.size(1200, 760)
            browser.go(f"{served.page}#inbox")
            browser.until("document.querySelectorAll('.entry').length === 3")
            browser.until("!document.querySelector('.inbox-one [aria-disabled]')")
            browser.click("//button[contains(@class, 'entry')][contains(., 'changes.md')]")
            browser.until(DIFF)
            take(browser, target / "viewer.png")
            browser.press("Approve")
            browser.until("document.querySelectorAll('.entry').length === 2")
            served.status(runs[GOAL])
            browser.go(f"{served.page}#{runs[GOAL]}")
            browser.until("document.querySelector('#steps').innerText.includes('four entries')")
            browser.click("#tab-agents")
            browser.until("document.querySelectorAll('.waterfall li').length === 4")
            take(browser, target / "studio-thread.png")


def take(browser: Browser, path: Path) -> None:
    browser.until("!document.querySelector('[aria-disabled]')")
    path.write_bytes(browser.screenshot())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
