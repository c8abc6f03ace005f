"""The whole way of a user, over every transport, as a client of either era."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import PromptReference, ResourceTemplateReference

from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import (
    ERAS,
    TRANSPORTS,
    Era,
    HttpServer,
    Setup,
    call,
    connected,
    refused,
    text_of,
)

pytestmark = pytest.mark.anyio

TOOLS = [
    *("write_todos", "ls", "read_file", "write_file", "edit_file", "glob", "grep", "skill"),
    *("task", "wait", "reply", "cancel", "threads", "rewind"),
]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_client_lists_drives_and_delegates(
    transport: str, mode: Era, shared: tuple[Setup, HttpServer], tmp_path: Path
) -> None:
    setup, server = shared
    if transport == "stdio":
        setup = Setup(tmp_path, script=SCRIPT)
        setup.skill("greeting", "How to greet people.", "Say hello first.")
        target = setup.stdio()
    else:
        target = server.target(transport)
    with anyio.fail_after(60):
        async with connected(target, mode) as client:
            expected = "2025-11-25" if mode == "legacy" else "2026-07-28"
            assert client.protocol_version == expected
            await _lists(client)
            thread_id = await _drives(client)
            await _delegates(client, thread_id)
            await _reads(client, thread_id)


async def _lists(client: Client) -> None:
    assert client.instructions is not None
    assert len(client.instructions) <= 2_000
    capabilities = client.server_capabilities
    assert capabilities.resources is not None and capabilities.resources.subscribe
    assert capabilities.prompts is not None and capabilities.prompts.list_changed
    extensions = dict(capabilities.extensions or {})
    assert extensions.pop("io.modelcontextprotocol/ui") == {}
    newer = {
        "io.modelcontextprotocol/skills": {"directoryRead": True},
        "io.modelcontextprotocol/tasks": {},
    }
    modern = client.protocol_version == "2026-07-28"
    assert extensions == (newer if modern else {})
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == TOOLS
    for tool in tools:
        hints = tool.annotations
        assert hints is not None and hints.title and tool.description
        stated = (
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        )
        assert None not in stated, tool.name
        schema = json.dumps(tool.input_schema)
        assert "$ref" not in schema and "anyOf" not in schema, tool.name
    loaded = [tool.name for tool in tools if (tool.meta or {}).get("anthropic/alwaysLoad")]
    assert loaded == ["write_todos", "skill", "task", "wait"]


async def _drives(client: Client) -> str:
    todos = [{"content": "begin", "status": "completed"}, {"content": "end"}]
    written = await client.call_tool("write_todos", {"todos": todos})
    assert written.structured_content is not None
    thread_id: str = written.structured_content["thread_id"]
    assert thread_id in text_of(written) and "[x] begin" in text_of(written)
    assert [one["content"] for one in written.structured_content["todos"]] == ["begin", "end"]
    wrote = await call(
        client, "write_file", path="/drive.txt", content="alpha\nbeta\n", thread_id=thread_id
    )
    assert wrote["thread_id"] == thread_id and wrote["path"] == "/drive.txt"
    found = await call(client, "grep", pattern="be+ta", thread_id=thread_id)
    assert "/drive.txt" in json.dumps(found)
    document = await client.call_tool("read_file", {"path": "/drive.txt", "thread_id": thread_id})
    assert document.structured_content is None
    assert "alpha\nbeta" in text_of(document) and thread_id in text_of(document)
    skill = await client.call_tool("skill", {"name": "greeting", "thread_id": thread_id})
    assert "Say hello first." in text_of(skill)
    return thread_id


async def _delegates(client: Client, thread_id: str) -> None:
    progress: list[tuple[float, str | None]] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        progress.append((done, message))

    result = await client.call_tool(
        "task", {"goal": "write a note", "thread_id": thread_id}, progress_callback=hear
    )
    assert result.structured_content is not None
    data = result.structured_content
    assert (data["status"], data["answer"]) == ("done", "The note is written.")
    assert data["thread_id"] == thread_id
    for fact in (data["run_id"], data["answer"], data["next"], "done"):
        assert fact in text_of(result)
    messages = [message for _, message in progress]
    assert "main: thinking" in messages
    assert "main: write_file /note.txt" in messages
    assert all(before < after for (before, _), (after, _) in pairwise(progress))
    again = await call(client, "wait", run_id=data["run_id"])
    assert again == data

    async def hear_more(done: float, total: float | None, message: str | None) -> None:
        progress.append((done, message))

    nested = await client.call_tool("task", {"goal": "use a subagent"}, progress_callback=hear_more)
    assert "nothing here" in text_of(nested)
    messages = [message for _, message in progress]
    assert "main \u203a general-purpose: ls /" in messages, messages
    direct = await call(client, "task", goal="look around", agent="general-purpose")
    assert direct["answer"].startswith("nothing here")


async def _reads(client: Client, thread_id: str) -> None:
    first = await client.list_resources()
    uris = [one.uri for one in first.resources]
    assert "threads://recent" in uris and "skill://greeting/SKILL.md" in uris
    assert first.next_cursor is not None
    second = await client.list_resources(cursor=first.next_cursor)
    assert f"thread://{thread_id}/todos" in [one.uri for one in second.resources]
    templates = (await client.list_resource_templates()).resource_templates
    assert "thread://{thread_id}/files/{+path}" in [one.uri_template for one in templates]

    async def read(uri: str) -> str:
        (content,) = (await client.read_resource(uri)).contents
        assert hasattr(content, "text"), uri
        return content.text

    assert [one["content"] for one in json.loads(await read(f"thread://{thread_id}/todos"))]
    assert await read(f"thread://{thread_id}/files/drive.txt") == "alpha\nbeta\n"
    assert "write a note" in await read(f"thread://{thread_id}/transcript")
    assert json.loads(await read(f"thread://{thread_id}/checkpoints"))
    assert thread_id in await read("threads://recent")
    assert "Say hello first." in await read("skill://greeting/SKILL.md")
    for uri in (f"thread://{thread_id}/files/none", "thread://thr_no/todos", "skill://no/SKILL.md"):
        with pytest.raises(MCPError) as missing:
            await client.read_resource(uri)
        assert missing.value.code in (-32602, -32002)
        assert missing.value.error.data == {"uri": uri}
    assert "greeting" in [one.name for one in (await client.list_prompts()).prompts]
    prompt = await client.get_prompt("greeting", {"goal": "Greet Ada."})
    assert "Say hello first." in prompt.messages[0].content.text  # type: ignore[union-attr]
    assert "Greet Ada." in prompt.messages[0].content.text  # type: ignore[union-attr]
    template = ResourceTemplateReference(type="ref/resource", uri="thread://{thread_id}/todos")
    found = await client.complete(template, {"name": "thread_id", "value": thread_id[:8]})
    assert thread_id in found.completion.values
    nothing = await client.complete(
        PromptReference(type="ref/prompt", name="no such"), {"name": "x", "value": "y"}
    )
    assert nothing.completion.values == []


@pytest.mark.parametrize("mode", ERAS)
async def test_a_long_run_is_a_status_that_can_be_waited_for_and_cancelled(
    mode: Era, shared: tuple[Setup, HttpServer]
) -> None:
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), mode) as client:
            begun = await call(client, "task", goal="take your time", wait_seconds=0.2)
            run_id, thread_id = begun["run_id"], begun["thread_id"]
            assert begun["status"] == "running" and f'wait(run_id="{run_id}")' in begun["next"]
            assert (await call(client, "wait", run_id=run_id, wait_seconds=0))["status"] == (
                "running"
            )
            busy = await refused(client, "ls", thread_id=thread_id)
            assert run_id in busy and "nothing was done" in busy
            assert "is working" in await refused(client, "task", goal="more", thread_id=thread_id)
            told = await call(client, "reply", run_id=run_id, message="hi", wait_seconds=0)
            assert (told["status"], told["messages"][0]["status"]) == ("running", "queued")
            ended = await call(client, "cancel", run_id=run_id)
            assert (ended["status"], ended["reason"]) == ("cancelled", "cancelled by the client")
            assert await call(client, "cancel", run_id=run_id) == ended
            assert "entries" in await call(client, "ls", thread_id=thread_id)


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("mode", ERAS)
async def test_giving_up_on_a_call_does_not_end_its_run(
    mode: Era, transport: str, shared: tuple[Setup, HttpServer]
) -> None:
    with anyio.fail_after(60):
        async with connected(shared[1].target(transport), mode) as client:
            key = f"given-up-{mode}-{transport}"
            goal = {"goal": "a moment", "idempotency_key": key}
            with pytest.raises(MCPError, match="timed out"):
                await client.call_tool("task", goal, read_timeout_seconds=0.1)
            found = await call(client, "task", **goal)
            assert (found["status"], found["answer"]) == ("done", "That was a moment.")
            runs = (await call(client, "threads", thread_id=found["thread_id"]))["runs"]
            assert [run["run_id"] for run in runs] == [found["run_id"]]


async def test_an_answer_that_is_too_long_comes_in_pages(
    shared: tuple[Setup, HttpServer],
) -> None:
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), "auto") as client:
            page = await call(client, "task", goal="say much")
            answer = page["answer"]
            while "answer_offset=" in page["next"]:
                assert len(json.dumps(page)) < 10_000
                page = await call(client, "wait", run_id=page["run_id"], answer_offset=len(answer))
                answer += page["answer"]
            assert answer == "0123456789" * 2_000


async def test_rewinding_puts_files_on_disk_back(shared: tuple[Setup, HttpServer]) -> None:
    setup, server = shared
    file = setup.root / "rewound.txt"
    with anyio.fail_after(60):
        async with connected(server.target("http"), "auto") as client:
            one = await call(client, "write_file", path="/rewound.txt", content="one")
            thread_id = one["thread_id"]
            history = (await call(client, "threads", thread_id=thread_id))["checkpoints"]
            target = history[0]["checkpoint_id"]
            await call(
                client, "write_file", path="/rewound.txt", content="two", thread_id=thread_id
            )
            file.write_text("somebody else's")
            where = {"thread_id": thread_id, "checkpoint_id": target}
            assert "/rewound.txt" in await refused(client, "rewind", **where)
            assert file.read_text() == "somebody else's"
            rewound = await call(client, "rewind", **where, force=True)
            assert rewound["files_put_back"] == ["/rewound.txt"] and file.read_text() == "one"
            assert "no checkpoint" in await refused(
                client, "rewind", thread_id=thread_id, checkpoint_id="ckpt_none"
            )
