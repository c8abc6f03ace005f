"""Files and state at each checkpoint, what lies between two, and what a rewind would do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from deep_agent_mcp.harness.checkpoint.base import Batch, Run
from tests.studio.looking import Looking, looking

pytestmark = pytest.mark.anyio


async def driven(server: Looking) -> tuple[str, list[str]]:
    """Write /a.txt and /b.txt, and change /a.txt; return the thread and its checkpoints."""
    first = await server.call("write_file", path="/a.txt", content="one\ntwo\n")
    thread_id = first["thread_id"]
    for tool, args in (
        ("write_file", {"path": "/b.txt", "content": "b\n"}),
        ("edit_file", {"path": "/a.txt", "old_string": "two", "new_string": "2"}),
        ("write_todos", {"todos": [{"content": "rest", "status": "pending"}]}),
    ):
        await server.call(tool, thread_id=thread_id, **args)
    rows = (await server.read(f"thread://{thread_id}/history"))["checkpoints"]
    ends = [one["checkpoint_id"] for one in rows if one["author"] == "tools"]
    return thread_id, ends[::-1]


def by_path(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["path"]: one for one in found["files"]}


@pytest.mark.parametrize("root", [True, False])
async def test_files_are_shown_as_they_were_and_as_they_differ(tmp_path: Path, root: bool):
    flags: dict[str, Any] = {} if root else {"root": None}
    where = "disk" if root else "thread"
    async with looking(tmp_path, **flags) as server:
        thread_id, (first, second, third, todos) = await driven(server)
        uri = f"thread://{thread_id}"

        async def text(checkpoint_id: str, path: str) -> str:
            found = await server.client.read_resource(f"{uri}/at/{checkpoint_id}/files{path}")
            return found.contents[0].text  # type: ignore[union-attr]

        assert await text(first, "/a.txt") == "one\ntwo\n"
        assert await text(third, "/a.txt") == "one\n2\n"
        with pytest.raises(MCPError, match=r"no file /b\.txt at checkpoint"):
            await text(first, "/b.txt")
        between = by_path(await server.read(f"{uri}/diff?from={first}&to={third}"))
        assert between["/a.txt"]["diff"] == "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        assert between["/b.txt"]["kind"] == "created"
        assert between["/b.txt"]["where"] == where
        assert by_path(await server.read(f"{uri}/diff?from={second}&to={third}")).keys() == {
            "/a.txt"
        }
        assert by_path(await server.read(f"{uri}/diff?to={first}"))["/a.txt"]["added"] == 2
        assert by_path(await server.read(f"{uri}/diff")).keys() == {"/a.txt", "/b.txt"}
        assert (await server.read(f"{uri}/diff?from={third}&path=/b.txt"))["files"] == []
        state = await server.read(f"{uri}/at/{todos}")
        assert [one["content"] for one in state["todos"]] == ["rest"]
        assert state["messages"] == 8
        before = await server.read(f"{uri}/at/{first}")
        assert before["todos"] == []
        tree = await server.read(f"{uri}/tree")
        assert [one["path"] for one in tree["entries"]] == ["/a.txt", "/b.txt"]
        with pytest.raises(MCPError, match="has no checkpoint 'ckpt_x'"):
            await server.read(f"{uri}/at/ckpt_x")


async def test_history_says_which_files_and_keys_each_checkpoint_changed(tmp_path: Path):
    async with looking(tmp_path) as server:
        thread_id, (first, second, third, todos) = await driven(server)
        page = await server.read(f"thread://{thread_id}/history")
        rows = {one["checkpoint_id"]: one for one in page["checkpoints"]}
        (edit,) = rows[third]["files"]
        assert (edit["path"], edit["added"], edit["removed"]) == ("/a.txt", 1, 1)
        assert rows[second]["files"][0]["kind"] == "created"
        assert "todos" in rows[todos]["changed"]
        assert rows[todos]["files"] == []
        assert all(one["current"] for one in page["checkpoints"])
        paged = await server.read(f"thread://{thread_id}/history?limit=3")
        more = await server.read(f"thread://{thread_id}/history?limit=3&before={paged['next']}")
        found = [one["checkpoint_id"] for one in [*paged["checkpoints"], *more["checkpoints"]]]
        assert found == [*rows][:6]
        assert [one["files"] for one in more["checkpoints"]] == [
            rows[one["checkpoint_id"]]["files"] for one in more["checkpoints"]
        ]
        await server.call("rewind", thread_id=thread_id, checkpoint_id=first)
        page = await server.read(f"thread://{thread_id}/history")
        current = [one["checkpoint_id"] for one in page["checkpoints"] if one["current"]]
        assert first in current
        assert third not in current


async def test_a_rewind_is_shown_before_it_happens_and_does_what_was_shown(tmp_path: Path):
    async with looking(tmp_path) as server:
        thread_id, (first, *_) = await driven(server)
        uri = f"thread://{thread_id}/rewind/{first}"
        plan = await server.read(uri)
        assert (plan["allowed"], plan["problem"], plan["messages_back"]) == (True, None, 6)
        files = by_path(plan)
        assert files["/a.txt"]["action"] == "restore"
        assert files["/a.txt"]["diff"] == "@@ -1,2 +1,2 @@\n one\n-2\n+two\n"
        assert files["/b.txt"]["action"] == "delete"
        assert (server.root / "b.txt").exists()
        (server.root / "a.txt").write_text("mine\n")
        conflict = await server.read(uri)
        assert (conflict["allowed"], conflict["needs_force"]) == (False, True)
        assert by_path(conflict)["/a.txt"]["action"] == "conflict"
        assert "somebody else changed" in conflict["problem"]
        (server.root / "a.txt").write_text("one\n2\n")
        await server.call("rewind", thread_id=thread_id, checkpoint_id=first)
        assert (server.root / "a.txt").read_text() == "one\ntwo\n"
        assert not (server.root / "b.txt").exists()


async def test_a_rewind_is_shown_as_impossible_while_a_run_works_or_waits(tmp_path: Path):
    async with looking(tmp_path) as server:
        thread_id, (first, *_) = await driven(server)
        live = Run("run_live", thread_id, "delegate", "main")
        line = Run("run_next", thread_id, "delegate", "main", "queued")
        for run, problem in (
            (line, "A run is queued."),
            (live, "The run is still working."),
            (replace(line, status="cancelled"), "The run is still working."),
        ):
            await server.app.journal.commit(Batch(thread_id, runs=[run]))
            plan = await server.read(f"thread://{thread_id}/rewind/{first}")
            assert (plan["allowed"], plan["needs_force"]) == (False, False)
            assert plan["problem"].startswith(problem)


async def test_files_that_the_policy_guards_are_not_shown_old_or_new(tmp_path: Path):
    policy = tmp_path / "policy.toml"
    policy.write_text("")
    async with looking(tmp_path, policy=[str(policy)]) as server:
        thread_id, (first, *_, last) = await driven(server)
        policy.write_text('[[rule]]\naction = "deny"\npath = "/a.txt"\n')
        server.app.common.policy.reload()
        uri = f"thread://{thread_id}"
        assert by_path(await server.read(f"{uri}/diff")).keys() == {"/b.txt"}
        assert by_path(await server.read(f"{uri}/at/{last}")).keys() <= {"/b.txt"}
        with pytest.raises(MCPError, match="guarded"):
            await server.read(f"{uri}/at/{first}/files/a.txt")
        plan = by_path(await server.read(f"{uri}/rewind/{first}"))
        assert "/a.txt" not in plan
