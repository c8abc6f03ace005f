"""`threads show --follow` and the tables, at a terminal."""

import json
import signal
from pathlib import Path

from tests.terminal.screen import at_terminal, run

SCRIPT = """
runs:
  - match: a goal
    agents: {main: [{text: Hello.}]}
  - match: go on
    agents:
      main:
        - text: I look.
          tool_calls: [{name: ls, args: {path: /}}]
        - text: Nothing there.
"""


def test_a_thread_is_followed_while_others_work_on_it(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    model = ("--model", "scripted:script.yaml")
    first = run(tmp_path, "run", "a goal", "--json", *model)
    thread = json.loads(first.stdout.splitlines()[0])["thread_id"]
    with at_terminal(tmp_path, "threads", "show", thread, "--follow") as screen:
        assert "I look." not in screen.until("Checkpoints, newest first:")
        done = run(tmp_path, "run", "go on", "--thread", thread, *model)
        assert done.returncode == 0, done.stderr
        screen.until("main: ✓ ls /")
        screen.until("main: Nothing there.")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end()[0] == 0


def test_a_table_fits_the_window_and_is_whole_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    goal = "a goal that is longer than any window is wide " * 4
    run(tmp_path, "run", goal, "--model", "scripted:script.yaml")
    with at_terminal(tmp_path, "threads", "list") as screen:
        _, seen = screen.end()
    head, row = seen.strip().splitlines()
    assert head.split()[:3] == ["THREAD", "STATUS", "CHANGED"]
    assert len(row) <= 120 and row.endswith("…")
    listed = run(tmp_path, "runs", "list").stdout
    assert goal[:100].strip() in listed
