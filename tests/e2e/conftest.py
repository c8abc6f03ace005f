"""One server with both HTTP transports that most tests share; each test uses its own threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.servers import HttpServer, Setup

WRITE = {"name": "write_file", "args": {"path": "/note.txt", "content": "first\n"}}
EDIT = {
    "name": "edit_file",
    "args": {"path": "/note.txt", "old_string": "first", "new_string": "second"},
}

SCRIPT = {
    "name": "e2e",
    "runs": [
        {
            "match": "write a note",
            "agents": {
                "main": [
                    {"text": "Writing it.", "tool_calls": [WRITE]},
                    {"text": "The note is written.", "expect": {"last_type": "tool"}},
                ]
            },
        },
        {
            "match": "use a subagent",
            "agents": {
                "main": [
                    {"tool_calls": [{"name": "task", "args": {"description": "look around"}}]},
                    {"text": "The subagent says: nothing here."},
                ],
                "general-purpose": [
                    {"tool_calls": [{"name": "ls", "args": {"path": "/"}}]},
                    {"text": "nothing here"},
                ],
            },
        },
        {
            "match": "take your time",
            "agents": {"main": [{"text": "At last.", "delay": 600}]},
        },
        {
            "match": "a moment",
            "agents": {"main": [{"text": "That was a moment.", "delay": 0.3}]},
        },
        {
            "match": "change the note",
            "agents": {
                "main": [
                    {"tool_calls": [WRITE]},
                    {"tool_calls": [EDIT]},
                    {"text": "The note is changed."},
                ]
            },
        },
        {
            "match": "fail at once",
            "agents": {"main": [{"text": "x", "expect": {"last_type": "tool"}}]},
        },
        {"match": "say much", "agents": {"main": [{"text": "0123456789" * 2_000}]}},
    ],
    "agents": {"*": [{"text": "Nothing to do."}]},
}


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Setup, HttpServer]]:
    """A server whose `edit_file` calls need approval."""
    setup = Setup(
        tmp_path_factory.mktemp("shared"), flags=["--approve", "edit_file"], script=SCRIPT
    )
    setup.skill("greeting", "How to greet people.", "Say hello first.")
    broken = setup.skills / "broken"
    broken.mkdir()
    (broken / "SKILL.md").write_text("---\nname: broken\ndescription: [\n---\n", encoding="utf-8")
    with setup.serving() as server:
        yield setup, server
