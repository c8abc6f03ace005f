"""Long calls as tasks: durable handles, in the shapes of both protocol eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import ElicitRequestParams, ElicitResult

from tests.e2e.conftest import SCRIPT
from tests.e2e.raw_client import raw_client
from tests.e2e.servers import HttpServer, Setup, call, connected, data_of
from tests.e2e.task_client import TaskChange, Tasks, ask, listen_to

pytestmark = pytest.mark.anyio

TRANSPORTS = ["http", "sse"]


async def a_person(context: Any, params: ElicitRequestParams) -> ElicitResult:
    """Approve; its presence declares that the client can ask."""
    return ElicitResult(action="accept", content={"decision": "approve"})


def approve(asked: dict[str, Any]) -> dict[str, Any]:
    accepted = {"action": "accept", "content": {"decision": "approve"}}
    return dict.fromkeys(asked, accepted)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_delegated_goal_is_a_task_whose_result_is_that_of_the_call(
    transport: str, shared: tuple[Setup, HttpServer]
) -> None:
    _, server = shared
    tasks = Tasks()
    with anyio.fail_after(30):
        target = server.target(transport)
        async with connected(target, "auto", extensions=[tasks]) as client:
            done = data_of(await client.call_tool("task", {"goal": "write a note"}))
            (created,) = tasks.created
            again = await call(client, "wait", run_id=created.task_id)
            quick = data_of(await client.call_tool("ls", {"path": "/"}))
    assert (done["status"], done["answer"]) == ("done", "The note is written.")
    assert done["run_id"] == created.task_id
    assert again["answer"] == done["answer"]
    assert "thread_id" in quick and len(tasks.created) == 1


async def test_a_task_asks_and_goes_on_when_it_is_answered(
    shared: tuple[Setup, HttpServer],
) -> None:
    setup, server = shared
    tasks = Tasks(approve)
    with anyio.fail_after(30):
        async with connected(
            server.target("http"), "auto", extensions=[tasks], elicitation_callback=a_person
        ) as client:
            done = data_of(await client.call_tool("task", {"goal": "change the note"}))
    assert "input_required" in tasks.seen
    assert done["answer"] == "The note is changed."
    assert (setup.root / "note.txt").read_text() == "second\n"


async def test_a_task_that_nobody_can_answer_ends_with_what_is_open(
    shared: tuple[Setup, HttpServer],
) -> None:
    _, server = shared
    with anyio.fail_after(30):
        async with connected(server.target("http"), "auto", extensions=[Tasks()]) as client:
            asked = data_of(await client.call_tool("task", {"goal": "change the note"}))
            assert asked["status"] == "needs_approval"
            done = await call(client, "reply", run_id=asked["run_id"], decision="approve")
    assert done["answer"] == "The note is changed."


async def test_a_task_can_be_cancelled_twice_and_then_says_so(
    shared: tuple[Setup, HttpServer],
) -> None:
    _, server = shared
    tasks = Tasks(stop_at="working")
    with anyio.fail_after(30):
        async with connected(server.target("http"), "auto", extensions=[tasks]) as client:
            await client.call_tool("task", {"goal": "take your time"})
            task_id = tasks.created[0].task_id
            for _ in range(2):
                await ask(client.session, "tasks/cancel", task_id)
            task = await ask(client.session, "tasks/get", task_id)
    assert task["status"] == "cancelled"
    assert task["statusMessage"] == "cancelled by the client"


async def test_who_has_not_declared_tasks_gets_none_and_may_not_ask_for_them(
    shared: tuple[Setup, HttpServer],
) -> None:
    _, server = shared
    with anyio.fail_after(30):
        async with connected(server.target("http"), "auto") as client:
            done = await call(client, "task", goal="write a note")
            assert done["status"] == "done"
            with pytest.raises(MCPError) as refused:
                await ask(client.session, "tasks/get", done["run_id"])
    assert refused.value.error.code == -32021


async def test_an_unknown_task_is_refused_with_the_nearest_ids(
    shared: tuple[Setup, HttpServer],
) -> None:
    _, server = shared
    with anyio.fail_after(30):
        async with connected(server.target("http"), "auto", extensions=[Tasks()]) as client:
            with pytest.raises(MCPError) as refused:
                await ask(client.session, "tasks/get", "run_0000")
    assert refused.value.error.code == -32602


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_who_listens_to_a_task_is_told_each_change_and_the_result(
    transport: str, shared: tuple[Setup, HttpServer]
) -> None:
    _, server = shared
    tasks = Tasks(stop_at="working")
    finished = anyio.Event()

    async def changed(change: TaskChange) -> None:
        if change.status == "completed":
            finished.set()

    tasks.changed = changed
    with anyio.fail_after(30):
        async with connected(server.target(transport), "auto", extensions=[tasks]) as client:
            await client.call_tool("task", {"goal": "a moment"})
            task_id = tasks.created[0].task_id
            async with anyio.create_task_group() as group:
                group.start_soon(listen_to, client, task_id)
                await finished.wait()
                group.cancel_scope.cancel()
    assert {one.taskId for one in tasks.changes} == {task_id}
    result = tasks.changes[-1].model_dump()["result"]
    assert result["structuredContent"]["answer"] == "That was a moment."


async def test_a_task_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    script = {
        "name": "tasks",
        "runs": [{"match": "endure", "agents": {"main": [{"text": "Endured.", "delay": 1.0}]}}],
    }
    setup = Setup(tmp_path, script=script)
    tasks = Tasks(stop_at="working")
    with anyio.fail_after(50):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto", extensions=[tasks]) as client:
                await client.call_tool("task", {"goal": "endure"})
                server.kill()
        task_id = tasks.created[0].task_id
        with setup.serving() as server:
            async with connected(server.target("http"), "auto", extensions=[Tasks()]) as client:
                await call(client, "wait", run_id=task_id)
                task = await ask(client.session, "tasks/get", task_id)
    assert task["result"]["structuredContent"]["answer"] == "Endured."


async def test_a_client_of_2025_asks_for_a_task_and_fetches_its_result(tmp_path: Path) -> None:
    setup = Setup(tmp_path, flags=["--approve", "edit_file"], script=SCRIPT)
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request)
        return {"action": "accept", "content": {"decision": "approve"}}

    with anyio.fail_after(40):
        async with raw_client(setup, answer) as client:
            call = {"name": "task", "arguments": {"goal": "change the note"}, "task": {}}
            made = (await client.result("tools/call", **call))["task"]
            assert made["status"] in ("working", "input_required") and made["ttl"] is None
            result = await client.result("tasks/result", taskId=made["taskId"])
            task = await client.result("tasks/get", taskId=made["taskId"])
            refused = await client.request("tasks/cancel", {"taskId": made["taskId"]})
    assert len(asked) == 1
    assert result["structuredContent"]["answer"] == "The note is changed."
    related = result["_meta"]["io.modelcontextprotocol/related-task"]
    assert related == {"taskId": made["taskId"]}
    assert task["status"] == "completed" and "result" not in task
    assert "completed already" in refused["error"]["message"]
    assert (setup.root / "note.txt").read_text() == "second\n"


async def test_a_client_of_2025_cannot_forge_the_state_of_a_call(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=SCRIPT)
    with anyio.fail_after(40):
        async with raw_client(setup) as client:
            call = {"name": "task", "arguments": {"goal": "write a note"}, "task": {}}
            for state in ('{"run_id": "run_x"}', "x"):
                refused = await client.request("tools/call", {**call, "requestState": state})
                assert "error" in refused, refused
            failed = await client.result(
                "tools/call", **{**call, "arguments": {"goal": "fail at once"}}
            )
            task_id = failed["task"]["taskId"]
            await client.result("tasks/result", taskId=task_id)
            ended = await client.result("tasks/get", taskId=task_id)
    assert ended["status"] == "failed"


async def test_a_client_of_2025_lists_and_cancels_tasks(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=SCRIPT)
    with anyio.fail_after(40):
        async with raw_client(setup) as client:
            call = {"name": "task", "arguments": {"goal": "take your time"}, "task": {}}
            made = (await client.result("tools/call", **call))["task"]
            listed = await client.result("tasks/list")
            ended = await client.result("tasks/cancel", taskId=made["taskId"])
            tools = {one["name"]: one for one in (await client.result("tools/list"))["tools"]}
            quick = await client.result("tools/call", name="ls", arguments={}, task={})
    assert made["taskId"] in [one["taskId"] for one in listed["tasks"]]
    assert ended["status"] == "cancelled"
    assert tools["task"]["execution"] == {"taskSupport": "optional"}
    assert "execution" not in tools["ls"]
    assert "content" in quick and "task" not in quick
