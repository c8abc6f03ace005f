"""Our server as a process, with a tool that asks a person; it takes the flags of `serve`."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import deep_agent_mcp.server.app
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from deep_agent_mcp.server.cli.main import main

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "enum": ["red", "green"], "title": "Colour"},
        "count": {"type": "integer", "description": "how many"},
        "urgent": {"type": "boolean"},
    },
    "required": ["colour", "count"],
}


@tool
def ask_person(question: str, runtime: ToolRuntime, form: bool = False) -> str:
    """Ask the person."""
    return json.dumps(runtime.interrupt(question, answer_schema=FORM if form else None))


@tool
def pay(account: int, amount: float, note: str = "") -> str:
    """Pay an amount."""
    return json.dumps({"account": account, "amount": amount, "note": note})


def with_tool(*args: Any, **options: Any) -> Any:
    return create_deep_agent(*args, **options, tools=[ask_person, pay])


if __name__ == "__main__":
    with patch.object(deep_agent_mcp.server.app, "create_deep_agent", with_tool):
        main()
