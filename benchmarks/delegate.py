"""Cost of a delegated run: five model calls over HTTP and four tool calls, all durable.

The model is the tests' fake Messages API, in another process. The baselines make the same calls
with only the SDK, and with our model class without an agent. All processes are warm. The benchmark
measures processor time, because other programs on the machine affect it less than elapsed time.

Two more measurements: the slowest answer to `tools/list` while many runs start together, and the
time of a driven call of a scripted agent while a new server imports the SDK for its first run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.client import REPO, ServerProcess, WrongReply
from benchmarks.report import Bar, Report, spread
from benchmarks.startup import ours

__all__ = ["run"]

GOAL = "Write four files, as in benchmark 7731."
_BEGIN = {"goal": GOAL, "thread_id": "new", "wait_seconds": 0}
CALLS = 5
WARM_UP = 5


def _writes(number: int, match: str) -> dict[str, Any]:
    call = {"name": "write_file", "input": {"path": f"/step{number}.txt", "content": "x" * 200}}
    text = "I write the next file. " * 4
    return {"match": match, "repeat": True, "text": text, "tool_calls": [call]}


SCRIPT = [
    _writes(1, GOAL),
    *(_writes(number + 1, f"step{number}") for number in range(1, CALLS - 1)),
    {"match": f"step{CALLS - 1}", "repeat": True, "text": "All files are written. " * 4},
]


def run(rounds: int = 5, runs: int = 20, at_once: int = 100) -> Report:
    """Measure `rounds` times `runs` runs of each side, then `at_once` concurrent runs."""
    with tempfile.TemporaryDirectory() as folder, _fake_api(Path(folder)) as url:
        os.environ.update(ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none")
        with (
            ServerProcess(ours(Path(folder) / "state"), "legacy") as server,
            _process("benchmarks.bare_sdk") as sdk,
            _process("benchmarks.bare_sdk", "ours") as model,
        ):
            server.open()
            ours_s, sdk_s, model_s = list[float](), list[float](), list[float]()
            _delegate(server, WARM_UP)
            _ask_sdk(sdk, WARM_UP)
            _ask_sdk(model, WARM_UP)
            for _ in range(rounds):
                ours_s.append(1_000 * _delegate(server, runs) / runs)
                sdk_s.append(1_000 * _ask_sdk(sdk, runs) / runs)
                model_s.append(1_000 * _ask_sdk(model, runs) / runs)
            together = _all_at_once(server, at_once)
        importing = _while_importing(Path(folder))
    per_run = statistics.median(ours_s)
    measures: dict[str, dict[str, float | int | None]] = {
        "ours, processor ms a run": spread(ours_s),
        "our model alone, processor ms a run": spread(model_s),
        "SDK alone, processor ms a run": spread(sdk_s),
        "calls beside the import of the SDK, ms": importing,
        f"{at_once} runs at once": together,
    }
    bars = [
        Bar("processor time of a delegated run", per_run, 35, "ms"),
        Bar(
            "a model call: ours / the SDK's own",
            statistics.median(a / b for a, b in zip(model_s, sdk_s, strict=True)),
            1.3,
            "x",
        ),
        Bar("a driven call beside the SDK's import", importing["max"] or 0.0, 100, "ms"),
    ]
    return Report("delegate", measures, bars)


def _delegate(server: ServerProcess, runs: int) -> float:
    """Return the processor time of consecutive runs."""
    before = server.cpu_seconds()
    for _ in range(runs):
        done = server.call("task", {"goal": GOAL, "thread_id": "new"})
        if done["structuredContent"].get("status") != "done":
            raise WrongReply(f"a run did not end: {json.dumps(done)[:2_000]}")
    after = server.cpu_seconds()
    assert before is not None and after is not None, "processor time is read from /proc"
    return after - before


def _all_at_once(server: ServerProcess, runs: int) -> dict[str, float | int | None]:
    before, began = server.cpu_seconds() or 0.0, time.perf_counter()
    started = [server.call("task", _BEGIN)["structuredContent"]["run_id"] for _ in range(runs)]
    slowest = 0.0
    for run_id in started:
        while True:
            asked = time.perf_counter()
            server.request("tools/list", {})
            slowest = max(slowest, time.perf_counter() - asked)
            done = server.call("wait", {"run_id": run_id, "wait_seconds": 1})["structuredContent"]
            if done["status"] != "running":
                break
        if done["status"] != "done":
            raise WrongReply(f"a run ended as {done['status']}")
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu s": round((server.cpu_seconds() or 0.0) - before, 2),
        "slowest list, ms": round(1_000 * slowest, 1),
    }


def _while_importing(folder: Path) -> dict[str, float | int | None]:
    """Return the ms of driven calls on a new server, while its first run imports the SDK."""
    with ServerProcess(ours(folder / "importing"), "legacy") as server:
        server.open()
        server.call("write_file", {"path": "/warm.txt", "content": "up"})
        run_id = server.call("task", _BEGIN)["structuredContent"]["run_id"]
        times: list[float] = []
        while True:
            began = time.perf_counter()
            server.call("write_file", {"path": "/f.txt", "content": "x", "thread_id": "new"})
            times.append(1_000 * (time.perf_counter() - began))
            now = server.call("wait", {"run_id": run_id, "wait_seconds": 0})["structuredContent"]
            if now["status"] != "running":
                return spread(times)


def _ask_sdk(process: subprocess.Popen[str], runs: int) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{runs}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


@contextmanager
def _fake_api(folder: Path) -> Generator[str]:
    script = folder / "answers.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    with _process("tests.fake_anthropic", "--script", str(script)) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


@contextmanager
def _process(module: str, *options: str) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", module, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPO,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
