"""Who watches a part of a thread hears of that part, and not of others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from mcp import Client
from mcp.server.subscriptions import ResourceUpdated, ServerEvent

from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call

pytestmark = pytest.mark.anyio

TODOS = {"name": "write_todos", "args": {"todos": [{"content": "one"}, {"content": "two"}]}}
DONE = {
    "name": "write_todos",
    "args": {"todos": [{"id": "t1", "status": "completed"}], "merge": True},
}
WRITE = {"name": "write_file", "args": {"path": "/a/note.txt", "content": "x"}}
SCRIPT = {
    "runs": [
        {
            "match": "plan",
            "agents": {"main": [{"tool_calls": [TODOS]}, {"tool_calls": [DONE]}, {"text": "Ok."}]},
        },
        {"match": "write", "agents": {"main": [{"tool_calls": [WRITE]}, {"text": "Ok."}]}},
        {
            "match": "hand on",
            "agents": {
                "main": [
                    {"tool_calls": [{"name": "task", "args": {"description": "do it"}}]},
                    {"text": "Ok."},
                ],
                "general-purpose": [
                    {"tool_calls": [TODOS]},
                    {"tool_calls": [WRITE]},
                    {"text": "."},
                ],
            },
        },
    ]
}
TALK = {"transcript", "checkpoints", "steps"}


class Notices:
    """What has been announced of threads, by part."""

    def __init__(self) -> None:
        self.parts: set[str] = set()
        self._last = anyio.Event()

    def hear(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated) and event.uri.startswith("thread://"):
            thread_id, _, part = event.uri.partition("://")[2].partition("/")
            if (thread_id, part) == ("thr_last", "todos"):
                self._last.set()
            elif part:
                self.parts.add(part)

    async def taken(self, app: App) -> set[str]:
        """Return what was announced since the last time: they come in order, so up to a mark."""
        self._last = anyio.Event()
        app.announcements.thread_changed("thr_last", parts=["todos"])
        await self._last.wait()
        found, self.parts = self.parts, set()
        return found


@asynccontextmanager
async def watched(place: Path, *, root: bool) -> AsyncGenerator[tuple[App, Client, Notices]]:
    script = place / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT, sort_keys=False), encoding="utf-8")
    given: dict[str, Any] = {"state_dir": str(place / "state"), "model": f"scripted:{script}"}
    if root:
        (place / "root").mkdir()
        given["root"] = str(place / "root")
    with anyio.fail_after(60):
        async with create_app(load_settings(given, {})) as app, Client(app.server) as client:
            notices = Notices()
            app.announcements.bus.subscribe(notices.hear)
            yield app, client, notices


FILES = {"files", "files/a/note.txt"}


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize(
    ("tool", "args", "parts"),
    [
        ("write_todos", TODOS["args"], {"todos", *TALK}),
        ("write_file", WRITE["args"], {*FILES, *TALK}),
        ("ls", {"path": "/"}, TALK),
        ("grep", {"pattern": "x"}, TALK),
        ("read_file", {"path": "/none"}, TALK),
        ("task", {"goal": "plan it"}, {"todos", *TALK}),
        ("task", {"goal": "write it"}, {*FILES, *TALK}),
        # The list of a subagent is its own; the files are the thread's.
        ("task", {"goal": "hand on"}, {*FILES, *TALK}),
    ],
)
async def test_only_what_has_changed_is_announced(
    tool: str, args: dict[str, Any], parts: set[str], root: bool, tmp_path: Path
) -> None:
    async with watched(tmp_path, root=root) as (app, client, notices):
        thread_id = (await call(client, "ls"))["thread_id"]
        await notices.taken(app)
        await client.call_tool(tool, {**args, "thread_id": thread_id})
        assert await notices.taken(app) - {"writing"} == parts


async def test_putting_a_thread_back_announces_all_of_it(tmp_path: Path) -> None:
    async with watched(tmp_path, root=True) as (app, client, notices):
        written = await call(client, "write_file", **WRITE["args"])
        thread_id = written["thread_id"]
        (*_, first) = (await call(client, "threads", thread_id=thread_id))["checkpoints"]
        await notices.taken(app)
        await call(client, "rewind", thread_id=thread_id, checkpoint_id=first["checkpoint_id"])
        assert await notices.taken(app) == {"todos", *FILES, *TALK}


async def test_what_changes_no_resource_of_the_thread_announces_none(tmp_path: Path) -> None:
    async with watched(tmp_path, root=False) as (app, client, notices):
        begun = await call(client, "task", goal="plan it")
        await notices.taken(app)
        for tool in ("wait", "cancel"):
            await call(client, tool, run_id=begun["run_id"])
        assert await notices.taken(app) == set()
        app.announcements.thread_changed(begun["thread_id"])
        assert await notices.taken(app) == set()
