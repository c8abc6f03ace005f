"""Remembered decisions about commands: a rule covers the words that the person saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from deep_agent_mcp.harness.checkpoint.base import Interrupt
from deep_agent_mcp.harness.messages.message import ToolCall
from deep_agent_mcp.harness.tools.tool import Tool
from deep_agent_mcp.server.approvals.remembered import proposed


@dataclass(frozen=True, slots=True)
class Place:
    thread_id: str = "thr_1"
    run_id: str = "run_1"
    agent_path: tuple[str, ...] = ("main", "c2")


def run(args: dict[str, Any]) -> None: ...


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("git '*' x", ["git push x", "git push"]),
        ("grep '[a-z]' notes", ["grep a notes", "grep b"]),
        (r'git "a\*" x', [r"git 'a\b' x"]),
        (r"git \* x", ["git push x"]),
    ],
)
def test_a_quoted_wildcard_of_a_remembered_command_stands_for_itself(
    command: str, others: list[str]
):
    execute = Tool.from_schema("execute", "", {"type": "object"}, run)
    question = Interrupt(
        id="int_1",
        thread_id="thr_1",
        ns="",
        step_id="",
        run_id="run_1",
        kind="approval",
        path=("main", "c1"),
        message="execute needs approval",
        payload={"tool": "execute", "args": {"command": command}},
        answer_schema={},
    )
    rules = [one for one in proposed(question, execute) if one.match.value.count(" ") == 1]
    assert [one.match.kind for one in rules] == ["command", "command"]
    for line in (command, *others):
        call = ToolCall("c2", "execute", {"command": line})
        covered = [one.covers(call, execute, Place()) for one in rules]
        assert covered == [line == command] * 2, line
