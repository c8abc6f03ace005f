"""A process may end at any moment; the next one goes on with its background tasks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.checkpoint.base import Checkpointer
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.background.tasks import NewTask
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import call, says
from tests.subagents.background.support import Cast, Gate, check, family, news, results, start, view

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]


async def test_leaving_stops_tasks_and_the_next_one_goes_on_with_them() -> None:
    journal = MemoryCheckpointer()
    gate = Gate(says("dug"))
    main = [says("", start("c1"), start("c2"), start("c3")), says("Begun."), says("Seen.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal, max_running=2) as background:
            agent = family(background, {"main": main, "digger": [gate]})
            first = await agent.ainvoke("go", thread_id="t")
            await gate.reached.wait()
        assert gate.running == 0
        left = [one.status for one in await journal.find_runs() if one.agent == "digger"]
        assert sorted({*left}) in (["paused", "running"], ["running"])
        assert len(left) == 3
        gate.open.set()
        async with BackgroundSubAgents(journal, max_running=1) as background:
            agent = family(background, {"main": main, "digger": [gate]})
            for one in ("c1", "c2", "c3"):
                assert (await view(background, first, one)).status == "success"
            second = await agent.ainvoke("and?", thread_id="t")
    (told,) = news(second)
    assert told.count(": success") == 3


async def test_one_entered_again_goes_on_too() -> None:
    gate = Gate(says("dug"))
    main = [says("", start("c1")), says("Begun.")]
    background = BackgroundSubAgents(MemoryCheckpointer())
    agent = family(background, {"main": main, "digger": [gate]})
    with anyio.fail_after(60):
        async with background:
            first = await agent.ainvoke("go")
            await gate.reached.wait()
        gate.open.set()
        async with background:
            assert (await view(background, first, "c1")).status == "success"


async def test_tasks_of_a_process_that_lives_are_left_to_it() -> None:
    journal = MemoryCheckpointer()
    gate = Gate(says("dug"))
    main = [says("", start("c1")), says("Begun."), lambda r: check(r, "c1"), says("Seen.")]
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            first = await family(background, {"main": main, "digger": [gate]}).ainvoke(
                "go", thread_id="t"
            )
            await gate.reached.wait()
            async with BackgroundSubAgents(journal) as other:
                agent = family(other, {"main": main, "digger": [gate]})
                (task,) = first.state["background_tasks"].values()
                (seen,) = await other.wait([task["thread_id"]], 0)
                assert seen.status == "running"
                gate.open.set()
                second = await agent.ainvoke("and?", thread_id="t")
    assert results(second)["check"].text.endswith("dug")
    assert gate.most == 1


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with BackgroundSubAgents(MemoryCheckpointer()):
            raise ZeroDivisionError


# --- kills ----------------------------------------------------------------------------------


def crew(background: BackgroundSubAgents, folder: Path, *, hangs: bool) -> Agent:
    """Return an agent whose tasks write a line each, and then hang or finish."""

    @tool
    def note(line: str) -> str:
        """Write a line."""
        with (folder / "log.txt").open("a") as log:
            log.write(line + "\n")
        return "written"

    async def dig(request: Any) -> Any:
        if hangs:
            print("ready", flush=True)
            await anyio.sleep_forever()
        return says("dug")

    main = [
        says("", start("c1", "left"), start("c2", "right")),
        says("Begun."),
        says("Seen."),
        says("Quiet."),
    ]
    digger = [lambda r: says("", call("n", "note", line=r.messages[0].text)), dig]
    return family(background, Cast(main=main, digger=digger), [note])


async def serve(folder: Path, running: int) -> None:
    """Be the process that is killed."""
    journal: Checkpointer = SqliteCheckpointer(folder / "journal.db")
    async with BackgroundSubAgents(journal, max_running=running) as background:
        await crew(background, folder, hangs=True).ainvoke("go", thread_id="t")
        print("ready", flush=True)
        await anyio.sleep_forever()


CODE = """
import anyio, sys
from pathlib import Path
from tests.subagents.background.test_restart import serve
anyio.run(serve, Path(sys.argv[1]), int(sys.argv[2]))
"""


@pytest.mark.parametrize("running", [2, 1])
async def test_a_killed_process_loses_no_task_repeats_no_call_and_the_model_is_told_once(
    running: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path), str(running)]
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        assert process.stdout is not None
        heard = b""
        with anyio.fail_after(60):  # its run has ended, and as many tasks as may work
            while heard.count(b"ready") < 1 + running:
                heard += await process.stdout.receive()
        process.kill()
    journal = SqliteCheckpointer(tmp_path / "journal.db")
    with anyio.fail_after(60):
        async with BackgroundSubAgents(journal) as background:
            agent = crew(background, tmp_path, hangs=False)
            state = await agent.get_state("t")
            threads = [one["thread_id"] for one in state.values["background_tasks"].values()]
            views = await background.wait(threads, 30)
            assert [one.status for one in views] == ["success", "success"]
            second = await agent.ainvoke("and?", thread_id="t")
            third = await agent.ainvoke("more?", thread_id="t")
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["left", "right"]
    assert len(news(second)) == len(news(third)) == 1
    await journal.close()


async def test_messages_sent_across_restarts_are_each_read_once(tmp_path: Path) -> None:
    journal = SqliteCheckpointer(tmp_path / "journal.db")
    calls = [0]
    enough = [anyio.Event()]

    async def dig(request: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        calls[0] += 1
        if calls[0] % 10 == 0:
            enough[0].set()
        place = sum(one.type == "ai" for one in request.messages)
        return says("dug") if place % 3 == 2 else says("", call("g", "glob", pattern=f"{place}"))

    tasks = [f"t.task-{number:08x}" for number in range(6)]
    cast = Cast(digger=[dig] * 100)
    with anyio.fail_after(60):
        for attempt in range(4):
            enough[0] = anyio.Event()
            async with BackgroundSubAgents(journal, max_running=3) as background:
                agent = family(background, cast)
                for number, thread in enumerate(tasks):
                    new = NewTask("t", thread.partition(".")[2], "digger", "dig", {})
                    await background.start(new)
                    for again in range(2):
                        key = f"{attempt} {number} {again}"
                        await background.send(thread, key, key)
                        await background.send(thread, key, key)  # nobody knew whether it arrived
                if attempt < 3:
                    await enough[0].wait()  # and leave them in the middle of it
                else:
                    views = await background.wait(tasks, 50)
        assert {one.status for one in views} == {"success"}
        for number, thread in enumerate(tasks):
            state = await background.agent("digger").get_state(thread)
            read = [one.text for one in state.values["messages"] if one.type == "human"]
            sent = [f"{attempt} {number} {again}" for attempt in range(4) for again in range(2)]
            assert read == ["dig", *sent]
    assert agent.checkpointer is journal
    await journal.close()
