"""Which calls another replica may serve again, and how it finds what the first one has begun."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.types import JSONRPCRequest

from deep_agent_mcp.server.operations.shared_sessions import RepeatedCalls
from deep_agent_mcp.server.tools import FaceTool, define


async def handler(*_: Any) -> Any:
    raise AssertionError("nothing is called")


def offered() -> dict[str, FaceTool]:
    hints: dict[str, dict[str, Any]] = {
        "wait": {"read_only": True},
        "task": {},
        "write_file": {"idempotent": True},
    }
    made = (define(name, name, name, {"type": "object"}, **more) for name, more in hints.items())
    return {one.name: FaceTool(one, handler, frozenset()) for one in made}


CALLS = RepeatedCalls(offered)


def request(method: str, **params: Any) -> JSONRPCRequest:
    return JSONRPCRequest(jsonrpc="2.0", id=1, method=method, params=params or None)


def calling(tool: str, **arguments: Any) -> JSONRPCRequest:
    return request("tools/call", name=tool, arguments=arguments)


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        (request("resources/read", uri="thread://t"), True),
        (request("ping"), True),
        (calling("wait", run_id="run_1"), True),
        (calling("task", goal="x"), False),
        (calling("task", goal="x", idempotency_key="mine"), True),
        (calling("write_file", path="/x", content="y"), False),
        (calling("unheard_of"), False),
        (request("tools/call"), False),
    ],
)
def test_what_reads_is_repeated_and_a_task_by_its_key(asked: JSONRPCRequest, may: bool) -> None:
    assert CALLS.can_repeat(asked) is may


def test_a_task_gets_a_key_of_its_own_unless_it_has_one() -> None:
    first, second = (CALLS.prepared(calling("task", goal="x")) for _ in range(2))
    keys = [(one.params or {})["arguments"]["idempotency_key"] for one in (first, second)]
    assert keys[0] != keys[1] and CALLS.can_repeat(first)
    assert (first.params or {})["arguments"]["goal"] == "x" and first.id == 1
    for asked in (
        calling("task", goal="x", idempotency_key="mine"),
        calling("write_file", path="/x"),
        request("tools/call", name="task", arguments="none"),
    ):
        assert CALLS.prepared(asked) is asked
