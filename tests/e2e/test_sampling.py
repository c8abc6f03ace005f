"""Without a key the client's model does the work, on every way there is, and for nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ImageContent,
    SamplingCapability,
)

from tests.e2e.client_model import ClientModel, calls, says
from tests.e2e.servers import ERAS, Era, Setup, call, connected, data_of, refused, text_of
from tests.e2e.task_client import Tasks
from tests.e2e.test_auth import House

pytestmark = pytest.mark.anyio

WAYS = [("http", "auto"), ("http", "legacy"), ("sse", "auto"), ("sse", "legacy")]
NOTE = ("write_file", {"path": "/note.txt", "content": "first\n"})
EDIT = ("edit_file", {"path": "/note.txt", "old_string": "first", "new_string": "second"})
LOOK = ("ls", {"path": "/"})


def subagent(what: str) -> tuple[str, dict[str, Any]]:
    return ("task", {"description": what, "subagent_type": "general-purpose"})


STORY = {
    "change the note": [
        calls(NOTE, text="First the note."),
        calls(subagent("dig here"), subagent("dig there")),
        calls(EDIT),
        says("Changed."),
    ],
    "dig": [calls(LOOK), says("dug")],
}


async def approving(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve"})


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server without a model or a key."""
    setup = Setup(
        tmp_path_factory.mktemp("lent"), flags=["--auth", "token", "--approve", "edit_file"]
    )
    with setup.serving() as server:
        yield House(setup, server)


@pytest.mark.parametrize(("transport", "mode"), WAYS)
async def test_a_run_with_subagents_and_an_approval_is_done_by_the_clients_model(
    transport: str, mode: Era, house: House
) -> None:
    model = ClientModel(STORY, dig=2)  # the subagents' first calls come together, or never
    with anyio.fail_after(60):
        async with house.client(
            "ann", mode=mode, transport=transport, elicitation_callback=approving, **model.options
        ) as client:
            result = await client.call_tool("task", {"goal": "change the note"})
    done = data_of(result)
    assert (done["status"], done["answer"]) == ("done", "Changed.")
    assert "8 model calls, tokens not reported." in text_of(result)
    assert (house.setup.root / "note.txt").read_text() == "second\n"
    assert len(model.asked) == 4 + 2 * 2
    lines = {(one["agent"], one["model"]): one["calls"] for one in done["usage"]["ledger"]}
    assert lines == {("main", "sampling:toy-1"): 4, ("main/general-purpose", "sampling:toy-1"): 4}
    first = model.asked[0]
    assert first.include_context is None and first.system_prompt
    assert {"write_file", "task"} <= {one.name for one in first.tools or ()}


@pytest.mark.parametrize("mode", ERAS)
async def test_over_stdio_the_next_server_asks_again_what_a_killed_one_had_asked(
    mode: Era, tmp_path: Path
) -> None:
    setup = Setup(tmp_path, flags=["--model", "sampling"])
    thinking = anyio.Event()

    async def forever() -> None:
        thinking.set()
        await anyio.sleep_forever()

    stuck = ClientModel({"change the note": [calls(NOTE), forever]})
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), mode, **stuck.options) as client:
            with suppress(Exception), anyio.CancelScope() as gone:
                started = await call(client, "task", goal="change the note", wait_seconds=0)

                async def die() -> None:
                    await thinking.wait()
                    server.kill()
                    gone.cancel()

                async with anyio.create_task_group() as group:
                    group.start_soon(die)
                    await call(client, "wait", run_id=started["run_id"])
    assert len(stuck.asked) == 2
    healthy = ClientModel({"change the note": [calls(NOTE), says("Survived.")]})
    with anyio.fail_after(60):
        async with connected(setup.stdio(), mode, **healthy.options) as client:
            done = await call(client, "wait", run_id=started["run_id"])
    assert (done["status"], done["answer"]) == ("done", "Survived.")
    (asked,) = healthy.asked  # what was answered before the crash is not asked again
    assert [one.role for one in asked.messages] == ["user", "assistant", "user"]
    assert asked.messages == stuck.asked[-1].messages


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_is_asked_while_a_subagent_waits_for_the_model(
    mode: Era, house: House
) -> None:
    story = {
        "do both": [calls(subagent("improve it"), subagent("dig")), says("Both done.")],
        "improve it": [calls(NOTE), calls(EDIT), says("improved")],
        "dig": [calls(LOOK), calls(LOOK), calls(LOOK), says("dug")],
    }
    model = ClientModel(story)
    with anyio.fail_after(60):
        options = {"elicitation_callback": approving, **model.options}
        async with house.client("ann", mode=mode, **options) as client:
            done = await call(client, "task", goal="do both")
        assert done["answer"] == "Both done."
        async with house.client("ann", mode=mode, **model.options) as client:
            waiting = await call(client, "task", goal="do both")
            assert waiting["status"] == "needs_approval" and len(waiting["pending"]) == 1
            done = await call(client, "reply", run_id=waiting["run_id"], decision="approve")
        assert done["answer"] == "Both done."


