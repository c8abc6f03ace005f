"""Speed and size of the web page in a real Chromium, with a long thread and many threads.

A thread of 5,000 steps is opened from the list until its last step is visible, and scrolled up
while the work of each frame is timed. 10,000 threads are listed, and searched for words that one of
them contains. Each time is from the click to the paint.
"""

from __future__ import annotations

import gzip
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from benchmarks.report import Bar, Report, spread
from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.server.viewer import viewer_html
from tests.viewer.browser import Browser, browsing
from tests.viewer.conftest import Served, ViewerSetup
from tests.viewer.scripts import run as scripted_run

__all__ = ["run"]

THREADS = 10_000
STEPS = 5_000
GOAL = "Look at everything, one thing after the other"
LIMITS = "[limits]\nmodel_calls = 10000\ntool_calls = 10000\nseconds = 3600\n"

_OPEN = """
const done = arguments[arguments.length - 1];
const began = performance.now();
const there = () => document.querySelector('#steps')?.lastChild?.innerText.includes('Seen it all');
const look = () => there()
  ? requestAnimationFrame(() => done(performance.now() - began))
  : requestAnimationFrame(look);
location.hash = arguments[0];
look();
"""

_SCROLL = """
const done = arguments[arguments.length - 1];
const scroller = document.querySelector('.scroller');
const frames = [];
const painted = new MessageChannel();
let began = 0;
painted.port1.onmessage = () => {
  frames.push(performance.now() - began);
  if (scroller.scrollTop > 0 && frames.length < 240) requestAnimationFrame(step);
  else done(frames);
};
const step = () => {
  began = performance.now();
  scroller.scrollTop -= 120;
  painted.port2.postMessage(0); // heard once this frame is laid out and painted
};
requestAnimationFrame(step);
"""

_SEARCH = """
const done = arguments[arguments.length - 1];
const field = document.getElementById('search');
const began = performance.now();
field.value = arguments[0];
field.dispatchEvent(new Event('input', {bubbles: true}));
const there = () => document.querySelectorAll('#threads tbody tr').length === 1;
const look = () => there() ? done(performance.now() - began) : requestAnimationFrame(look);
look();
"""

_LIST = """
const done = arguments[arguments.length - 1];
const began = performance.now();
const there = () => document.querySelectorAll('#threads tbody tr').length === 50;
const look = () => there() ? done(performance.now() - began) : requestAnimationFrame(look);
location.hash = '#threads';
look();
"""


def run(rounds: int = 5) -> Report:
    """Measure everything `rounds` times, including the scrolling."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        setup = _setup(place)
        with setup.serving() as server:
            served = Served(setup, server)
            run_id = served.begin(GOAL)
            assert served.status(run_id) == "done", served.call("wait", run_id=run_id)
        anyio.run(_fill, setup.state / "journal.sqlite3")
        with setup.serving() as server, browsing(place / "browser") as browser:
            return _report(_measured(browser, Served(setup, server), run_id, rounds))


def _setup(place: Path) -> ViewerSetup:
    config = place / "config.toml"
    config.write_text(LIMITS, encoding="utf-8")
    turns = [
        {"text": f"Thing {at}", "tool_calls": [{"name": "glob", "args": {"pattern": f"{at}*"}}]}
        for at in range(STEPS // 2 - 1)
    ]
    script = {"name": "long", "runs": [scripted_run(GOAL, *turns, {"text": "Seen it all."})]}
    return ViewerSetup(place, flags=["--config", str(config)], script=script)


async def _fill(path: Path) -> None:
    """Add 10,000 threads, each with a run, to the long one."""
    journal = SqliteCheckpointer(path)
    await journal.open()
    try:
        for at in range(THREADS):
            made = time.time() - 60 * at
            one = Run(
                f"run_{at:016x}",
                f"thr_{at:016x}",
                "delegate",
                "main",
                "done",
                f"Task number{at} of many",
                answer="It is done.",
                created_at=made,
                updated_at=made,
            )
            await journal.commit(Batch(one.thread_id, runs=[one], synced=False))
    finally:
        await journal.close()


def _measured(browser: Browser, served: Served, run_id: str, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"open": [], "list": [], "search": [], "frames": []}
    for at in range(rounds):
        browser.go("about:blank")
        browser.go(f"{served.page}#new")
        browser.until("document.querySelector('.new-task')")
        found["list"].append(_timed(browser, _LIST))
        found["search"].append(_timed(browser, _SEARCH, f"number{at + 5_000}"))
        found["open"].append(_timed(browser, _OPEN, f"#{run_id}"))
        found["frames"] += _timed(browser, _SCROLL)
    return found


def _timed(browser: Browser, script: str, *args: Any) -> Any:
    return browser.run_async(script, *args)


def _report(found: dict[str, list[float]]) -> Report:
    size = len(gzip.compress(viewer_html().encode(), 9)) / 1_000
    frame = statistics.quantiles(found["frames"], n=20)[-1]
    measures = {name: spread(values) for name, values in found.items()}
    return Report(
        "studio",
        measures,
        [
            Bar("a thread of 5,000 steps opens", statistics.median(found["open"]), 1_000, "ms"),
            Bar("a frame while scrolling, 95th percentile", frame, 16, "ms"),
            Bar("10,000 threads listed", statistics.median(found["list"]), 200, "ms"),
            Bar("10,000 threads searched", statistics.median(found["search"]), 200, "ms"),
            Bar("the page, compressed", size, 350, "KB"),
        ],
    )
