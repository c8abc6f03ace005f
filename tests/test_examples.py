"""Every example runs as a user would run it, in a process of its own, and prints what it should."""

import sys
from pathlib import Path

import pytest

from tests import fork_server

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
    "custom_middleware.py": [
        "event: {'read so far': 0}",
        "event: {'read so far': 2}",
        "event: {'again': 'home'}",
        "event: {'read so far': 3}",
        "result: done ['home', 'news', 'home']",
    ],
    "console_approval.py": [
        "runs that wait from last time: 0",
        "agent > pears | order needs approval (Tool execution requires approval: order) | "
        "{'item': 'pears', 'amount': 10}",
        "ordering 10 pears",
        "status: needs_approval ",
    ],
    "structured_output.py": [
        "sent back: Refund was not accepted: cents: Input should be a valid integer, unable to "
        "parse string as an integer.",
        "answer: Refund(order=7, cents=1250)",
        "answer: Handover(reason='lost', urgency='high')",
    ],
    "fallback_model.py": [
        "scripted:first failed (overloaded); asking scripted:second",
        "answer: Oslo has snow.",
        "answered by: scripted:second, scripted:first",
        "model calls, the failed one included: 3",
        "next run: failed - the key was revoked",
    ],
    "agents_as_files.py": [
        "subagent: reviewer - Reviews a file and reports problems by severity",
        "subagent: twin - A copy of you that knows all you know",
        "report: One problem, on line 1.",
        "report: The file is /src/a.py.",
        "files: /notes.md, /src/a.py",
        "unchanged: print('hi'",
        "answer: The file needs a parenthesis.",
    ],
    "background_job.py": [
        "output: ['waiting']",
        "answer: The build waits for its sources.",
        "output: ['waiting', 'built']",
        "answer: It is built.",
        "result: 2 lines",
    ],
    "background_subagents.py": [
        "answer: Sold since 1657, bitter by tannins, four pence a cup.",
        "files: /history.md, /report.md",
        "historian: success: Since 1657; see /history.md.",
        "chemist: success: Tannins.",
        "economist: success: Four pence a cup.",
    ],
    "mcp_tools.py": [
        "bakery_breads: success",
        "bakery_close_shop: error",
        "MCP server 'bakery' asks: How many grams of rye?",
        "answer: There is rye bread.",
    ],
}

TYPED = {"console_approval.py": "approve\n"}
"""What the user types, where an example asks; nothing after that is the end of the input."""


def run(name: str, folder: Path, typed: str) -> str:
    # No key, a home without settings, and a proxy that nobody runs: an example that needs the
    # network fails here.
    env = fork_server.environment(
        folder,
        PYTHONWARNINGS="error",
        HTTPS_PROXY="http://127.0.0.1:9",
    )
    command = [sys.executable, str(EXAMPLES / name)]
    done = fork_server.run(command, env, folder, says=typed.encode())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_an_expectation_for_every_example() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_and_prints_what_happened(name: str, tmp_path: Path) -> None:
    lines = run(name, tmp_path, TYPED.get(name, "")).splitlines()
    assert [line for line in lines if line in EXPECTED[name]] == EXPECTED[name]


def test_an_approval_that_was_left_open_is_asked_again_by_the_next_process(tmp_path: Path) -> None:
    first = run("console_approval.py", tmp_path, "approve\n").splitlines()
    assert "ordering 10 pears" in first
    assert not [line for line in first if line.endswith("plums")]

    typed = (
        "perhaps\n"
        'edit {"item": "plums", "amount": 50}\n'
        "reject too dear\n"
        "respond there are figs in the cellar\n"
    )
    lines = run("console_approval.py", tmp_path, typed).splitlines()
    asked = [line.split(" | ")[0] for line in lines if line.startswith("agent > ")]
    assert lines[1] == "runs that wait from last time: 1"
    assert asked == ["agent > plums", "agent > plums", "agent > gold", "agent > figs"]
    assert [line for line in lines if line.startswith("ordering")] == ["ordering 50 plums"]
    assert any(line.startswith("not accepted: ") and "'perhaps'" in line for line in lines)
    assert lines[-1] == "status: done All is settled."


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 80
