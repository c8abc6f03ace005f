"""Helpers that call tools like the loop, without the loop."""

from collections.abc import Callable
from typing import Any, NoReturn

from deep_agent_mcp.harness.tools.tool import Tool, ToolResult, ToolRuntime, result_of


def _nothing(*_: object, **__: object) -> NoReturn:
    raise AssertionError("no loop is there")


def runtime(**more: Any) -> ToolRuntime:
    fields: dict[str, Any] = {
        "state": {"messages": [], "todos": ["t"]},
        "tool_call_id": "call_1",
        "thread_id": "thr_1",
        "run_id": "run_1",
        "ns": "",
        "agent_path": ("agent",),
        "context": {"user": "ann"},
        "journal": None,
        "stream_writer": _nothing,
        "interrupt": _nothing,
        "run_subagent": _nothing,
    }
    return ToolRuntime(**{**fields, **more})


async def value(tool: Tool, /, **args: Any) -> Any:
    """Return the value of the tool's function."""
    return await tool.function(tool.validate(args), runtime())


async def result(tool: Tool, /, **args: Any) -> ToolResult:
    """Return the tool's result in the loop's form."""
    return result_of(await value(tool, **args), tool.name)


def properties(tool: Tool) -> Any:
    return tool.parameters["properties"]


def described(function: Callable[..., Any]) -> dict[str, str]:
    """Return the description of each parameter in the schema of a tool from a function."""
    from deep_agent_mcp.harness.tools.tool import tool

    return {
        name: schema["description"]
        for name, schema in properties(tool(function)).items()
        if "description" in schema
    }
