"""Ctrl-C before a run has begun, and at commands that wait or ask."""

import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.terminal import working
from deep_agent_mcp.server.terminal.views import View
from tests.terminal.screen import SECONDS, Screen, at_terminal


@contextmanager
def connecting(home: Path, *args: str) -> Generator[Screen]:
    """Run a command up to its first request to a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        with at_terminal(home, *args, "--connect", url) as screen:
            connection, _ = listener.accept()
            with connection:
                yield screen


@pytest.mark.parametrize("work", [("write it",), ("--resume", "run_1")], ids=["new", "resumed"])
def test_ctrl_c_while_connecting_starts_nothing(tmp_path: Path, work: tuple[str, ...]) -> None:
    with connecting(tmp_path, "run", *work) as screen:
        screen.process.send_signal(signal.SIGINT)
        code, seen = screen.end()
    assert (code, seen.strip()) == (130, "deep-agent-mcp: Interrupted. Nothing was started.")


def test_ctrl_c_ends_a_command_that_waits_with_130(tmp_path: Path) -> None:
    with connecting(tmp_path, "runs", "wait", "run_1") as screen:
        screen.process.send_signal(signal.SIGINT)
        code, seen = screen.end()
    assert (code, seen.strip()) == (130, "")


@pytest.mark.parametrize(("key", "code"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_ctrl_c_at_a_question_ends_with_130_and_the_end_of_the_input_with_1(
    key: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(question: str) -> str:
        raise key

    monkeypatch.setattr("click.termui.visible_prompt_func", pressed)
    with pytest.raises(SystemExit) as ended:
        cli(["threads", "delete", "notes"])
    assert ended.value.code == code


def test_ctrl_c_as_the_process_ends_does_not_say_that_nothing_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = working.working

    def pressed_late(main: Callable[[], Awaitable[int]], view: View) -> int:
        work(main, view)
        raise KeyboardInterrupt

    monkeypatch.setattr(working, "working", pressed_late)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.yaml").write_text("- Done.\n")
    with pytest.raises(SystemExit) as ended:
        cli(["run", "write it", "--model", "scripted:script.yaml", "--state-dir", "state"])
    assert ended.value.code == 130
    said = capsys.readouterr()
    assert said.out == "Done.\n" and "Nothing was started" not in said.err
