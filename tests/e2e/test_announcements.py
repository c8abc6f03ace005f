"""Clients of either era hear of changes on every transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPDeprecationWarning
from mcp.client.subscriptions import PromptsListChanged, ResourceUpdated
from mcp.types import PromptListChangedNotification, ResourceUpdatedNotification

from tests.e2e.servers import ERAS, Era, HttpServer, Setup, call, connected, data_of, text_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_saved_skill_is_announced_to_clients_of_either_era(
    transport: str, shared: tuple[Setup, HttpServer]
) -> None:
    setup, server = shared
    heard = anyio.Event()

    async def handler(message: Any) -> None:
        if isinstance(message, PromptListChangedNotification):
            heard.set()

    with anyio.fail_after(60):
        async with (
            connected(server.target(transport), "legacy", message_handler=handler) as legacy,
            connected(server.target(transport), "auto") as modern,
            modern.listen(prompts_list_changed=True) as changes,
        ):
            setup.skill(f"brand-new-{transport}", "Something new.", "Try it.")
            async for event in changes:
                if isinstance(event, PromptsListChanged):
                    break
            await heard.wait()
            for client in (legacy, modern):
                names = [one.name for one in (await client.list_prompts()).prompts]
                assert f"brand-new-{transport}" in names
                shown = await client.call_tool("skill", {"name": f"brand-new-{transport}"})
                assert "Try it." in text_of(shown)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_todos_and_files_of_a_thread_are_announced_to_those_who_watch_them(
    transport: str, shared: tuple[Setup, HttpServer]
) -> None:
    _, server = shared
    updated: set[str] = set()
    complete = anyio.Event()
    with anyio.fail_after(60):
        async with connected(server.target(transport), "auto") as modern:
            thread_id = (await call(modern, "ls"))["thread_id"]
            todos = f"thread://{thread_id}/todos"
            file = f"thread://{thread_id}/files/watched.txt"

            async def handler(message: Any) -> None:
                if isinstance(message, ResourceUpdatedNotification):
                    updated.add(str(message.params.uri))
                    if {todos, file} <= updated:
                        complete.set()

            target = server.target(transport)
            async with (
                connected(target, "legacy", message_handler=handler) as legacy,
                modern.listen(resource_subscriptions=[todos, file]) as changes,
            ):
                with pytest.warns(MCPDeprecationWarning):
                    for uri in (todos, file):
                        await legacy.subscribe_resource(uri)
                await call(
                    modern, "write_file", path="/watched.txt", content="x", thread_id=thread_id
                )
                await call(modern, "write_todos", todos=[{"content": "x"}], thread_id=thread_id)
                wanted = {todos, file}
                async for event in changes:
                    if isinstance(event, ResourceUpdated):
                        wanted.discard(event.uri)
                    if not wanted:
                        break
                await complete.wait()
                with pytest.warns(MCPDeprecationWarning):
                    await legacy.unsubscribe_resource(todos)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_waits_is_told_how_many_todos_are_done(mode: Era, tmp_path: Path) -> None:
    plan = {"name": "write_todos", "args": {"todos": [{"content": "one"}, {"content": "two"}]}}
    done = {"todos": [{"id": "t1", "status": "completed"}], "merge": True}
    turns = [
        {"tool_calls": [plan]},
        {"tool_calls": [{"name": "write_todos", "args": done}]},
        {"text": "One is done."},
    ]
    runs = [
        {"match": "plan", "agents": {"main": turns}},
        {"match": "go on", "agents": {"main": [{"text": "Later."}]}},
    ]
    heard: list[tuple[float, float | None]] = []
    news = anyio.Event()

    async def hear(value: float, total: float | None, message: str | None) -> None:
        heard.append((value, total))
        news.set()

    with anyio.fail_after(60):
        async with connected(Setup(tmp_path, script={"runs": runs}).stdio(), mode) as client:
            planned = data_of(
                await client.call_tool("task", {"goal": "plan it"}, progress_callback=hear)
            )
            totals = [total for _, total in heard]
            assert totals == sorted(totals, key=bool) and {*totals} <= {None, 2}
            assert totals[-1] == 2
            assert 1 <= heard[-1][0] < 2
            assert [value for value, _ in heard] == sorted({value for value, _ in heard})
            heard.clear()
            news = anyio.Event()
            more = {"goal": "go on", "thread_id": planned["thread_id"]}
            await client.call_tool("task", more, progress_callback=hear)
            await news.wait()  # a client may hand on the result first
            assert {total for _, total in heard} == {2}  # the list is the thread's
