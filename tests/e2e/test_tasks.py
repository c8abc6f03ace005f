"""Long calls as tasks: durable handles, in the shapes of both protocol eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import CreateMessageRequestParams, ElicitRequestParams, ElicitResult

from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.server.sampling.messages import AGENT_META
from tests.e2e.client_model import ClientModel, calls, says
from tests.e2e.conftest import SCRIPT
from tests.e2e.raw_client import raw_client
from tests.e2e.servers import HttpServer, Setup, call, connected, data_of
from tests.e2e.task_client import TaskChange, Tasks, ask, listen_to
from tests.e2e.test_sampling import NOTE

pytestmark = pytest.mark.anyio

TRANSPORTS = ["http", "sse"]
RELATED = "io.modelcontextprotocol/related-task"


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
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
        async with connected(server.target(transport), "auto", extensions=[tasks]) as client:
            await client.call_tool("task", {"goal": "a moment"})
            task_id = tasks.created[0].task_id
            await tasks.hear_until("completed", client, task_id)
    assert {one.taskId for one in tasks.changes} == {task_id}
    result = tasks.changes[-1].model_dump()["result"]
    assert result["structuredContent"]["answer"] == "That was a moment."


async def test_who_listens_to_a_task_whose_thread_is_deleted_is_told(
    shared: tuple[Setup, HttpServer],
) -> None:
    setup, server = shared
    tasks = Tasks(stop_at="working")
    heard = anyio.Event()
    told: list[MCPError] = []

    async def changed(change: TaskChange) -> None:
        heard.set()

    tasks.changed = changed
    with anyio.fail_after(60):
        async with connected(server.target("http"), "auto", extensions=[tasks]) as client:
            await client.call_tool("task", {"goal": "take your time"})
            begun = await call(client, "ls")
            runs = (await call(client, "threads", thread_id=begun["thread_id"]))["runs"]
            ids = [tasks.created[0].task_id, runs[0]["run_id"]]

            async def listen() -> None:
                with pytest.raises(MCPError) as gone:
                    await listen_to(client, *ids)
                told.append(gone.value)

            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await heard.wait()
                async with SqliteCheckpointer(setup.state / "journal.sqlite3") as journal:
                    await journal.delete_thread(begun["thread_id"])
                await ask(client.session, "tasks/cancel", ids[0])
    assert "There is no run" in str(told[0]) and ids[1] in str(told[0])


async def bare(
    server: HttpServer, method: str, params: dict[str, Any], *, named: str = "", extension: str = ""
) -> dict[str, Any]:
    """Send one request of 2026-07-28 and return the error it is answered with, or the result."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}},
            "extensions": {extension or Tasks.identifier: {}},
        },
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": named} if named else {}),
    }
    async with httpx2.AsyncClient(timeout=60, verify=False) as http:
        text = (await http.post(server.listening["url"], json=body, headers=headers)).text
    data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    answer = json.loads(data[-1] if data else text)
    return answer.get("error") or answer["result"]


@pytest.mark.parametrize(
    ("asked", "extension", "code", "said"),
    [
        ({"taskIds": ["run_0000"]}, "another", -32021, Tasks.identifier),
        ({"taskIds": [f"run_{number}" for number in range(101)]}, "", -32602, "at most 100"),
        ({"taskIds": "run_0000"}, "", -32602, "must be a list"),
        ({"taskIds": [1]}, "", -32602, "must be a list"),
        (
            {"resourceSubscriptions": [f"skill://s/{number}" for number in range(1_001)]},
            "",
            -32602,
            "at most 1000 resources",
        ),
    ],
)
async def test_nobody_listens_to_what_they_may_not(
    asked: dict[str, Any], extension: str, code: int, said: str, shared: tuple[Setup, HttpServer]
) -> None:
    params = {"notifications": asked}
    with anyio.fail_after(60):
        error = await bare(shared[1], "subscriptions/listen", params, extension=extension)
    assert error["code"] == code and said in str(error)


async def test_a_header_that_names_another_task_or_none_is_refused(
    shared: tuple[Setup, HttpServer],
) -> None:
    with anyio.fail_after(60):
        for named in ("", "run_2"):
            error = await bare(shared[1], "tasks/get", {"taskId": "run_1"}, named=named)
            assert error["code"] == -32020 and "must be the taskId 'run_1'" in error["message"]
        error = await bare(shared[1], "tasks/get", {"taskId": "run_1"}, named="run_1")
    assert error["code"] == -32602


async def test_only_what_is_asked_is_answered_and_only_as_it_is_asked(
    shared: tuple[Setup, HttpServer],
) -> None:
    _, server = shared
    call = {"name": "task", "arguments": {"goal": "change the note"}}
    with anyio.fail_after(60):
        task_id = (await bare(server, "tools/call", call, named="task"))["taskId"]
        task: dict[str, Any] = {}
        while "inputRequests" not in task:
            task = await bare(server, "tasks/get", {"taskId": task_id}, named=task_id)
        (key,) = task["inputRequests"]

        async def update(responses: dict[str, Any]) -> dict[str, Any]:
            params = {"taskId": task_id, "inputResponses": responses}
            return await bare(server, "tasks/update", params, named=task_id)

        assert "code" not in await update({"something_else": "of no known shape"})
        odd = {"action": "accept", "content": {"decision": "perhaps"}}
        refused = [await update({key: one}) for one in (odd, "of no known shape")]
        assert [one["code"] for one in refused] == [-32602, -32602]
        still = await bare(server, "tasks/get", {"taskId": task_id}, named=task_id)
        assert still["status"] == "input_required"
        await update({key: {"action": "accept", "content": {"decision": "approve"}}})
        while task["status"] != "completed":
            task = await bare(server, "tasks/get", {"taskId": task_id}, named=task_id)
    assert task["result"]["structuredContent"]["answer"] == "The note is changed."


