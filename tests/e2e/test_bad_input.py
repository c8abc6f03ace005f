"""Whatever comes in, the answer is a clear error and the server goes on serving."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from tests.e2e.servers import (
    ERAS,
    Era,
    HttpServer,
    Setup,
    call,
    connected,
    refused,
    served,
    text_of,
)
from tests.fake_anthropic.server import FakeAnthropic
from tests.fork_server import run

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ERAS)
async def test_wrong_calls_are_answered_with_what_to_do_instead(
    mode: Era, shared: tuple[Setup, HttpServer]
) -> None:
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), mode) as client:
            known = await call(client, "ls")

            async def error(tool: str, **args: Any) -> str:
                text = await refused(client, tool, **args)
                assert (await client.call_tool("ls", {})).is_error is not True
                return text

            assert "write_file" in await error("write_fil")
            for tool, args in (
                ("ls", {"path": 3}),
                ("write_todos", {"todos": "all of it"}),
                ("task", {"goal": ""}),
                ("task", {"goal": "x", "wait_seconds": "soon"}),
                ("wait", {}),
                ("threads", {"limit": 1_000}),
                ("read_file", {"path": "/x", "pathh": "/y"}),
            ):
                said = await error(tool, **args)
                assert "Expected arguments" in said or " should " in said, tool
            assert "thread_id must be a string" in await error("ls", thread_id=["x"])
            near = await error("ls", thread_id=known["thread_id"][:-1])
            assert known["thread_id"] in near and "Nothing was done" in near
            for tool in ("task", "threads", "rewind"):
                args = {"goal": "x"} if tool == "task" else {}
                args |= {"checkpoint_id": "ckpt_x"} if tool == "rewind" else {}
                assert "no thread 'thr_x'" in await error(tool, thread_id="thr_x", **args)
            for tool in ("wait", "reply", "cancel"):
                assert "no run 'run_x'" in await error(tool, run_id="run_x")
            assert "general-purpose" in await error("task", goal="x", agent="nobody")
            assert "next_before" in await error("threads", before="yesterday")
            with pytest.raises(MCPError, match="no prompt"):
                await client.get_prompt("nope")
            with pytest.raises(MCPError, match="cursor"):
                await client.list_resources(cursor="???")


@pytest.mark.parametrize("mode", ERAS)
async def test_no_path_leads_out_of_the_root(mode: Era, shared: tuple[Setup, HttpServer]) -> None:
    setup, server = shared
    outside = setup.place / "secret.txt"
    outside.write_text("secret")
    (setup.root / "link.txt").unlink(missing_ok=True)
    (setup.root / "link.txt").symlink_to(outside)
    (setup.root / "linked").unlink(missing_ok=True)
    (setup.root / "linked").symlink_to(setup.place)
    with anyio.fail_after(60):
        async with connected(server.target("http"), mode) as client:
            thread_id = (await call(client, "ls"))["thread_id"]
            for path in ("../secret.txt", "/link.txt", "/linked/secret.txt", "a/../.."):
                where = {"path": path, "thread_id": thread_id}
                await refused(client, "read_file", **where)
                await refused(client, "write_file", content="taken", **where)
            # An absolute path counts from the root of the files, so this one is not there.
            text = await refused(client, "read_file", path=str(outside), thread_id=thread_id)
            assert "no such file" in text
            assert outside.read_text() == "secret"
            with pytest.raises(MCPError):
                await client.read_resource(f"thread://{thread_id}/files/link.txt")
            with pytest.raises(MCPError):
                await client.read_resource("skill://greeting/../broken/SKILL.md")


async def test_a_broken_skill_is_named_and_the_others_work(
    shared: tuple[Setup, HttpServer],
) -> None:
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), "auto") as client:
            listed = text_of(await client.call_tool("skill", {}))
            assert "greeting" in listed
            assert str(shared[0].skills / "broken" / "SKILL.md") in listed
            assert "broken" not in [one.name for one in (await client.list_prompts()).prompts]


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    with anyio.fail_after(60):
        async with served(setup, "auto") as client:
            await call(client, "ls")
        (file,) = setup.state.glob("*.sqlite3")
        with sqlite3.connect(file) as database:
            database.execute("PRAGMA user_version = 9999")
        database.close()
    ended = run(setup.command("stdio"), setup.environment(), setup.place)
    assert ended.returncode == 2
    message = ended.stderr
    assert "newer" in message and str(file) in message and "Traceback" not in message


async def test_without_an_api_key_only_delegation_fails_and_says_what_to_set(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(60), Setup(tmp_path).serving() as server:
        for mode in ERAS:
            async with connected(server.target("http"), mode) as client:
                thread_id = (await call(client, "write_file", path="/a", content="b"))["thread_id"]
                goal = {"goal": "anything", "thread_id": thread_id}
                failed = await client.call_tool("task", goal)
                assert failed.is_error and "ANTHROPIC_API_KEY" in text_of(failed)
                assert failed.structured_content is not None
                assert failed.structured_content["status"] == "failed"
                await call(client, "ls", thread_id=thread_id)


async def test_a_model_that_the_provider_does_not_know_only_fails_delegation(
    tmp_path: Path,
) -> None:
    async with FakeAnthropic([{"match": "anything", "status": 404}]) as api:
        env = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "test"}
        setup = Setup(tmp_path, flags=["--model", "anthropic:nothing"], env=env)
        with anyio.fail_after(60):
            async with served(setup, "auto") as client:
                failed = await client.call_tool("task", {"goal": "anything"})
                assert failed.is_error and "404" in text_of(failed)
                await call(client, "ls")


async def test_a_failing_provider_fails_the_run_which_can_go_on_later(tmp_path: Path) -> None:
    at_once = {"retry-after": "0"}
    failures = [
        *[{"match": "limited", "status": 429, "headers": at_once} for _ in range(3)],
        *[{"match": "overloaded", "status": 529, "headers": at_once} for _ in range(3)],
        *[{"match": "broken", "status": 500, "headers": at_once} for _ in range(3)],
        *[{"match": "hang up", "text": "never whole", "hang_up_after": 4} for _ in range(3)],
    ]
    async with FakeAnthropic(failures) as api:
        env = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "test"}
        setup = Setup(tmp_path, flags=["--model-patience", "0"], env=env)
        with anyio.fail_after(60):
            async with served(setup, "auto") as client:
                for goal, word in (
                    ("limited", "429"),
                    ("overloaded", "529"),
                    ("broken", "500"),
                    ("hang up", "connection"),
                ):
                    failed = await client.call_tool("task", {"goal": goal})
                    assert failed.is_error and word in text_of(failed), text_of(failed)
                    assert failed.structured_content is not None
                    api.answers.clear() if goal == "hang up" else None
                    api.add({"match": goal, "text": f"Fine after {goal}."})
                    run_id = failed.structured_content["run_id"]
                    again = await call(client, "reply", run_id=run_id)
                    assert again["answer"] == f"Fine after {goal}."
                    assert again["run_id"] == run_id
                api.add(
                    {"match": "garbled", "tool_calls": [{"name": "ls", "raw": '{"path": '}]},
                    {"text": "Noticed it."},
                )
                noticed = await call(client, "task", goal="garbled")
                assert noticed["answer"] == "Noticed it."
                (content,) = (
                    await client.read_resource(f"thread://{noticed['thread_id']}/transcript")
                ).contents
                assert "not a JSON object" in content.text  # type: ignore[union-attr]