async def test_more_rounds_than_a_call_may_have_go_on_with_the_next_wait(house: House) -> None:
    turns = 12
    writes = [
        calls(("write_file", {"path": "/count.txt", "content": str(n)})) for n in range(turns)
    ]
    model = ClientModel({"count": [*writes, says("Counted.")]})
    with anyio.fail_after(60):
        async with house.client("ann", **model.options) as client:
            first = await call(client, "task", goal="count")
            assert first["status"] == "running"
            assert f'wait(run_id="{first["run_id"]}")' in first["next"]
            assert "sampling with tools" in first["next"]
            done = await call(client, "wait", run_id=first["run_id"])
    assert done["answer"] == "Counted."
    assert len(model.asked) == turns + 1


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_without_the_capability_is_told_and_another_one_goes_on(
    mode: Era, house: House
) -> None:
    model = ClientModel({"hello": [says("Hello.")]})
    no_tools = {**model.options, "sampling_capabilities": SamplingCapability()}
    with anyio.fail_after(60):
        async with house.client("ann", mode=mode) as client:
            why = await refused(client, "task", goal="hello")
            assert "No Anthropic API key: set ANTHROPIC_API_KEY" in why
            assert "client that offers its own model (sampling) works without a key." in why
        async with house.client("ann", mode=mode, **no_tools) as client:
            failed = await client.call_tool("task", {"goal": "hello"})
            run = failed.structured_content or {}
            assert run["status"] == "failed" and "not with tools" in run["reason"]
            assert not model.asked
        async with house.client("ann", mode=mode, **model.options) as client:
            done = await call(client, "reply", run_id=run["run_id"])
    assert done["answer"] == "Hello."


async def test_a_live_client_that_refuses_fails_the_run_which_can_go_on(house: House) -> None:
    refusal = ErrorData(code=-1, message="The user said no.")
    model = ClientModel({"hello": [refusal]})
    with anyio.fail_after(60):
        async with house.client("ann", mode="legacy", **model.options) as client:
            failed = (await client.call_tool("task", {"goal": "hello"})).structured_content or {}
            assert failed["status"] == "failed" and "The user said no." in failed["reason"]
        fine = ClientModel({"hello": [says("Hello.")]})
        async with house.client("ann", mode="legacy", **fine.options) as client:
            done = await call(client, "reply", run_id=failed["run_id"])
    assert done["answer"] == "Hello."


async def test_a_retrying_client_that_fails_leaves_the_call_for_its_next_wait(
    house: House,
) -> None:
    model = ClientModel({"hello": [ErrorData(code=-1, message="The user said no.")]})
    with anyio.fail_after(60):
        async with house.client("ann", **model.options) as client:
            run_id = (await call(client, "task", goal="hello", wait_seconds=0))["run_id"]
            with pytest.raises(MCPError, match="The user said no"):
                await client.call_tool("wait", {"run_id": run_id})
            asked = model.asked[0].messages
        fine = ClientModel({"hello": [says("Hello.")]})
        async with house.client("ann", **fine.options) as client:
            done = await call(client, "wait", run_id=run_id)
    assert done["answer"] == "Hello." and fine.asked[0].messages == asked


