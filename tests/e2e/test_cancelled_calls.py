"""A user who cancels a call ends the run it started; giving up and losing the line do not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import ElicitRequestParams, ElicitResult

from tests.e2e.raw_client import RawClient, raw_client
from tests.e2e.servers import ERAS, Era, Setup, call, connected, until_progress

pytestmark = pytest.mark.anyio

SLOW = {"text": "At last.", "delay": 600}
LIMITS = (0.3, 1.2, 4.8)
"""Seconds that a client waits, the next where the machine was too slow to begin in time."""
SCRIPT = {
    "runs": [
        {"match": "take your time", "agents": {"main": [SLOW]}},
        {"match": "a moment", "agents": {"main": [{"text": "Done.", "delay": 1}]}},
        *(
            {"match": f"outlast {one} s", "agents": {"main": [{"text": "Done.", "delay": 3 * one}]}}
            for one in LIMITS
        ),
        {"match": "be quick", "agents": {"main": [{"text": "Quick."}, SLOW]}},
        {
            "match": "ask first",
            "agents": {
                "main": [{"tool_calls": [{"name": "ls", "args": {"path": "/"}}]}, SLOW],
            },
        },
    ]
}
EXPLICIT = [
    ("stdio", "auto"),
    ("stdio", "legacy"),
    ("sse", "auto"),
    ("sse", "legacy"),
    ("http", "legacy"),
]
"""Where a client that cancels says so; over HTTP of 2026-07-28 it only closes its connection."""


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path, script=SCRIPT, flags=["--approve", "ls"])


@asynccontextmanager
async def a_client(
    setup: Setup, transport: str, mode: Era, **options: Any
) -> AsyncIterator[Client]:
    with anyio.fail_after(60):
        if transport == "stdio":
            async with connected(setup.stdio(), mode, **options) as client:
                yield client
        else:
            with setup.serving() as server:
                async with connected(server.target(transport), mode, **options) as client:
                    yield client


async def last_run(client: Client) -> dict[str, Any]:
    (thread,) = (await call(client, "threads"))["threads"]
    return thread["last_run"]


async def is_cancelled(client: Client) -> bool:
    run = await last_run(client)
    ended = await call(client, "wait", run_id=run["run_id"], wait_seconds=2)
    if ended["status"] == "cancelled":
        assert ended["reason"] == "the call that started it was cancelled"
    return ended["status"] == "cancelled"


@pytest.mark.parametrize(("transport", "mode"), EXPLICIT)
async def test_cancelling_a_task_ends_its_run(transport: str, mode: Era, setup: Setup) -> None:
    async with a_client(setup, transport, mode) as client:
        goal = {"goal": "take your time"}
        assert await until_progress(client, "thinking", 1, "task", **goal) is None
        assert await is_cancelled(client)
        (thread,) = (await call(client, "threads"))["threads"]
        await call(client, "write_todos", todos=[], thread_id=thread["thread_id"])  # it is free


async def test_a_closed_connection_of_2026_may_be_lost_and_leaves_the_run(setup: Setup) -> None:
    async with a_client(setup, "http", "auto") as client:
        assert await until_progress(client, "thinking", 1, "task", goal="a moment") is None
        run = await last_run(client)
        done = await call(client, "wait", run_id=run["run_id"])
        assert (done["status"], done["answer"]) == ("done", "Done.")


@pytest.mark.parametrize(("transport", "mode"), EXPLICIT)
async def test_a_client_that_waited_long_enough_leaves_the_run(
    transport: str, mode: Era, setup: Setup
) -> None:
    async with a_client(setup, transport, mode) as client:
        for seconds in LIMITS:
            with pytest.raises(MCPError, match="timed out"):
                goal = {"goal": f"outlast {seconds} s"}
                await client.call_tool("task", goal, read_timeout_seconds=seconds)
            if threads := (await call(client, "threads"))["threads"]:
                break  # otherwise none had begun by then
        run = threads[0]["last_run"]
        done = await call(client, "wait", run_id=run["run_id"])
        assert (done["status"], done["answer"]) == ("done", "Done.")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_cancelled_run_is_not_started_again_when_the_host_goes_at_once(
    mode: Era, setup: Setup
) -> None:
    async with a_client(setup, "stdio", mode) as client:
        assert await until_progress(client, "thinking", 1, "task", goal="take your time") is None
    async with a_client(setup, "stdio", mode) as client:
        assert await is_cancelled(client)


async def test_cancelling_a_reply_ends_the_run_that_its_message_started(setup: Setup) -> None:
    async with a_client(setup, "stdio", "auto") as client:
        first = await call(client, "task", goal="be quick")
        more = {"run_id": first["run_id"], "message": "and now take your time"}
        assert await until_progress(client, "thinking", 1, "reply", **more) is None
        assert (await last_run(client))["run_id"] != first["run_id"]
        assert await is_cancelled(client)
        again = await call(client, "wait", run_id=first["run_id"])
        assert again["status"] == "done"


async def test_calls_that_did_not_start_a_run_do_not_end_it(setup: Setup) -> None:
    async with a_client(setup, "stdio", "auto") as client:
        goal = {"goal": "take your time", "idempotency_key": "one"}
        begun = await call(client, "task", **goal, wait_seconds=0)
        for tool, args in (("wait", {"run_id": begun["run_id"]}), ("task", goal)):
            with anyio.move_on_after(0.3):
                await client.call_tool(tool, args)
        seen = await call(client, "wait", run_id=begun["run_id"], wait_seconds=0.5)
        assert seen["status"] == "running"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_has_asked_its_user_still_ends_its_run(mode: Era, setup: Setup) -> None:
    async def approve(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"decision": "approve"})

    async with a_client(setup, "stdio", mode, elicitation_callback=approve) as client:
        assert await until_progress(client, "thinking", 2, "task", goal="ask first") is None
        assert await is_cancelled(client)


@pytest.mark.parametrize(
    ("reason", "ends"),
    [
        (None, True),
        ("", True),
        ("AbortError: This operation was aborted", True),
        ("caller cancelled", True),
        (7, True),
        ("McpError: MCP error -32001: Request timed out", False),
        ("request timeout", False),
        ("timed out after 60s", False),
        ("Deadline exceeded", False),
    ],
)
async def test_the_reason_tells_a_user_from_a_clock(reason: Any, ends: bool, setup: Setup) -> None:
    with anyio.fail_after(60):
        async with raw_client(setup) as client:
            run_id = await _cancelled_task(client, reason)
            call = {"name": "wait", "arguments": {"run_id": run_id, "wait_seconds": 0.7}}
            seen = (await client.result("tools/call", **call))["structuredContent"]
            assert seen["status"] == ("cancelled" if ends else "running")


async def _cancelled_task(client: RawClient, reason: Any) -> str:
    """Start a task, cancel its request once the run is there, and return the run's id."""
    params = {"name": "task", "arguments": {"goal": "take your time"}}
    await client.send({"id": "the task", "method": "tools/call", "params": params})
    while True:
        listed = await client.result("tools/call", name="threads", arguments={})
        threads = listed["structuredContent"]["threads"]
        if threads:
            break
    given = {"requestId": "the task"} | ({} if reason is None else {"reason": reason})
    await client.send({"method": "notifications/cancelled", "params": given})
    return threads[0]["last_run"]["run_id"]