async def test_who_listens_but_cannot_be_asked_is_told_where_the_task_stands(
    shared: tuple[Setup, HttpServer],
) -> None:
    tasks = Tasks(stop_at="working")
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), "auto", extensions=[tasks]) as client:
            await client.call_tool("task", {"goal": "change the note"})
            await tasks.hear_until("completed", client, tasks.created[0].task_id)
    shown = tasks.changes[-1].model_dump()
    assert "inputRequests" not in shown
    assert shown["result"]["structuredContent"]["status"] == "needs_approval"


async def test_a_task_that_has_not_changed_is_not_sent_again(
    shared: tuple[Setup, HttpServer],
) -> None:
    _, server = shared
    tasks = Tasks(stop_at="working")
    with anyio.fail_after(60):
        async with connected(server.target("http"), "auto", extensions=[tasks]) as client:
            begun = await call(client, "ls")
            runs = (await call(client, "threads", thread_id=begun["thread_id"]))["runs"]
            given = {"goal": "take your time", "thread_id": begun["thread_id"]}
            await client.call_tool("task", given)
            ids = (runs[0]["run_id"], tasks.created[0].task_id)
            async with anyio.create_task_group() as group:
                group.start_soon(tasks.hear_until, "cancelled", client, *ids)
                while len(tasks.changes) < 2:  # noqa: ASYNC110  no event tells
                    await anyio.sleep(0.01)
                await call(client, "cancel", run_id=ids[1])
    assert [one.taskId for one in tasks.changes].count(ids[0]) == 1
    assert [one.taskId for one in tasks.changes].count(ids[1]) > 1


async def test_a_task_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    script = {
        "name": "tasks",
        "runs": [{"match": "endure", "agents": {"main": [{"text": "Endured.", "delay": 1.0}]}}],
    }
    setup = Setup(tmp_path, script=script)
    tasks = Tasks(stop_at="working")
    with anyio.fail_after(60):
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

    with anyio.fail_after(60):
        async with raw_client(setup, answer) as client:
            call = {"name": "task", "arguments": {"goal": "change the note"}, "task": {}}
            made = (await client.result("tools/call", **call))["task"]
            assert made["status"] in ("working", "input_required") and made["ttl"] is None
            wanted = {"taskId": made["taskId"], "_meta": {"progressToken": "p"}}
            result = await client.result("tasks/result", **wanted)
            task = await client.result("tasks/get", taskId=made["taskId"])
            refused = await client.request("tasks/cancel", {"taskId": made["taskId"]})
    assert result["structuredContent"]["answer"] == "The note is changed."
    (form,) = asked
    notices = [one for one in client.heard if one["method"] == "notifications/progress"]
    assert {one["params"]["progressToken"] for one in notices} == {"p"}
    for message in (result, form["params"], *(one["params"] for one in notices)):
        assert message["_meta"][RELATED] == {"taskId": made["taskId"]}
    assert task["status"] == "completed" and "result" not in task
    assert "completed already" in refused["error"]["message"]
    assert (setup.root / "note.txt").read_text() == "second\n"


async def test_a_client_of_2025_is_told_which_task_asks_its_model(tmp_path: Path) -> None:
    setup = Setup(tmp_path, flags=["--model", "sampling"])
    model = ClientModel({"write it": [calls(NOTE), says("Written.")]})
    asked: list[CreateMessageRequestParams] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(CreateMessageRequestParams.model_validate(request["params"]))
        return model.reply(asked[-1]).model_dump(by_alias=True, mode="json", exclude_none=True)

    with anyio.fail_after(60):
        async with raw_client(setup, answer, sampling={"tools": {}}) as client:
            call = {"name": "task", "arguments": {"goal": "write it"}, "task": {}}
            made = (await client.result("tools/call", **call))["task"]
            result = await client.result("tasks/result", taskId=made["taskId"])
    assert result["structuredContent"]["answer"] == "Written."
    assert len(asked) == 2
    for one in asked:
        assert one.meta == {RELATED: {"taskId": made["taskId"]}, AGENT_META: "main"}


async def test_a_client_of_2025_cannot_forge_the_state_of_a_call(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=SCRIPT)
    with anyio.fail_after(60):
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
    with anyio.fail_after(60):
        async with raw_client(setup) as client:
            call = {"name": "task", "arguments": {"goal": "take your time"}, "task": {}}
            made = (await client.result("tools/call", **call))["task"]
            listed = await client.result("tasks/list")
            further = await client.request("tasks/list", {"cursor": "2"})
            ended = await client.result("tasks/cancel", taskId=made["taskId"])
            tools = {one["name"]: one for one in (await client.result("tools/list"))["tools"]}
            quick = await client.result("tools/call", name="ls", arguments={}, task={})
    assert made["taskId"] in [one["taskId"] for one in listed["tasks"]]
    assert further["error"]["code"] == -32602 and "one page" in further["error"]["message"]
    assert ended["status"] == "cancelled"
    assert tools["task"]["execution"] == {"taskSupport": "optional"}
    assert "execution" not in tools["ls"]
    assert "content" in quick and "task" not in quick
