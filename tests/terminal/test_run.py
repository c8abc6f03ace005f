"""`deep-agent-mcp run`: what a person and a script see of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fork_server
from tests.terminal.screen import at_terminal, environment, run

SCRIPT = """
name: clerk
runs:
  - match: write it
    agents:
      main:
        - text: I plan first.
          tool_calls:
            - {name: write_todos, args: {todos: [{content: write, status: in_progress},
                                                 {content: check, status: pending}]}}
            - {name: write_file, args: {path: /note.txt, content: "one\\ntwo\\n"}}
        - text: "It is **written**."
  - match: look closely
    agents:
      main:
        - text: I look.
          tool_calls: [{name: ls, args: {path: /}}]
        - delay: 2
          text: I look again.
          tool_calls: [{name: ls, args: {path: /}}]
        - text: Nothing there.
  - match: as data
    agents:
      main:
        - tool_calls: [{name: town, args: {name: Bern}}]
  - match: be rude
    agents:
      main:
        - text: "\\e[31mred\\e[0m \\u202Etxt"
          tool_calls: [{name: ls, args: {path: /}}]
        - text: Sorry.
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    return tmp_path


MODEL = ("--model", "scripted:script.yaml")


def events_of(text: str) -> Iterator[dict[str, object]]:
    return map(json.loads, text.splitlines())


FIRST = """
import sys
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.terminal.views import LinesView
def hello(view, text):
    print(text, sorted({"mcp", "mcp_types", "anthropic"} & {*sys.modules}))
    sys.stdout.flush()
    raise SystemExit
LinesView.hello = hello
cli(["run", "a goal", "--model", "scripted:script.yaml"])
"""


