"""Background tasks of delegated runs, at a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.e2e.servers import Setup, call, connected, refused

pytestmark = pytest.mark.anyio

FLAGS = ("--background-subagents", "--approve", "write_todos")
WRITE = {"name": "write_file", "args": {"path": "/log.txt", "content": "end\n"}}
ADD_LINE = {
    "name": "edit_file",
    "args": {"path": "/log.txt", "old_string": "end", "new_string": "line\nend"},
}


def start(description: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "start_task", "args": {"description": description}}]}


def script(delay: float) -> dict[str, Any]:
    return {
        "name": "background",
        "agents": {
            "general-purpose": [
                {"tool_calls": [WRITE]},
                {"tool_calls": [ADD_LINE]},
                {"text": "Dug.", "delay": delay},
                {"text": "Dug deeper."},
            ]
        },
        "runs": [
            {"match": "begin", "agents": {"main": [start("dig"), {"text": "Begun."}]}},
            {
                "match": "and now?",
                "agents": {
                    "main": [
                        {
                            "expect": {"last": ["success", "dig", "check_tasks"]},
                            "text": "It is done.",
                        }
                    ]
                },
            },
        ],
    }


CAREFUL = {
    "name": "careful",
    "agents": {
        "main": [start("ask first"), {"text": "Begun."}],
        "general-purpose": [
            {"tool_calls": [{"name": "write_todos", "args": {"todos": []}}]},
            {"text": "Was allowed."},
        ],
    },
}


async def child_of(client: Client, run: dict[str, Any]) -> dict[str, Any]:
    """Return the newest run of the only task of a run's thread."""
    threads = (await call(client, "threads"))["threads"]
    begin = run["thread_id"] + ".task-"
    (found,) = [one for one in threads if one["thread_id"].startswith(begin)]
    return found["last_run"]


async def test_a_task_outlives_the_run_that_started_it_and_is_a_run_like_others(
    tmp_path: Path,
) -> None:
    setup = Setup(tmp_path, flags=FLAGS, script=script(0))
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            begun = await call(client, "task", goal="begin")
            assert (begun["status"], begun["answer"]) == ("done", "Begun.")
            child = await child_of(client, begun)
            done = await call(client, "wait", run_id=child["run_id"])
            assert (done["status"], done["answer"]) == ("done", "Dug.")
            told = await call(client, "task", goal="and now?", thread_id=begun["thread_id"])
            assert told["answer"] == "It is done.", told
            more = await call(client, "reply", run_id=child["run_id"], message="deeper")
            assert (more["status"], more["answer"]) == ("done", "Dug deeper.")
            assert more["thread_id"] == done["thread_id"]
            driven = await call(client, "ls", path="/", thread_id=begun["thread_id"])
            (brought,) = driven["background_tasks"]
            assert (brought["status"], brought["result"]) == ("success", "Dug deeper.")
    assert (setup.root / "log.txt").read_text() == "line\nend\n"


async def test_what_a_task_asks_is_answered_by_its_own_run_id(tmp_path: Path) -> None:
    setup = Setup(tmp_path, flags=FLAGS, script=CAREFUL)
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            begun = await call(client, "task", goal="careful")
            child = await child_of(client, begun)
            asked = await call(client, "wait", run_id=child["run_id"])
            assert asked["status"] == "needs_approval"
            done = await call(client, "reply", run_id=child["run_id"], decision="approve")
            assert (done["status"], done["answer"]) == ("done", "Was allowed.")


async def test_a_task_can_be_cancelled_by_its_run_id(tmp_path: Path) -> None:
    setup = Setup(tmp_path, flags=FLAGS, script=script(600))
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            child = await child_of(client, await call(client, "task", goal="begin"))
            assert (await call(client, "cancel", run_id=child["run_id"]))["status"] == "cancelled"


async def test_tasks_of_a_killed_server_are_finished_by_the_next_and_repeat_no_call(
    tmp_path: Path,
) -> None:
    setup = Setup(tmp_path, flags=FLAGS, script=script(600))
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                begun = await call(client, "task", goal="begin")
                child = await child_of(client, begun)
                log = setup.root / "log.txt"
                while not log.exists() or "line" not in log.read_text():  # noqa: ASYNC110
                    await anyio.sleep(0.05)
                running = await call(client, "wait", run_id=child["run_id"], wait_seconds=0.5)
                assert running["status"] == "running"
            server.kill()
        setup.script = script(0)
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                done = await call(client, "wait", run_id=child["run_id"])
                assert (done["status"], done["answer"]) == ("done", "Dug.")
                told = await call(client, "task", goal="and now?", thread_id=begun["thread_id"])
                assert told["answer"] == "It is done.", told
    assert (setup.root / "log.txt").read_text() == "line\nend\n"


async def test_a_server_without_background_tasks_says_so_and_leaves_them(tmp_path: Path) -> None:
    setup = Setup(tmp_path, flags=FLAGS, script=script(600))
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                child = await child_of(client, await call(client, "task", goal="begin"))
            server.kill()
        setup.flags = ()
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                left: dict[str, Any] = {}
                while "reason" not in left:
                    left = await call(client, "wait", run_id=child["run_id"], wait_seconds=0.2)
                assert left["status"] == "running" and "works on" not in left["next"]
                assert "--background-subagents" in left["reason"]
                text = await refused(client, "reply", run_id=child["run_id"])
                assert "--background-subagents" in text
