"""A server may end at any moment: runs, ids and questions are still there for the next one."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import ElicitRequestParams, ElicitResult

from tests.e2e.servers import (
    ERAS,
    Era,
    HttpServer,
    Setup,
    call,
    connected,
    served,
    until_progress,
)

pytestmark = pytest.mark.anyio

LOG = "/log.txt"
WRITE = {"name": "write_file", "args": {"path": LOG, "content": "end\n"}}
ADD_LINE = {
    "name": "edit_file",
    "args": {"path": LOG, "old_string": "end", "new_string": "line\nend"},
}


REPORT = {"title": "report", "type": "object", "properties": {"said": {"type": "string"}}}


def script(delay: float) -> dict[str, Any]:
    """Return the models' part; the runs that servers shall end in stop for `delay` seconds."""
    return {
        "name": "crash",
        "runs": [
            {
                "match": "survive",
                "agents": {
                    "main": [
                        {"tool_calls": [WRITE]},
                        {
                            "tool_calls": [
                                ADD_LINE,
                                {"name": "task", "args": {"description": "dig"}},
                            ]
                        },
                        {"tool_calls": [{"name": "report", "args": {"said": "Survived."}}]},
                    ],
                    "general-purpose": [
                        {"tool_calls": [{"name": "ls", "args": {"path": "/"}}]},
                        {"text": "dug", "delay": delay},
                    ],
                },
            },
            {"match": "a moment", "agents": {"main": [{"text": "Done.", "delay": delay}]}},
            {
                "match": "ask first",
                "agents": {
                    "main": [
                        {"tool_calls": [{"name": "write_todos", "args": {"todos": []}}]},
                        {"text": "Was allowed."},
                    ]
                },
            },
        ],
    }


STUCK, GOES_ON = script(60), script(0)


@pytest.mark.parametrize(("transport", "mode"), [("http", "auto"), ("sse", "legacy")])
async def test_a_killed_run_is_finished_by_the_next_server_and_repeats_no_call(
    transport: str, mode: Era, tmp_path: Path
) -> None:
    setup = Setup(tmp_path, script=STUCK)
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target(transport), mode) as client:
                begun = await call(
                    client, "task", goal="survive", output_schema=REPORT, wait_seconds=0
                )
                call_given_up = await until_progress(
                    client, "general-purpose: thinking", 2, "wait", run_id=begun["run_id"]
                )
                assert call_given_up is None
                (thread,) = (await call(client, "threads"))["threads"]
            server.kill()
        assert (setup.root / "log.txt").read_text() == "line\nend\n"
        assert thread["last_run"]["status"] == "running"
        run_id, thread_id = thread["last_run"]["run_id"], thread["thread_id"]
        setup.script = GOES_ON
        with setup.serving() as server:
            async with connected(server.target(transport), mode) as client:
                done = await call(client, "wait", run_id=run_id)
                assert (done["status"], done["answer_data"]) == ("done", {"said": "Survived."})
                assert done["thread_id"] == thread_id
                assert (setup.root / "log.txt").read_text() == "line\nend\n"
                assert await _times_called(client, thread_id) == {
                    "write_file": 1,
                    "edit_file": 1,
                    "task": 1,
                }


async def _times_called(client: Client, thread_id: str) -> dict[str, int]:
    (content,) = (await client.read_resource(f"thread://{thread_id}/transcript")).contents
    text: str = content.text  # type: ignore[union-attr]
    return {
        tool: text.count(f"### Result of {tool}") for tool in ("write_file", "edit_file", "task")
    }


@pytest.mark.parametrize("mode", ERAS)
async def test_a_host_that_ends_its_stdio_server_finds_the_run_again(
    mode: Era, tmp_path: Path
) -> None:
    setup = Setup(tmp_path, script=STUCK)
    with anyio.fail_after(60):
        async with connected(setup.stdio(), mode) as client:
            begun = await call(
                client, "task", goal="a moment", wait_seconds=0, idempotency_key="host"
            )
            assert begun["status"] == "running"
        setup.script = GOES_ON
        async with connected(setup.stdio(), mode) as client:
            again = await call(client, "task", goal="a moment", idempotency_key="host")
            assert again["run_id"] == begun["run_id"]
            assert (again["status"], again["answer"]) == ("done", "Done.")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_survives_a_restart(mode: Era, tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=GOES_ON, flags=["--approve", "write_todos"])
    with anyio.fail_after(60):
        async with served(setup, mode) as client:
            asked = await call(client, "task", goal="ask first")
            assert asked["status"] == "needs_approval"

        async def approve(context: Any, params: ElicitRequestParams) -> ElicitResult:
            return ElicitResult(action="accept", content={"decision": "approve"})

        async with served(setup, mode, elicitation_callback=approve) as client:
            done = await call(client, "wait", run_id=asked["run_id"])
            assert (done["status"], done["answer"]) == ("done", "Was allowed.")


