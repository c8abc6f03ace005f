"""`run --connect`: the same against a server, which works on without the terminal."""

import json
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from click.testing import CliRunner

from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.terminal import remote
from deep_agent_mcp.server.terminal.link import Link
from deep_agent_mcp.server.terminal.remote import RemoteThreads
from tests import fork_server
from tests.ports_and_waits import free_port
from tests.terminal.screen import CLI, at_terminal, environment, run

SCRIPT = """
runs:
  - match: write it
    agents:
      main:
        - text: I plan.
          tool_calls: [{name: write_file, args: {path: /note.txt, content: LONG}}]
        - text: It is written.
  - match: look closely
    agents:
      main:
        - text: I look.
          tool_calls: [{name: ls, args: {path: /}}]
        - delay: 3
          text: All seen.
""".replace("LONG", '"' + "one line\\n" * 400 + 'the last"')


@contextmanager
def serving(home: Path, port: int) -> Iterator[fork_server.Process]:
    """Run a server with the script of a directory over HTTP; kill it after the block."""
    (home / "files").mkdir(exist_ok=True)
    options = ("--model", "scripted:script.yaml", "--root", "files", "--approve", "write_file")
    with (home / "log").open("wb") as log:
        process = fork_server.start(
            [*CLI, "serve", "--transport", "http", "--port", str(port), *options],
            environment(home),
            home,
            stdout=log.fileno(),
            stderr=log.fileno(),
        )
    try:
        while "listening on" not in (home / "log").read_text():
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Path]]:
    """A server over HTTP, with its URL and directory."""
    with tempfile.TemporaryDirectory(prefix="terminal-") as folder:
        home, port = Path(folder), free_port()
        (home / "script.yaml").write_text(SCRIPT)
        with serving(home, port):
            yield f"http://127.0.0.1:{port}/mcp", home


@pytest.fixture
def url(server: tuple[str, Path]) -> str:
    return server[0]


def test_a_call_too_long_for_results_is_shown_whole_before_it_is_approved(
    url: str, server: tuple[str, Path], tmp_path: Path
) -> None:
    with at_terminal(tmp_path, "run", "write it", "--connect", url) as screen:
        asked = screen.until("eave open:")
        assert asked.count("+one line") == 400 and "+the last" in asked
        screen.types("a\r")
        code, seen = screen.end()
    assert (code, "It is written." in seen) == (0, True)
    assert (server[1] / "files/note.txt").read_text().endswith("the last")


def test_ctrl_c_leaves_the_run_to_the_server_and_one_can_come_back(
    url: str, tmp_path: Path
) -> None:
    with at_terminal(tmp_path, "run", "look closely", "--connect", url) as screen:
        screen.until("✓ ls")
        screen.process.send_signal(signal.SIGINT)
        code, seen = screen.end()
    assert code == 130
    assert "The server works on it. Come back: deep-agent-mcp run --resume" in seen
    run_id = seen.partition("--resume ")[2].split()[0]
    done = run(tmp_path, "run", "--resume", run_id, "--connect", url)
    assert (done.returncode, done.stdout) == (0, "All seen.\n")


def test_a_run_is_followed_on_after_its_server_was_killed_and_started_again(
    tmp_path: Path,
) -> None:
    slow = SCRIPT.replace("delay: 3", "delay: 60")
    (tmp_path / "script.yaml").write_text(slow)
    port = free_port()
    connect = ("--connect", f"http://127.0.0.1:{port}/mcp")
    with (
        serving(tmp_path, port) as process,
        at_terminal(tmp_path, "run", "look closely", *connect) as screen,
    ):
        screen.until("✓ ls")
        process.kill()
        screen.until("the server is away")
        (tmp_path / "script.yaml").write_text(slow.replace("delay: 60", "delay: 0"))
        with serving(tmp_path, port):
            code, seen = screen.end()
    assert (code, "All seen." in seen) == (0, True)