IMAGE = CreateMessageResultWithTools(
    role="assistant", content=ImageContent(data="aGk=", mime_type="image/png"), model="toy-1"
)
EMPTY = CreateMessageResultWithTools(
    role="assistant", content=[], model="toy-1", stop_reason="toolUse"
)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("rubbish", "says_what"), [(IMAGE, "'image'"), (EMPTY, "without a tool")])
async def test_an_answer_no_agent_can_use_is_not_kept(
    mode: Era, rubbish: CreateMessageResultWithTools, says_what: str, house: House
) -> None:
    model = ClientModel({"hello": [rubbish]})
    with anyio.fail_after(60):
        async with house.client("ann", mode=mode, **model.options) as client:
            failed = (await client.call_tool("task", {"goal": "hello"})).structured_content or {}
            assert failed["status"] == "failed" and says_what in failed["reason"]
        fine = ClientModel({"hello": [says("Hello.")]})
        async with house.client("ann", mode=mode, **fine.options) as client:
            done = await call(client, "reply", run_id=failed["run_id"])
    assert done["answer"] == "Hello." and len(fine.asked[0].messages) == 1


async def test_a_tool_that_does_not_exist_is_told_to_the_clients_model(house: House) -> None:
    model = ClientModel({"hello": [calls(("fly", {})), says("I cannot fly.")]})
    with anyio.fail_after(60):
        async with house.client("ann", **model.options) as client:
            assert (await call(client, "task", goal="hello"))["answer"] == "I cannot fly."
    result = model.asked[1].messages[-1].content_as_list[0]
    assert result.type == "tool_result" and result.is_error and "write_file" in str(result.content)


@pytest.mark.parametrize("mode", ERAS)
async def test_nobody_elses_model_is_asked_for_a_run(mode: Era, house: House) -> None:
    mine = ClientModel({"secret": [calls(LOOK), says("Kept.")]})
    others = ClientModel({"secret": [says("Stolen.")]})
    with anyio.fail_after(60):
        async with house.client("ann", mode=mode, **mine.options) as ann:
            run_id = (await call(ann, "task", goal="secret", wait_seconds=0))["run_id"]
            async with house.client("bob", mode=mode, **others.options) as bob:
                assert run_id in await refused(bob, "wait", run_id=run_id)
                assert (await call(bob, "threads"))["threads"] == []
            async with house.client("root", "admin", mode=mode, **others.options) as admin:
                seen = await call(admin, "wait", run_id=run_id, wait_seconds=0.2)
                assert seen["status"] == "running"
            done = await call(ann, "wait", run_id=run_id)
    assert done["answer"] == "Kept." and not others.asked


async def test_a_client_that_takes_tasks_is_asked_by_its_task(house: House) -> None:
    model = ClientModel(STORY)
    with anyio.fail_after(60):

        def answer(asked: dict[str, Any]) -> dict[str, Any]:
            answers: dict[str, Any] = {}
            for key, request in asked.items():
                if request["method"] == "elicitation/create":
                    answers[key] = {"action": "accept", "content": {"decision": "approve"}}
                    continue
                params = CreateMessageRequestParams.model_validate(request["params"])
                model.asked.append(params)
                answers[key] = model.reply(params).model_dump(
                    mode="json", by_alias=True, exclude_none=True
                )
            return answers

        tasks = Tasks(answer)
        async with house.client(
            "ann", extensions=[tasks], elicitation_callback=approving, **model.options
        ) as client:
            done = data_of(await client.call_tool("task", {"goal": "change the note"}))
    assert done["answer"] == "Changed." and "input_required" in tasks.seen
    assert done["run_id"] == tasks.created[0].task_id


async def test_a_client_that_cannot_lend_its_model_sees_a_task_at_work(house: House) -> None:
    model = ClientModel({"hello": [says("Hello.")]})
    with anyio.fail_after(60):
        async with house.client("ann", **model.options) as client:
            run_id = (await call(client, "task", goal="hello", wait_seconds=0))["run_id"]
            reply = await house.request("ann", "tasks/get", {"taskId": run_id})
            assert reply["result"]["status"] == "working"
            assert "smp_" not in json.dumps(reply)
            await call(client, "cancel", run_id=run_id)
            ended = await call(client, "wait", run_id=run_id)
    assert ended["status"] == "cancelled" and not model.asked
