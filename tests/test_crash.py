"""Workers killed at random moments; `python -m benchmarks crash` kills a thousand."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.crash import Outcome, kill_repeatedly
from tests.ports_and_waits import growing

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")


@pytest.mark.exhaustive(cases=1)
@pytest.mark.parametrize("seed", range(10))
def test_kills_at_random_moments_lose_nothing_and_repeat_nothing_that_was_stored(
    tmp_path: Path, seed: int
):
    outcome = kill_repeatedly(tmp_path, kills=25, seed=seed)
    assert outcome.wrong == []
    assert outcome.kills == 25
    # Otherwise the kills met nothing. A slow machine gets less done between two of them.
    assert outcome.threads > 0
    assert outcome.acknowledged > outcome.kills


WORKER = """
import os, signal, sys
from pathlib import Path
from benchmarks import crash_work

async def work(folder, threads):
    {body}

crash_work._work = work
crash_work._serve(Path(sys.argv[1]))
"""


def series_of(body: str, folder: Path, **options: Any) -> Outcome:
    """Let workers of another kind take part. With this seed none is killed at its start."""
    command = [sys.executable, "-c", WORKER.format(body=body)]
    began = time.monotonic()
    outcome = kill_repeatedly(folder, kills=1, seed=0, command=command, **options)
    assert time.monotonic() - began < 60
    return outcome


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("os._exit(3)", "a worker died by itself with status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "a worker died by itself with status -11"),
        ("os.kill(os.getppid(), signal.SIGKILL)", "the process that starts workers has ended"),
        ("pass", "only 0 of 10 workers were killed at work; the others were done before"),
    ],
)
def test_workers_that_end_by_themselves_end_the_series(tmp_path: Path, body: str, wrong: str):
    assert series_of(body, tmp_path).wrong == [wrong]


def test_what_a_worker_wrote_before_it_died_is_told(tmp_path: Path):
    first, second = series_of("raise ValueError('mine')", tmp_path).wrong
    assert first == "a worker died by itself with status 1"
    assert "ValueError: mine" in second


def test_a_worker_that_is_stuck_is_killed_and_ends_the_series(tmp_path: Path):
    for patience in growing(1.0):
        (folder := tmp_path / str(patience)).mkdir()
        outcome = series_of("signal.pause()", folder, patience=patience)
        if outcome.wrong != ["the process that starts workers has ended"]:  # it is slow to start
            break
    assert outcome.wrong == [f"a worker was not done after {patience:.0f} s"]


def test_a_process_that_never_starts_a_worker_is_killed_and_ends_the_series(tmp_path: Path):
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    outcome = kill_repeatedly(tmp_path, 2, 1, command=command, patience=0.5)
    assert len(outcome.wrong) == 1