def test_what_the_server_decides_is_refused_here(url: str, tmp_path: Path) -> None:
    done = run(tmp_path, "run", "write it", "--connect", url, "--model", "anthropic:x")
    assert done.returncode == 2
    assert "does not let callers choose model" in done.stderr
    for option, value, did in [
        ("--connect", "127.0.0.1:9", "done"),
        ("--model", "scripted:none.yaml", "started"),
    ]:
        done = run(tmp_path, "run", "x", option, value)
        assert done.returncode == 2
        assert f"Nothing was {did}" in done.stderr


def test_runs_and_threads_are_looked_after_from_elsewhere(
    url: str, server: tuple[str, Path], tmp_path: Path
) -> None:
    def at(*words: str) -> Any:
        done = run(tmp_path, *words, "--connect", url)
        assert done.returncode in (0, 3), done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

    (server[1] / "files/note.txt").unlink(missing_ok=True)  # which another test may have written
    begun = run(tmp_path, "run", "write it again", "--connect", url, "--json")
    assert begun.returncode == 3
    run_id = json.loads(begun.stdout.splitlines()[0])["run_id"]
    assert run_id in at("runs", "list", "--status", "needs_approval")
    assert "Open question" in at("runs", "wait", run_id)
    here = json.loads(run(server[1], "runs", "show", run_id, "--json").stdout)
    there = at("runs", "show", run_id, "--json")
    assert there.keys() == here.keys() and there["usage"] == here["usage"]
    thread = here["thread_id"]
    with at_terminal(tmp_path, "threads", "show", thread, "--follow", "--connect", url) as screen:
        screen.until("Checkpoints, newest first:")
        assert "the last" in at("runs", "approve", run_id, "--yes")
        screen.until("main: It is written.")
    rows = at("threads", "list", "--json")["threads"]
    (last,) = [one["last_run"] for one in rows if one["thread_id"] == thread]
    assert (last["run_id"], last["status"]) == (run_id, "done")
    assert at("runs", "cancel", run_id).strip() == f"{run_id}: done"
    assert "asks nothing" in run(tmp_path, "runs", "reply", run_id, "x", "--connect", url).stderr
    seen = at("threads", "events", run_id)
    assert seen == run(server[1], "threads", "events", run_id).stdout and "tool_end" in seen
    first = at("threads", "show", thread, "--json")["checkpoints"][-1]["checkpoint_id"]
    back = at("threads", "rewind", thread, first)
    assert f"{thread} is back at checkpoint {first}" in back
    assert "Files put back: /note.txt." in back
    copy = at("threads", "fork", thread, "--at", first).strip()
    assert at("threads", "delete", copy, thread, "--yes") == f"Deleted: {copy}, {thread}.\n"
    gone = run(tmp_path, "threads", "delete", thread, "--yes", "--connect", url)
    assert gone.returncode == 1
    assert gone.stderr.startswith(f"deep-agent-mcp: There is no thread {thread!r}")
    assert "Run `deep-agent-mcp threads list` to list them." in gone.stderr
    late = run(tmp_path, "runs", "list", "--state-dir", "x")
    assert "before the command: deep-agent-mcp runs --state-dir … list" in late.stderr
    refused = run(tmp_path, "runs", "--state-dir", "x", "list", "--connect", url)
    assert (refused.returncode, "--state-dir: with --connect" in refused.stderr) == (2, True)


def test_a_failed_run_elsewhere_is_shown_and_its_limit_has_its_exit_code(
    url: str, tmp_path: Path
) -> None:
    stopped = run(tmp_path, "run", "look closely", "--max-seconds", "0.001", "--connect", url)
    assert stopped.returncode == 4, stopped.stderr
    rows = json.loads(run(tmp_path, "runs", "list", "--json", "--connect", url).stdout)["runs"]
    run_id = rows[0]["run_id"]
    shown = run(tmp_path, "runs", "show", run_id, "--json", "--connect", url)
    assert (shown.returncode, shown.stderr) == (0, "")
    facts = json.loads(shown.stdout)
    assert (facts["status"], facts["open_questions"]) == ("failed", [])
    assert facts["reason"].startswith("limit: 0.001 seconds allowed")
    waited = run(tmp_path, "runs", "wait", run_id, "--connect", url)
    assert (waited.returncode, waited.stderr) == (4, "")
    assert f"Run {run_id} on thread" in waited.stdout


