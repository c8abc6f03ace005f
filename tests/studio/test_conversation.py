"""A thread is read as a conversation, subagents included, page by page and while it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.loop.run.events import Event
from tests.loop.models import Turns, says
from tests.studio.looking import Looking, looking, script

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/sum.txt", "content": "a\nb\n"}}
TASK = {"name": "task", "args": {"description": "count them"}}
LS = {"name": "ls", "args": {}}
RUNS = script(
    sum={
        "main": [
            {"text": "I ask.", "tool_calls": [TASK, LS]},
            {"text": "I write.", "tool_calls": [WRITE]},
            {"text": "All done."},
        ],
        "general-purpose": [{"text": "I look.", "tool_calls": [LS]}, {"text": "Two."}],
    },
)


async def tree(server: Looking) -> tuple[str, list[dict[str, Any]]]:
    thread_id = (await server.call("task", goal="sum it"))["thread_id"]
    return thread_id, (await server.read(f"thread://{thread_id}/steps"))["steps"]


async def test_the_conversation_has_all_messages_in_order_and_knows_who_started_whom(
    tmp_path: Path,
):
    async with looking(tmp_path, RUNS) as server:
        _, steps = await tree(server)
        said = [(one["kind"], one.get("agent"), one["text"]) for one in steps]
        assert said[0] == ("user", None, "sum it")
        assert said[1][:2] == ("text", "main")
        assert ("text", "general-purpose", "Two.") in said
        assert said[-1] == ("text", "main", "All done.")
        assert [one["n"] for one in steps] == sorted(one["n"] for one in steps)
        started = steps[1]["calls"][0]
        inner = [one for one in steps if one["ns"]]
        assert {one["ns"] for one in inner} == {started["subagent_ns"]}
        assert {one["call"] for one in inner} == {started["call_id"]}
        assert "count them" in inner[0]["text"]
        write = next(one for one in steps if one["text"] == "I write.")["calls"][0]
        assert json.loads(write["args_json"]) == WRITE["args"]
        assert write["file"] == {"path": "/sum.txt", "added": 2, "removed": None}
        result = next(one for one in steps if one.get("call_id") == write["call_id"])
        assert (result["kind"], result["status"]) == ("tool", "ok")


async def test_the_result_of_a_call_counts_the_lines_that_its_question_did(tmp_path: Path):
    old = "".join(f"{n}\n" for n in range(40))
    new = old[2:].replace("7\n", "seven\n") + "0\n"  # and one line moves
    read = {"name": "read_file", "args": {"path": "/sum.txt"}}
    write = {"name": "write_file", "args": {"path": "/sum.txt", "content": new}}
    turns = script(sum={"main": [{"tool_calls": [read]}, {"tool_calls": [write]}, {"text": "Ok."}]})
    async with looking(tmp_path, turns, approve=("write_file",)) as server:
        (server.root / "sum.txt").write_bytes(old.encode())
        asked = await server.call("task", goal="sum it")
        preview = (await server.question(asked["run_id"]))["preview"]
        assert (preview["added"], preview["removed"]) == (4, 4)
        done = await server.call("reply", run_id=asked["run_id"], decision="approve")
        steps = (await server.read(f"thread://{done['thread_id']}/steps"))["steps"]
        (result,) = [one for one in steps if one.get("name") == "write_file"]
        counts = {"path": "/sum.txt", "added": 4, "removed": 4, "created": False}
        assert result["file"] == counts


async def test_pages_go_back_and_forth_and_join_without_a_gap(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        thread_id, steps = await tree(server)
        uri = f"thread://{thread_id}/steps"
        page = await server.read(f"{uri}?limit=2")
        found = page["steps"]
        while page["before"]:
            page = await server.read(f"{uri}?limit=2&before={page['before']}")
            found = page["steps"] + found
        assert found == steps
        newest = await server.read(uri)
        assert newest["after"]
        none = await server.read(f"{uri}?after={newest['after']}")
        assert (none["steps"], none["after"]) == ([], newest["after"])
        await server.call("task", goal="sum it", thread_id=thread_id)
        more = await server.read(f"{uri}?after={newest['after']}")
        assert more["steps"][0]["kind"] == "user"
        assert not {one["key"] for one in more["steps"]} & {one["key"] for one in steps}
        whole = await server.read(f"{uri}/{steps[1]['key']}")
        assert whole["text"] == "I ask."
        with pytest.raises(MCPError, match="has no step 'msg_x'"):
            await server.read(f"{uri}/msg_x")


async def test_what_a_rewind_left_behind_is_not_part_of_the_conversation(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        thread_id, steps = await tree(server)
        ask = next(one for one in steps if one["text"] == "I ask.")
        await server.call("rewind", thread_id=thread_id, checkpoint_id=ask["checkpoint_id"])
        left = (await server.read(f"thread://{thread_id}/steps"))["steps"]
        assert [one["key"] for one in left] == [one["key"] for one in steps[:2]]


@pytest.mark.parametrize("back", [1, 3])
async def test_who_follows_a_conversation_gets_it_anew_after_a_rewind(tmp_path: Path, back: int):
    async with looking(tmp_path, RUNS) as server:
        thread_id, _ = await tree(server)
        uri = f"thread://{thread_id}/steps"
        seen = await server.read(uri)
        assert not seen["reset"]
        found = (await server.read(f"thread://{thread_id}/history"))["checkpoints"]
        target = found[back]["checkpoint_id"]
        await server.call("rewind", thread_id=thread_id, checkpoint_id=target)
        now = await server.read(uri)
        anew = await server.read(f"{uri}?after={seen['after']}")
        assert anew == {**now, "reset": True}
        more = await server.read(f"{uri}?after={now['after']}")
        assert (more["steps"], more["reset"]) == ([], False)
        assert not (await server.read(f"{uri}?after=0"))["reset"]


async def test_who_follows_a_deleted_conversation_gets_the_new_one_of_that_name(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        thread_id, _ = await tree(server)
        uri = f"thread://{thread_id}/steps"
        seen = await server.read(uri)
        await server.ask("threads/delete", threadId=thread_id, confirm=thread_id)
        # A thread of a name has the same id again; this one is begun as an import does.
        await create_agent(Turns(says("ok")), checkpointer=server.app.journal).ainvoke(
            "another", thread_id=thread_id
        )
        now = await server.read(uri)
        assert await server.read(f"{uri}?after={seen['after']}") == {**now, "reset": True}


async def test_long_texts_are_cut_and_can_be_read_whole(tmp_path: Path):
    runs = script(long=[{"text": "x" * 30_000}])
    async with looking(tmp_path, runs) as server:
        thread_id = (await server.call("task", goal="long"))["thread_id"]
        last = (await server.read(f"thread://{thread_id}/steps"))["steps"][-1]
        assert (len(last["text"]), last["cut"]) == (20_000, {"text": 30_000})
        whole = await server.read(f"thread://{thread_id}/steps/{last['key']}")
        assert len(whole["text"]) == 30_000


async def test_agents_come_with_their_task_time_and_calls(tmp_path: Path):
    async with looking(tmp_path, RUNS) as server:
        run = await server.call("task", goal="sum it")
        agents = (await server.read(f"thread://{run['thread_id']}/agents"))["agents"]
        main, sub = agents
        assert (main["name"], sub["name"]) == ("main", "general-purpose")
        assert sub["path"] == ["main", sub["call_id"], "general-purpose"]
        assert (sub["model_calls"], sub["tool_calls"]) == (2, 1)
        assert (main["model_calls"], main["tool_calls"]) == (3, 3)
        assert sub["started"] <= sub["ended"] <= main["ended"]
        spans = (await server.read(f"run://{run['run_id']}/spans"))["spans"]
        tools = [one for one in spans if one["kind"] == "tool"]
        assert {one["name"] for one in tools} == {"task", "ls", "write_file"}
        assert all(one["started"] and one["ended"] for one in spans)


async def test_an_answer_can_be_read_while_it_is_written_and_watchers_are_told(tmp_path: Path):
    turns = [{"text": "Once upon a time there was a thread.", "delay": 30}]
    async with looking(tmp_path, script(tale=turns)) as server:
        run = await server.call("task", goal="tale", wait_seconds=0)
        live = server.app.runs.supervisor.live[run["run_id"]]

        def piece(text: str) -> Event:
            data: dict[str, Any] = {"kind": "text", "text": text}
            return Event("messages", data, live.thread_id, live.run_id, 1, ("main",))

        server.app.runs.supervisor._hear(live, piece("Once "))
        server.app.runs.supervisor._hear(live, piece("upon"))
        now = await server.read(f"thread://{run['thread_id']}/writing")
        assert [(one["path"], one["text"]) for one in now["working"]] == [(["main"], "Once upon")]
        assert now["run_id"] == run["run_id"]
        await server.call("cancel", run_id=run["run_id"])
        await live.finished.wait()
        assert (await server.read(f"thread://{run['thread_id']}/writing"))["working"] == []


async def test_todos_are_shown_as_written_while_a_call_beside_them_waits_for_a_person(
    tmp_path: Path,
):
    listed = {"name": "write_todos", "args": {"todos": [{"content": "Write it down"}]}}
    write = {"name": "write_file", "args": {"path": "/a.txt", "content": "x"}}
    turns = script(plan=[{"tool_calls": [listed, write]}, {"text": "Done."}])
    async with looking(tmp_path, turns, approve=("write_file",)) as server:
        run = await server.call("task", goal="plan")
        assert run["status"] == "needs_approval"
        thread = run["thread_id"]
        shown = (
            (await server.read(f"thread://{thread}/overview"))["todos"],
            await server.read(f"thread://{thread}/todos"),
            (await server.call("threads", thread_id=thread))["todos"],
        )
        assert [[one["content"] for one in todos] for todos in shown] == [["Write it down"]] * 3
        await server.call("reply", run_id=run["run_id"], decision="approve")
        again = (await server.read(f"thread://{thread}/overview"))["todos"]
        assert again == shown[0]
