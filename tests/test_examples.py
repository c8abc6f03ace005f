"""Every example runs as a user would run it, in a process of its own, and prints what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

EXPECTED = {
    "library_agent.py": [
        "status: needs_approval",
        "asked: order {'item': 'pears', 'amount': 10}",
        "pears while it waits: 3",
        "status: done",
        "pears now: 13",
        "answer: There were 3 pears left; I ordered 10.",
    ],
    "deep_agent.py": [
        "answer: The summary is in /summary.md.",
        "on disk: 42 users signed up.",
        "checkpoint 0, next before_agent: Summarise the notes.",
        "checkpoint 5, next after_model: The summary is in /summary.md.",
        "todo after the fork: in_progress",
        "answer of the other branch: Growing.",
    ],
    "mcp_client.py": [
        "server: deep-agent-mcp speaking 2026-07-28",
        "[x] Say hello (t1)",
        "Wrote /hello.txt: 15 bytes, a new file.",
        "read back: Hello, thread.",
    ],
}


def run(name: str, folder: Path) -> str:
    kept = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "LANG")
    environment = {key: os.environ[key] for key in kept if key in os.environ}
    # No key, a home without settings, and a proxy that nobody runs: an example that needs the
    # network fails here.
    environment |= {
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_an_expectation_for_every_example() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_and_prints_what_happened(name: str, tmp_path: Path) -> None:
    lines = run(name, tmp_path).splitlines()
    assert [line for line in lines if line in EXPECTED[name]] == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 80
