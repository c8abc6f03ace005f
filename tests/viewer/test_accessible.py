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


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("no axe-core: `npm ci` in server/viewer/page/")
        pytest.skip("no axe-core: run `npm ci` in server/viewer/page/")
    with showcase(tmp_path_factory.mktemp("shown")) as found:
        yield found


def found_by_axe(browser: Browser) -> Any:
    # The page's own rules let no script in; the browser's tools may put one there.
    browser.devtools("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
    return browser.run_async(_RUN)


READY = {
    "": "document.querySelectorAll('#threads tbody tr').length === 5",
    "inbox": "document.querySelectorAll('.entry').length === 3",
    "new": "document.querySelector('.new-task')",
    GOAL: "document.querySelector('.question .hunks')",
    ASK: "document.querySelector('.question input')",
    FAILS: "document.querySelector('.reason')",
}
"""Pages, by their address or their run's goal, and when they stand."""

STATES = [*((page, "") for page in READY), *((GOAL, tab) for tab in ("agents", "files", "history"))]


@pytest.mark.exhaustive(cases=3)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("page", "tab"), STATES)
def test_axe_finds_nothing(
    browser: Browser, shown: tuple[Served, dict[str, str]], page: str, tab: str, scheme: str
) -> None:
    served, runs = shown
    browser.emulate(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    try:
        browser.go("about:blank")
        browser.go(f"{served.page}#{runs.get(page, page)}".removesuffix("#"))
        browser.until(READY[page])
        if tab:
            browser.click(f"#tab-{tab}")
            browser.until("!document.querySelector('.panel .loading')")
        browser.until("!document.querySelector('[aria-disabled]')")
        assert found_by_axe(browser) == []
    finally:
        browser.emulate()
