"""Threads without care: one for each conversation, and names in place of ids."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner, Result
from mcp import Client, MCPError
from mcp.types import TextResourceContents

from deep_agent_mcp.server.cli.main import cli
from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import ERAS, Era, Setup, call, connected, refused, served, text_of
from tests.e2e.task_client import Tasks, ask
from tests.e2e.test_auth import House

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    setup = Setup(tmp_path_factory.mktemp("house"), ("--auth", "token"), script=SCRIPT)
    with setup.serving() as server:
        yield House(setup, server)


async def thread_of(client: Client, **args: Any) -> str:
    return (await call(client, "ls", **args))["thread_id"]


async def thread_in(client: Client, **meta: str) -> str:
    result = await client.call_tool("ls", {}, meta=meta)
    assert result.structured_content is not None
    return result.structured_content["thread_id"]


async def command(setup: Setup, *args: str, group: str = "threads") -> Result:
    words = [group, "--state-dir", str(setup.state), *args]
    return await anyio.to_thread.run_sync(CliRunner().invoke, cli, words)


@asynccontextmanager
async def two_clients(
    house: House, transport: str, mode: Era, place: Path
) -> AsyncIterator[tuple[Client, Client]]:
    if transport == "stdio":
        target = Setup(place, script=SCRIPT).stdio()
        async with connected(target, mode) as one, connected(target, mode) as other:
            yield one, other
    else:
        async with (
            house.client("ann", transport=transport, mode=mode) as one,
            house.client("ann", transport=transport, mode=mode) as other,
        ):
            yield one, other


@pytest.mark.parametrize(
    ("transport", "mode"),
    [("http", "legacy"), ("sse", "legacy"), ("stdio", "legacy"), ("stdio", "auto")],
)
async def test_calls_of_one_client_share_a_thread(
    transport: str, mode: Era, house: House, tmp_path: Path
) -> None:
    with anyio.fail_after(60):
        async with two_clients(house, transport, mode, tmp_path) as (one, other):
            thread_id = await thread_of(one)
            done = await call(one, "task", goal="write a note")
            assert (done["thread_id"], done["status"]) == (thread_id, "done")
            assert await thread_of(one) == thread_id != await thread_of(other)
            assert await thread_of(one, thread_id="new") not in ("new", thread_id)
            runs = (await call(one, "threads", thread_id=thread_id))["runs"]
            assert [run["goal"] for run in runs] == ["ls", "write a note", "ls"]


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_calls_that_nothing_connects_have_a_thread_each(transport: str, house: House) -> None:
    async with house.client("ann", transport=transport) as client:
        assert await thread_of(client) != await thread_of(client)


@pytest.mark.parametrize("key", ["vscode.conversationId", "threadId", "openai/session"])
async def test_conversations_are_told_apart_by_what_hosts_say_of_them(
    key: str, house: House
) -> None:
    async with house.client("ann") as one, house.client("ann", mode="legacy") as other:
        thread_id = await thread_in(one, **{key: "conversation 1"})
        assert await thread_in(other, **{key: "conversation 1"}) == thread_id
        assert await thread_in(one, **{key: "conversation 2"}) != thread_id
        assert await thread_of(other) != thread_id
    async with house.client("ben") as ben:
        assert await thread_in(ben, **{key: "conversation 1"}) != thread_id


async def test_calls_beside_a_run_have_threads_of_their_own(house: House) -> None:
    async with house.client("ann", mode="legacy") as client:
        running = await call(client, "task", goal="take your time", wait_seconds=0)
        second = await client.call_tool("task", {"goal": "write a note"})
        assert second.structured_content is not None
        assert second.structured_content["status"] == "done"
        assert second.structured_content["thread_id"] != running["thread_id"]
        listed = await client.call_tool("ls", {})
        said = f"This conversation's thread {running['thread_id']} is in use"
        assert said in text_of(second) and said in text_of(listed)
        assert said in json.dumps(second.structured_content["notes"])
        named = await refused(client, "ls", thread_id=running["thread_id"])
        assert running["run_id"] in named
        await call(client, "cancel", run_id=running["run_id"])
        assert await thread_of(client) == running["thread_id"]


async def test_a_task_says_why_it_has_a_thread_of_its_own(house: House) -> None:
    tasks, here = Tasks(stop_at="working"), {"threadId": "conversation 3"}
    async with house.client("ann", extensions=[tasks]) as client:
        for goal in ("take your time", "a moment"):
            await client.call_tool("task", {"goal": goal}, meta=here)
        first, second = tasks.created
        await ask(client.session, "tasks/cancel", first.task_id)
    assert "is in use, so this call has a new thread" in str(second.model_extra)
    assert "is in use" not in str(first.model_extra)


async def test_a_call_that_asks_says_why_it_has_a_thread_of_its_own(tmp_path: Path) -> None:
    setup = Setup(tmp_path, ("--approve", "write_file"), script=SCRIPT)
    note = {"path": "/a.txt", "content": "x"}
    async with connected(setup.stdio(), "legacy") as client:
        first = await call(client, "write_file", **note)
        second = await call(client, "write_file", **note)
    assert first["status"] == second["status"] == "needs_approval"
    assert "notes" not in first
    (said,) = second["notes"]
    assert f"thread {first['thread_id']} is in use" in said


async def test_a_name_is_one_thread_of_its_caller_in_every_tool(house: House) -> None:
    async with house.client("ann") as ann, house.client("ben", mode="legacy") as ben:
        done = await call(ann, "task", goal="write a note", thread_id="release-notes")
        thread_id = done["thread_id"]
        assert thread_id.endswith("-release-notes")
        assert await thread_of(ann, thread_id="Release-Notes") == thread_id
        assert await thread_of(ann, thread_id=thread_id) == thread_id
        shown = await call(ann, "threads", thread_id="release-notes")
        assert shown["thread_id"] == thread_id and len(shown["runs"]) == 3
        newest = shown["runs"][0]["run_id"]
        assert newest != done["run_id"]
        assert (await call(ann, "wait", run_id="release-notes"))["run_id"] == newest
        by_name, by_id = [
            (await ann.read_resource(f"thread://{one}/checkpoints")).contents[0]
            for one in ("release-notes", thread_id)
        ]
        assert isinstance(by_name, TextResourceContents)
        assert isinstance(by_id, TextResourceContents) and by_name.text == by_id.text
        back = await call(
            ann,
            "rewind",
            thread_id="release-notes",
            checkpoint_id=shown["checkpoints"][-1]["checkpoint_id"],
        )
        assert back["thread_id"] == thread_id
        said = await refused(ben, "threads", thread_id="release-notes")
        assert "There is no thread 'release-notes'" in said
        with pytest.raises(MCPError, match="There is no thread"):
            await ben.read_resource("thread://release-notes/checkpoints")
        assert await thread_of(ben, thread_id="release-notes") != thread_id
        assert "There is no thread" in await refused(ben, "ls", thread_id=thread_id)


@pytest.mark.parametrize("name", ["no such thing", "thr_0123", "run_1", "a" * 49, "a.b", "../x"])
async def test_what_is_neither_a_name_nor_an_id_begins_nothing(name: str, house: House) -> None:
    async with house.client("cat") as client:
        said = await refused(client, "ls", thread_id=name)
        assert f"There is no thread {name!r}" in said and "up to 48 letters" in said
        assert (await call(client, "threads"))["threads"] == []


async def test_names_outlive_the_server_and_the_command_line_knows_them(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=SCRIPT)
    for _ in range(2):
        async with served(setup, "auto") as client:
            await call(client, "task", goal="write a note", thread_id="release-notes")
            (thread,) = (await call(client, "threads"))["threads"]
            assert thread["thread_id"].endswith("-release-notes")
    assert (await command(setup, "show", "release-notes")).output.count("write a note") >= 2
    listed = await command(setup, "list", "--thread", "release-notes", group="runs")
    assert listed.output.count("write a note") == 2
    assert (await command(setup, "delete", "--yes", "Release-Notes")).exit_code == 0
    gone = await command(setup, "show", "release-notes")
    assert gone.exit_code == 1 and "'release-notes'" in gone.stderr


async def test_an_operator_says_whose_thread_of_a_name(house: House) -> None:
    for name in ("dan", "eva"):
        async with house.client(name) as client:
            await thread_of(client, thread_id=f"{name}-plans")
            await thread_of(client, thread_id="plans")
    assert (await command(house.setup, "show", "dan-plans")).exit_code == 0
    both = await command(house.setup, "show", "plans")
    assert both.exit_code == 1 and "2 users have a thread 'plans'" in both.stderr


async def test_an_id_of_the_operators_choice_goes_before_a_name(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=SCRIPT)
    async with connected(setup.stdio(), "auto") as client:
        thread_id = await thread_of(client)
    assert (await command(setup, "fork", thread_id, "--to", "plans")).exit_code == 0
    async with connected(setup.stdio(), "auto") as client:
        assert await thread_of(client, thread_id="plans") == "plans"


@pytest.mark.parametrize("mode", ERAS)
async def test_an_operator_gives_every_call_a_thread(mode: Era, tmp_path: Path) -> None:
    setup = Setup(tmp_path, ("--thread-per", "call"))
    async with connected(setup.stdio(), mode) as client:
        assert await thread_of(client) != await thread_of(client)
