"""`deep-agent-mcp chat` in a real terminal."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal.screen import Screen, at_terminal, run

SCRIPT = """
runs:
  - match: write it
    agents:
      main:
        - text: I plan.
          tool_calls:
            - {name: write_todos, args: {todos: [{content: write the note, status: completed}]}}
            - {name: write_file, args: {path: /note.txt, content: first}}
        - text: It is **written**.
  - match: change it
    agents:
      main:
        - tool_calls:
            - {name: edit_file, args: {path: /note.txt, old_string: first, new_string: second}}
        - text: Changed.
  - match: |-
      two
      lines
    agents: {main: [{text: I have read both.}]}
  - match: look closely
    agents:
      main:
        - text: I look.
          tool_calls: [{name: ls, args: {path: /}}]
        - delay: 1
          text: I look again.
          tool_calls: [{name: ls, args: {path: /}}]
        - text: All seen.
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    (tmp_path / "files").mkdir()
    return tmp_path


MODEL = ("--model", "scripted:script.yaml")


@pytest.fixture
def chat(home: Path) -> Iterator[Screen]:
    with at_terminal(home, "chat", *MODEL, "--root", "files") as screen:
        screen.until("Ctrl-D ends")
        screen.until(">")
        yield screen


def says(screen: Screen, text: str) -> None:
    screen.types(f"{text}\r")


def test_messages_share_a_thread_and_can_be_undone(home: Path, chat: Screen) -> None:
    note = home / "files/note.txt"
    says(chat, "write it")
    chat.until("It is written.")
    chat.until(">")
    says(chat, "/todos")
    chat.until("✓ write the note")
    says(chat, "/files")
    chat.until("note.txt")
    says(chat, "/files note.txt")
    chat.until("first")
    says(chat, "change it")
    chat.until("Changed.")
    assert note.read_text() == "second"
    says(chat, "/rewind")
    listed = chat.until("goes back to that step")
    (number,) = [line.split()[0] for line in listed.splitlines() if "It is **written**" in line]
    says(chat, f"/rewind {number}")
    chat.until("/note.txt")
    chat.until("[y/N]")
    assert note.read_text() == "second"
    says(chat, "y")
    chat.until("The thread is back at that step.")
    assert note.read_text() == "first"
    says(chat, "/cost")
    chat.until("2 runs, 4 model calls")
    chat.until(">")
    chat.types("\x04")
    code, seen = chat.end()
    assert code == 0
    assert "deep-agent-mcp chat --thread thr_" in seen


def test_a_message_may_have_several_lines(chat: Screen) -> None:
    chat.types("two\x1b\rlines\r")
    chat.until("I have read both.")
    says(chat, "/quit")
    assert chat.end()[0] == 0


def test_ctrl_c_pauses_the_agent_and_the_conversation_goes_on(chat: Screen) -> None:
    says(chat, "look closely")
    chat.until("✓ ls")
    chat.process.send_signal(signal.SIGINT)
    chat.until("/resume continues it")
    chat.until(">")
    says(chat, "/resume")
    chat.until("All seen.")


def test_what_was_typed_is_there_again_and_for_nobody_else(home: Path, chat: Screen) -> None:
    says(chat, "/help")
    chat.until("/rewind [NUMBER]")
    says(chat, "/quit")
    chat.end()
    (history,) = home.rglob("chat-history")
    assert "/help" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    with at_terminal(home, "chat", *MODEL) as again:
        again.until("Ctrl-D ends")
        again.until(">")
        again.types("\x1b[A\x1b[A\r")  # up, up: what came before /quit
        again.until("/rewind [NUMBER]")


def test_mistakes_do_not_end_the_conversation(chat: Screen) -> None:
    for typed, said in (
        ("/nothing", "There is no command /nothing."),
        ("/todos", "There is no thread yet"),
        ("/thread thr_none", "There is no thread 'thr_none'"),
        ("nobody wrote this", "left its script"),
        ("/rewind 99", "'99'"),
    ):
        says(chat, typed)
        chat.until(said)
        chat.until(">")


def test_without_a_key_no_message_is_sent_and_the_conversation_stays_open(home: Path) -> None:
    with at_terminal(home, "chat") as screen:
        screen.until("cannot be used without ANTHROPIC_API_KEY")
        screen.until("Ctrl-D ends")
        says(screen, "look closely")
        screen.until("cannot be used without ANTHROPIC_API_KEY")
        says(screen, "/quit")
        assert screen.end()[0] == 0
    assert "There are no runs yet." in run(home, "runs", "list").stdout


def test_without_a_terminal_it_says_what_to_use(home: Path) -> None:
    done = run(home, "chat", *MODEL)
    assert done.returncode == 2
    assert "deep-agent-mcp run GOAL" in done.stderr