def test_the_first_line_comes_before_anything_slow_is_imported(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "scripted:script.yaml, with files in the thread []\n", done.stderr


def test_no_event_is_lost_in_a_pipe(home: Path) -> None:
    turns = [
        {"tool_calls": [{"name": "ls", "args": {"path": f"/{turn}-{at}"}} for at in range(40)]}
        for turn in range(5)
    ]
    script = {"agents": {"main": [*turns, {"text": "All seen."}]}}
    (home / "script.yaml").write_text(json.dumps(script))
    done = run(home, "run", "look", "--json", *MODEL)
    *lines, last = events_of(done.stdout)
    numbers = [one["seq"] for one in lines if one["type"] == "event"]
    assert last["status"] == "done", last
    assert numbers == [*range(1, len(numbers) + 1)] and len(numbers) > 400


def test_a_person_sees_steps_todos_and_the_answer(home: Path) -> None:
    with at_terminal(home, "run", "write it", *MODEL) as screen:
        first = screen.until("\n")
        code, seen = screen.end()
    assert "scripted:script.yaml, with files in the thread" in first
    assert code == 0
    for text in ("I plan first.", "✓ write_file /note.txt", "▸ write", "It is written.", "Done"):
        assert text in seen
    assert "deep-agent-mcp run --thread thr_" in seen


def test_a_script_gets_the_answer_alone_on_standard_output(home: Path) -> None:
    done = run(home, "run", "-", *MODEL, says="write it\n")
    assert (done.returncode, done.stdout) == (0, "It is **written**.\n")
    assert "main: ✓ write_file /note.txt" in done.stderr
    assert "todos: 0 of 2 done; now: write" in done.stderr
    assert "\x1b" not in done.stderr
    quiet = run(home, "run", "write it", *MODEL, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("It is **written**.\n", "")


def test_a_goal_with_bytes_that_are_no_text_is_worked_on(home: Path) -> None:
    done = run(home, "run", "-", *MODEL, says="write it: naïve\n".encode("latin-1"))
    assert (done.returncode, done.stdout) == (0, "It is **written**.\n"), done.stderr
    (ran,) = json.loads(run(home, "runs", "list", "--json").stdout)["runs"]
    assert ran["goal"].strip() == "write it: na\ufffdve"


WINDOWS = """
import sys
from deep_agent_mcp.server.cli.main import main
for one in (sys.stdin, sys.stdout, sys.stderr):
    one.reconfigure(encoding="cp1252")
main()
"""
"""The command with the encoding that pipes have on Windows."""


def test_pipes_are_utf_8_whatever_the_system_uses(home: Path) -> None:
    def on_windows(*args: str, says: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WINDOWS, *args]
        return fork_server.run(command, environment(home), home, says=says.encode())

    goal = "write it: Grüße, 日本"
    script = SCRIPT.replace("is **written**", "is **✓ 日本**")
    (home / "script.yaml").write_text(script, encoding="utf-8")
    done = on_windows("run", "-", *MODEL, says=goal)
    assert (done.returncode, done.stdout) == (0, "It is **✓ 日本**.\n"), done.stderr
    assert "main: ✓ write_file /note.txt" in done.stderr
    listed = on_windows("runs", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    (ran,) = json.loads(listed.stdout)["runs"]
    assert ran["goal"].strip() == goal


def test_nothing_runs_before_the_person_has_seen_the_call_and_approved_it(home: Path) -> None:
    (home / "files").mkdir()
    options = (*MODEL, "--root", "files", "--approve", "write_file")
    with at_terminal(home, "run", "write it", *options) as screen:
        asked = screen.until("eave open:")
        assert "write_file /note.txt  +2 -0  (a new file)" in asked
        assert "+one" in asked and "+two" in asked
        assert not (home / "files/note.txt").exists()
        screen.types("a\r")
        code, seen = screen.end()
    assert code == 0
    assert "It is written." in seen
    assert (home / "files/note.txt").read_text() == "one\ntwo\n"


def test_a_rejected_call_does_not_run_and_the_run_goes_on(home: Path) -> None:
    (home / "files").mkdir()
    options = (*MODEL, "--root", "files", "--approve", "write_file")
    with at_terminal(home, "run", "write it", *options) as screen:
        screen.until("eave open:")
        screen.types("r\r")
        screen.until("Why:")
        screen.types("not there\r")
        code, seen = screen.end()
    assert code == 0
    assert "✗ write_file /note.txt: " in seen
    assert not (home / "files/note.txt").exists()


def test_without_a_terminal_a_question_stays_open_and_can_be_decided_later(home: Path) -> None:
    (home / "files").mkdir()
    options = (*MODEL, "--root", "files", "--approve", "write_file")
    done = run(home, "run", "write it", "--json", *options)
    *_, last = events_of(done.stdout)
    assert (done.returncode, last["status"]) == (3, "needs_approval")
    assert "run --resume" in str(last["next"])
    with at_terminal(home, "run", "--resume", str(last["run_id"]), *options) as screen:
        screen.until("eave open:")
        screen.types("a\r")
        assert screen.end()[0] == 0
    assert (home / "files/note.txt").read_text() == "one\ntwo\n"


def test_with_approve_never_the_model_reads_that_nobody_was_asked(home: Path) -> None:
    options = ("--approve", "never", "--approve", "write_file")
    done = run(home, "run", "write it", *MODEL, *options)
    assert done.returncode == 0
    assert "✗ write_file /note.txt" in done.stderr
    (ran,) = json.loads(run(home, "runs", "list", "--json").stdout)["runs"]
    shown = run(home, "threads", "show", ran["thread_id"], "--transcript").stdout
    assert "write_file needs approval, which this run does not allow, and did not run" in shown
    assert "nobody was asked (--approve never)" in shown and "rejected" not in shown


def test_ctrl_c_pauses_after_the_step_and_the_run_can_go_on(home: Path) -> None:
    with at_terminal(home, "run", "look closely", *MODEL) as screen:
        screen.until("✓ ls")
        screen.process.send_signal(signal.SIGINT)
        screen.until("pauses after this step")
        code, seen = screen.end()
    assert code == 130
    assert "Paused" in seen
    run_id = seen.partition("--resume ")[2].split()[0]
    done = run(home, "run", "--resume", run_id, *MODEL)
    assert (done.returncode, done.stdout) == (0, "Nothing there.\n")


def test_a_second_ctrl_c_ends_at_once(home: Path) -> None:
    script = SCRIPT.replace("delay: 2", "delay: 600")
    (home / "script.yaml").write_text(script)
    with at_terminal(home, "run", "look closely", *MODEL) as screen:
        screen.until("✓ ls")
        screen.process.send_signal(signal.SIGINT)
        screen.until("pauses after this step")
        screen.process.send_signal(signal.SIGINT)
        code, seen = screen.end()
    assert code == 130
    assert "run --resume run_" in seen


def test_a_reached_limit_has_an_exit_code_of_its_own(home: Path) -> None:
    done = run(home, "run", "look closely", *MODEL, "--max-seconds", "0.001")
    assert done.returncode == 4
    assert "limit: 0.001 seconds allowed" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run",), "either a GOAL or --resume"),
        (("run", "x", "--approve", "ask", *MODEL), "--approve ask needs a terminal"),
        (("run", "x", "--thread", "thr_none", *MODEL), "There is no thread 'thr_none'"),
        (("run", "x", "--root", "nowhere", *MODEL), "nowhere"),
        (("run", "x", "--connect", "http://127.0.0.1:1/mcp"), "cannot be reached"),
        (("run", "x", "--connect", "http://a/mcp", "--root", "."), "--root: the server at"),
    ],
)
def test_what_cannot_start_says_why_with_exit_code_2(
    home: Path, args: tuple[str, ...], said: str
) -> None:
    done = run(home, *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_key_it_says_what_to_set_and_stores_nothing(home: Path) -> None:
    done = run(home, "run", "look")
    assert done.returncode == 2
    assert "cannot be used without ANTHROPIC_API_KEY. Nothing was started." in done.stderr
    assert [*home.iterdir()] == [home / "script.yaml"]
    run(home, "run", "look closely", *MODEL, "--max-seconds", "0.001")
    (stopped,) = json.loads(run(home, "runs", "list", "--json").stdout)["runs"]
    again = run(home, "run", "--resume", stopped["run_id"])
    assert again.returncode == 2 and "ANTHROPIC_API_KEY" in again.stderr
    assert json.loads(run(home, "runs", "list", "--json").stdout)["runs"] == [stopped]


def test_without_the_key_of_a_subagents_model_it_stores_nothing_either(home: Path) -> None:
    said = "cannot be used without {}_API_KEY. Nothing was started. Set this variable"
    (home / "agents").mkdir()
    scout = "---\nname: scout\ndescription: looks\nmodel: openai:gpt-5\n---\nLook.\n"
    (home / "agents" / "scout.md").write_text(scout)
    before = {*home.iterdir()}
    for args, key in [
        (("general-purpose",), "ANTHROPIC"),
        (("scout", "--agents", "agents", *MODEL), "OPENAI"),
    ]:
        done = run(home, "run", "look", "--subagent", *args)
        assert done.returncode == 2
        assert said.format(key) in done.stderr
    assert {*home.iterdir()} == before
    unknown = run(home, "run", "look", "--subagent", "nobody", *MODEL)
    assert unknown.returncode == 2 and "nobody" in unknown.stderr


def test_a_subagents_run_goes_on_without_the_key_of_the_main_model(home: Path) -> None:
    (home / "agents").mkdir()
    scout = "---\nname: scout\ndescription: looks\nmodel: openai:gpt-5\n---\nLook.\n"
    (home / "agents" / "scout.md").write_text(scout)
    key = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:1"}
    stopped = run(
        home, "run", "look", "--subagent", "scout", "--agents", "agents", "--max-seconds", "0.001",
        **key,
    )  # fmt: skip
    assert stopped.returncode == 4
    assert ' --agents agents --subagent scout "…"' in stopped.stderr
    (left,) = json.loads(run(home, "runs", "list", "--json").stdout)["runs"]
    again = run(home, "run", "--resume", left["run_id"], "--agents", "agents", **key)
    assert "ANTHROPIC_API_KEY" not in again.stderr and again.returncode == 4


def test_who_resumes_a_subagents_run_is_told_how_to_go_on_with_the_subagent(home: Path) -> None:
    (home / "scout.yaml").write_text(
        "- tool_calls: [{name: write_file, args: {path: /a, content: b}}]\n- Looked.\n"
    )
    scout = '[agents.scout]\ndescription = "x"\ninstructions = "x"\nmodel = "scripted:scout.yaml"\n'
    (home / "agent.toml").write_text(f'[agent]\nname = "boss"\n{scout}')
    options = ("--agent", "agent.toml", "--approve", "write_file")
    goal = "look " * 100  # stored events are shown shortened
    asked = run(home, "run", goal, "--subagent", "scout", *options)
    assert asked.returncode == 3, asked.stderr
    (left,) = json.loads(run(home, "runs", "list", "--json").stdout)["runs"]
    done = run(home, "run", "--resume", left["run_id"], "--agent", "agent.toml", "--approve=never")
    assert done.returncode == 0, done.stderr
    assert ' --agent agent.toml --subagent scout "…"' in done.stderr


def test_an_answer_with_a_schema_is_json(home: Path) -> None:
    town = {"title": "town", "type": "object", "properties": {"name": {"type": "string"}}}
    (home / "town.json").write_text(json.dumps(town))
    done = run(home, "run", "as data", *MODEL, "--output-schema", "town.json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"name": "Bern"}


def test_texts_of_a_model_cannot_steer_the_terminal(home: Path) -> None:
    done = run(home, "run", "be rude", *MODEL)
    assert "[U+001B][31mred[U+001B][0m [U+202E]txt" in done.stderr


def test_a_reader_that_leaves_early_pauses_the_run_without_a_word(home: Path) -> None:
    source, sink = os.pipe()
    with at_terminal(home, "run", "look closely", "--json", *MODEL, stdout=sink) as screen:
        os.close(sink)
        os.read(source, 1)
        os.close(source)
        code, seen = screen.end()
    assert (code, seen.strip()) == (141, "")
    (left,) = json.loads(run(home, "runs", "list", "--json").stdout)["runs"]
    assert left["status"] == "paused"


def test_the_model_of_a_client_is_refused_before_anything_starts(home: Path) -> None:
    refused = run(home, "run", "look", "--model", "sampling")
    assert refused.returncode == 2 and "Nothing was started" in refused.stderr
    assert "a terminal has none" in refused.stderr