async def test_a_sealed_question_can_be_answered_after_a_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=GOES_ON, flags=["--approve", "write_todos"])
    goal = {"goal": "ask first"}

    async def unused(context: Any, params: ElicitRequestParams) -> ElicitResult:
        raise AssertionError("this test answers by hand")

    with anyio.fail_after(60):
        async with served(setup, "auto", elicitation_callback=unused) as client:
            asked = await client.session.call_tool("task", goal, allow_input_required=True)
            assert asked.result_type == "input_required" and asked.input_requests
        answer = ElicitResult(action="accept", content={"decision": "approve"})
        async with served(setup, "auto", elicitation_callback=unused) as client:
            done = await client.session.call_tool(
                "task",
                goal,
                input_responses=dict.fromkeys(asked.input_requests, answer),
                request_state=asked.request_state,
                allow_input_required=True,
            )
            assert done.structured_content["answer"] == "Was allowed."  # type: ignore[index]


async def test_two_servers_on_one_state_directory_leave_each_others_runs_alone(
    tmp_path: Path,
) -> None:
    setup = Setup(tmp_path, script=STUCK)
    with anyio.fail_after(60):
        async with (
            served(setup, "auto") as one,
            served(setup, "auto") as other,
        ):
            run_id = (await call(one, "task", goal="a moment", wait_seconds=0))["run_id"]
            # Long enough to look at it several times, and to take it over if it were left behind.
            assert (await call(other, "wait", run_id=run_id, wait_seconds=1.2))[
                "status"
            ] == "running"
            assert (await call(one, "wait", run_id=run_id, wait_seconds=0))["status"] == "running"


async def test_a_run_can_be_cancelled_through_another_server(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=STUCK)
    with anyio.fail_after(60):
        async with served(setup, "auto") as one, served(setup, "auto") as other:
            kept, ended = [
                await call(one, "task", goal="a moment", wait_seconds=0) for _ in range(2)
            ]
            began = anyio.current_time()
            cancelled = await call(other, "cancel", run_id=ended["run_id"])
            assert (cancelled["status"], cancelled["reason"]) == (
                "cancelled",
                "cancelled by the client",
            )
            assert anyio.current_time() - began < 5
            seen = await call(one, "wait", run_id=ended["run_id"], wait_seconds=0)
            assert seen["status"] == "cancelled"
            again = await call(other, "cancel", run_id=ended["run_id"])
            assert again["status"] == "cancelled"
            other_run = await call(one, "wait", run_id=kept["run_id"], wait_seconds=0)
            assert other_run["status"] == "running"
            assert not list(_requests(setup).glob("*"))
            # The thread is free, on either server.
            args = {"thread_id": ended["thread_id"], "path": "/"}
            for client in (one, other):
                assert not (await client.call_tool("ls", args)).is_error


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be stopped there")
@pytest.mark.parametrize("asker_dies_too", [False, True])
async def test_a_run_that_was_cancelled_while_its_server_died_is_not_started_again(
    asker_dies_too: bool, tmp_path: Path
) -> None:
    setup = Setup(tmp_path, script=STUCK)
    with anyio.fail_after(60):
        with setup.serving() as carrier, setup.serving() as asker:
            async with connected(carrier.target("http"), "auto") as client:
                run_id = (await call(client, "task", goal="a moment", wait_seconds=0))["run_id"]
            carrier.process.send_signal(signal.SIGSTOP)
            if asker_dies_too:
                await _ask_to_cancel_and_die(setup, asker, run_id)
                carrier.kill()
            else:
                async with (
                    connected(asker.target("http"), "auto") as client,
                    anyio.create_task_group() as group,
                ):
                    group.start_soon(_kill_once_asked, setup, carrier)
                    cancelled = await call(client, "cancel", run_id=run_id)
                    assert cancelled["status"] == "cancelled"
        setup.script = GOES_ON
        async with served(setup, "auto") as client:
            seen = await call(client, "wait", run_id=run_id)
            assert (seen["status"], seen["reason"]) == ("cancelled", "cancelled by the client")
            assert not list(_requests(setup).glob("*"))


def _requests(setup: Setup) -> Path:
    return setup.state / "cancel-requests"


async def _kill_once_asked(setup: Setup, server: HttpServer) -> None:
    while not list(_requests(setup).glob("*.json")):  # noqa: ASYNC110  another process writes it
        await anyio.sleep(0.02)
    server.kill()


async def _ask_to_cancel_and_die(setup: Setup, server: HttpServer, run_id: str) -> None:
    """Have a server store a request to cancel a run, and kill it while it waits for the end."""

    async def ask(scope: anyio.CancelScope) -> None:
        with scope, suppress(MCPError, ExceptionGroup, OSError):
            async with connected(server.target("http"), "auto") as client:
                await client.call_tool("cancel", {"run_id": run_id})

    async with anyio.create_task_group() as group:
        asking = anyio.CancelScope()
        group.start_soon(ask, asking)
        await _kill_once_asked(setup, server)
        asking.cancel()
