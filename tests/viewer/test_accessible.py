"""Everybody can use the page: axe-core finds nothing in any of its states, by day and by night."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.viewer.browser import Browser
from tests.viewer.conftest import Served
from tests.viewer.showcase import ASK, FAILS, GOAL, showcase

AXE = Path(__file__).resolve().parents[2] / "studio" / "node_modules" / "axe-core" / "axe.min.js"

_RUN = """
const done = arguments[arguments.length - 1];
const rules = arguments[0] ? {runOnly: [arguments[0]]} : {};
axe.run(document, {resultTypes: ["violations"], ...rules}).then(
  ({violations}) =>
    done(violations.map(({id, nodes}) => [id, nodes.map((one) => one.html.slice(0, 200))])),
  (error) => done(String(error)),
);
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("no axe-core: `npm ci` in studio/")
        pytest.skip("no axe-core: run `npm ci` in studio/")
    with showcase(tmp_path_factory.mktemp("shown")) as found:
        yield found


def found_by_axe(browser: Browser, rule: str) -> Any:
    # The page's own rules let no script in; the browser's tools may put one there.
    browser.devtools("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
    return browser.run_async(_RUN, rule)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(
    browser: Browser, shown: tuple[Served, dict[str, str]], scheme: str
) -> None:
    served, runs = shown
    browser.emulate(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    states = [
        ("", "document.querySelectorAll('#threads tbody tr').length === 5", ""),
        ("#inbox", "document.querySelectorAll('.entry').length === 3", ""),
        ("#new", "document.querySelector('.new-task')", ""),
        (f"#{runs[GOAL]}", "document.querySelector('.question .hunks')", ""),
        (f"#{runs[GOAL]}", "document.querySelector('.question .hunks')", "agents"),
        (f"#{runs[GOAL]}", "document.querySelector('.question .hunks')", "files"),
        (f"#{runs[GOAL]}", "document.querySelector('.question .hunks')", "history"),
        (f"#{runs[ASK]}", "document.querySelector('.question input')", ""),
        (f"#{runs[FAILS]}", "document.querySelector('.reason')", ""),
    ]
    wrong: dict[str, Any] = {}
    try:
        for address, ready, tab in states:
            browser.go("about:blank")
            browser.go(served.page + address)
            browser.until(ready)
            if tab:
                browser.click(f"#tab-{tab}")
                browser.until("!document.querySelector('.panel .loading')")
            browser.until("!document.querySelector('[aria-disabled]')")
            # By night, only the colours are others.
            violations = found_by_axe(browser, "color-contrast" if scheme == "dark" else "")
            if violations:
                wrong[f"{address} {tab}"] = violations
    finally:
        browser.emulate()
    assert wrong == {}
