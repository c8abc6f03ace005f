"""`reply` with a message, to a run that works or waits: steering."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import yaml
from mcp import Client

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.tools.tool import tool
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import Caller, current_caller
from deep_agent_mcp.server.runs.progress import describe
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.tools.replies import Reply, hand_over
from tests.e2e.servers import call, text_of
from tests.loop.models import Turns
from tests.loop.models import call as use
from tests.loop.models import says as turn
from tests.server.test_replies import carrying, never

pytestmark = pytest.mark.anyio

WRITES = {"path": "/a", "content": "b"}

SCRIPT = {
    "runs": [
        {
            "match": "write",
            "agents": {
                "main": [
                    {
                        "tool_calls": [
                            {"name": "write_file", "args": {"path": "/a", "content": "b"}}
                        ]
                    },
                    {"text": "Written."},
                ]
            },
        },
    ],
    "agents": {"*": [{"text": "One.", "delay": 2}, {"text": "Two."}]},
}


@asynccontextmanager
async def running(place: Path, **flags: object) -> AsyncGenerator[tuple[App, Client]]:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT), encoding="utf-8")
    given = {"state_dir": str(place / "state"), "model": f"scripted:{script}", **flags}
    with anyio.fail_after(60):
        async with create_app(load_settings(given, {})) as app, Client(app.server) as client:
            yield app, client


async def test_a_message_reaches_a_run_at_work_and_its_caller_learns_when(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        run = await call(client, "task", goal="go", wait_seconds=0)
        told = await call(client, "reply", run_id=run["run_id"], message="More!", wait_seconds=0)
        (message,) = told["messages"]
        assert message["status"] == "queued"
        assert told["notes"] == [
            f"message {message['id']} is queued: the run takes it before its next model call."
        ]
        seen = await call(client, "wait", run_id=run["run_id"], events_after=0)
        assert (seen["status"], seen["answer"]) == ("done", "Two.")
        assert "messages" not in seen
        kinds = ("message_queued", "message_taken")
        queued, taken = [one for one in seen["events"] if one.get("event") in kinds]
        assert queued["message_id"] == taken["message_id"] == message["id"]
        history = await call(client, "threads", thread_id=run["thread_id"])
        assert taken["checkpoint_id"] in str(history)


async def test_a_message_approves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, approve=("write_file",)) as (_, client):
        run = await call(client, "task", goal="write")
        assert run["status"] == "needs_approval"
        told = await call(client, "reply", run_id=run["run_id"], message="Yes, go ahead!")
        assert told["status"] == "needs_approval"
        assert [one["id"] for one in told["pending"]] == [run["pending"][0]["id"]]
        assert [one["status"] for one in told["messages"]] == ["queued"]
        shown = await call(client, "threads", thread_id=run["thread_id"])
        assert told["messages"][0]["id"] not in str(shown)
        done = await call(client, "reply", run_id=run["run_id"], decision="reject", message="No.")
        assert (done["status"], done["answer"]) == ("done", "Written.")
        raw = await client.read_resource(f"thread://{run['thread_id']}/transcript")
        assert "Yes, go ahead!" in raw.contents[0].text  # type: ignore[union-attr]


async def test_a_message_to_a_run_that_has_ended_goes_on_with_its_thread(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        run = await call(client, "task", goal="go")
        more = await call(client, "reply", run_id=run["run_id"], message="More!")
        assert more["thread_id"] == run["thread_id"]
        assert more["run_id"] != run["run_id"]


def held() -> tuple[Agent, MemoryCheckpointer, anyio.Event, anyio.Event]:
    reached, leave = anyio.Event(), anyio.Event()

    @tool
    async def stop() -> str:
        """Stop."""
        reached.set()
        await leave.wait()
        return "stopped"

    journal = MemoryCheckpointer()
    model = Turns(turn("", use("1", "stop")), turn("Done."))
    return create_agent(model, [stop], checkpointer=journal), journal, reached, leave


async def test_a_message_needs_the_right_to_delegate(tmp_path: Path) -> None:
    agent, journal, reached, leave = held()
    async with carrying(agent, journal, tmp_path) as runs:
        run_id = await runs.start("go")
        await reached.wait()
        token = current_caller.set(Caller("", frozenset({"read", "approve"})))
        try:
            with pytest.raises(HarnessError, match="scope 'delegate'"):
                await hand_over(runs, run_id, Reply("", "hello", {}), "none", never)
        finally:
            current_caller.reset(token)
        assert await agent.amessages(run_id) == []
        leave.set()
        await runs.wait(run_id, 10)


async def test_who_waits_hears_that_a_message_was_taken(tmp_path: Path) -> None:
    agent, journal, reached, leave = held()
    lines: list[str | None] = []
    async with carrying(agent, journal, tmp_path) as runs:
        run_id = await runs.start("go")
        await reached.wait()
        message = Reply("", "only the north", {})
        assert await hand_over(runs, run_id, message, "none", never) == run_id
        leave.set()
        await runs.wait(run_id, 10, lambda event: lines.append(describe(event)))
    assert "agent: reads your message: only the north" in lines


async def test_a_driven_call_takes_no_message(tmp_path: Path) -> None:
    async with running(tmp_path, approve=("write_file",)) as (_, client):
        run = await call(client, "write_file", path="/a", content="b")
        assert run["status"] == "needs_approval"
        told = await client.call_tool("reply", {"run_id": run["run_id"], "message": "Yes!"})
        assert "needs_approval" in text_of(told)
        assert "messages" not in (told.structured_content or {})


async def test_a_message_to_a_run_in_line_is_there_when_it_begins(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, client):
        first = await call(client, "task", goal="go", wait_seconds=0)
        thread = first["thread_id"]
        second = await call(
            client, "task", goal="later", thread_id=thread, on_busy="queue", wait_seconds=0
        )
        assert second["status"] == "queued"
        told = await call(
            client, "reply", run_id=second["run_id"], message="This first.", wait_seconds=0
        )
        assert [one["status"] for one in told["messages"]] == ["queued"]
        await call(client, "cancel", run_id=first["run_id"])
        done = await call(client, "wait", run_id=second["run_id"])
        assert (done["status"], done["answer"]) == ("done", "One.")
        messages = (await app.agent().get_state(thread)).values["messages"]
        assert [one.text for one in messages[-3:]] == ["later", "This first.", "One."]