class Line:
    """A link to a server where one run works and another is queued behind it."""

    async def call(self, tool: str, **args: Any) -> dict[str, Any]:
        ids = {"run_next": "queued", "run_live": "running", "run_old": "done"}
        return {"runs": [{"run_id": id_, "status": status} for id_, status in ids.items()]}

    async def events(self, run_id: str, after: int) -> tuple[list[dict[str, Any]], bool]:
        return [{"seq": 1}] if run_id != "run_next" and not after else [], False


@pytest.mark.anyio
async def test_the_run_at_work_elsewhere_is_followed_while_others_wait_behind_it() -> None:
    with anyio.fail_after(10):
        async with aclosing(RemoteThreads(cast("Link", Line())).follow("notes")) as events:
            assert await anext(events) == {"run_id": "run_live", "seq": 1}


@pytest.mark.anyio
async def test_followers_ask_no_more_about_runs_that_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counted(Line):
        """A link whose working run has a new event at each look."""

        def __init__(self) -> None:
            self.asked: list[str] = []

        async def events(self, run_id: str, after: int) -> tuple[list[dict[str, Any]], bool]:
            self.asked.append(run_id)
            if run_id == "run_live":
                return [{"seq": after + 1}], False
            return await super().events(run_id, after)

    monkeypatch.setattr(remote, "LOOK_SECONDS", 0)
    link = Counted()
    with anyio.fail_after(10):
        async with aclosing(RemoteThreads(cast("Link", link)).follow("notes")) as events:
            heard = [(await anext(events))["seq"] for _ in range(5)]
    assert heard == [1, 2, 3, 4, 5]
    assert link.asked.count("run_old") == 2
    assert link.asked.count("run_next") >= 4  # it has yet to begin


NOWHERE = ("--connect", "http://127.0.0.1:1/mcp")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("threads", "fork", "notes", "--to", "mine", *NOWHERE), "--to cannot be used"),
        (("threads", "--root", ".", "delete", "notes", *NOWHERE), "--root: with --connect"),
        (("threads", "delete", "notes", "--token", "t"), "--token is for --connect"),
        (("runs", "cancel", "run_1", "--reason", "late", *NOWHERE), "--reason cannot be used"),
        (("runs", "approve", "run_1", "--yes", "--reject", *NOWHERE), "Choose one of"),
        (("runs", "approve", "run_1", "--message", "no", *NOWHERE), "with --reject"),
        (
            ("run", "--resume", "run_1", "--thread", "notes", *NOWHERE),
            "--thread cannot be used with --resume",
        ),
        (
            ("run", "--resume", "run_1", "--max-cost", "1"),
            "--max-cost cannot be used with --resume",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_asked_or_connected(
    args: tuple[str, ...], said: str
) -> None:
    done = CliRunner().invoke(cli, args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "cannot be reached" not in done.stderr


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("notes", "notes is not an http or https URL"),
        ("http://[", "http://[ is not an http or https URL"),
        (NOWHERE[1], "cannot be reached"),
    ],
)
def test_a_run_at_a_server_that_is_not_there_is_refused_without_a_heading(
    url: str, said: str
) -> None:
    done = CliRunner().invoke(cli, ["run", "look", "--connect", url])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr and not done.stderr.startswith("at ")


def test_a_server_that_is_not_there_is_said_in_the_words_of_the_command() -> None:
    done = CliRunner().invoke(cli, ["runs", "list", *NOWHERE])
    assert done.exit_code == 2
    assert "cannot be reached" in done.stderr and "Nothing was done." in done.stderr
