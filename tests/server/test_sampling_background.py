"""Background tasks that wait for a client's model: whoever waits for their caller is asked."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from mcp import Client
from mcp.types import CreateMessageResultWithTools

from deep_agent_mcp.server.app import App
from deep_agent_mcp.server.engine import Leg
from deep_agent_mcp.server.sampling import queue as sampling_queue
from deep_agent_mcp.server.sampling.queue import PARKED, is_parked
from tests.e2e.client_model import ClientModel, calls, says
from tests.e2e.servers import ERAS, Era, call
from tests.e2e.task_client import TaskChange, Tasks, listen_to
from tests.server.test_sampling import WRITE, no_key, running

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures(no_key.__name__)]


def start(what: str) -> tuple[str, dict[str, object]]:
    return ("start_task", {"description": what, "subagent_type": "general-purpose"})


LOOK = ("check_tasks", {"wait_seconds": 15})


async def answer_main(app: App, run_id: str, *answers: CreateMessageResultWithTools) -> None:
    """Answer the next model calls of a run's main agent, and leave those of its tasks."""
    for answer in answers:
        own: dict[str, CreateMessageResultWithTools] = {}
        while not own:
            asked = await app.runs.wait(run_id, 10, to_lend=True)
            own = {one.key: answer for one in asked.calls if one.agent == "main"}
            app.runs.sampling.take(asked.run.thread_id, own)


@pytest.mark.parametrize("mode", ERAS)
async def test_background_tasks_are_done_by_the_model_of_who_waits_for_their_caller(
    mode: Era, tmp_path: Path
) -> None:
    main = [calls(start("dig")), calls(LOOK), says("Done.")]
    model = ClientModel({"hello": main, "dig": [WRITE, says("Dug.")]})
    async with (
        running(tmp_path, background_subagents=True) as app,
        Client(app.server, mode=mode, **model.options) as client,
    ):
        assert (await call(client, "task", goal="hello"))["answer"] == "Done."
    assert "Dug." in str(model.asked[-1].messages)


async def test_a_paused_background_task_goes_on_with_who_waits_for_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thinking: list[str] = []
    both = anyio.Event()

    async def think() -> None:
        thinking.append("")
        if len(thinking) == 2:
            both.set()
        await anyio.sleep_forever()

    first = ClientModel({"hello": [calls(start("dig")), think], "dig": [think]})
    second = ClientModel({"hello": [WRITE, calls(LOOK), says("Done.")], "dig": [says("Dug.")]})
    async with running(tmp_path, background_subagents=True) as app:
        run_id = await app.runs.start("hello", offer="tools")
        with monkeypatch.context() as hurried:
            hurried.setattr(sampling_queue, "UNATTENDED_SECONDS", 0.2)
            async with (
                Client(app.server, mode="legacy", **first.options) as client,
                anyio.create_task_group() as group,
            ):
                group.start_soon(lambda: call(client, "wait", run_id=run_id))
                await both.wait()
                group.cancel_scope.cancel()
            for one in await app.agent().checkpointer.find_runs(limit=10):
                assert (await app.runs.wait(one.id, 10)).run.reason == PARKED
        async with Client(app.server, mode="legacy", **second.options) as client:
            assert (await call(client, "wait", run_id=run_id))["answer"] == "Done."
    assert "Dug." in str(second.asked[-1].messages)


async def test_no_more_paused_tasks_go_on_at_once_than_may_work_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = [start(f"dig {number}") for number in range(10)]
    async with running(tmp_path, background_subagents=True, workers=8) as app:
        run_id = await app.runs.start("hello", offer="tools")
        thread_id = (await app.runs.snapshot(run_id)).run.thread_id
        with monkeypatch.context() as hurried:
            hurried.setattr(sampling_queue, "UNATTENDED_SECONDS", 0.2)
            with app.runs.sampling.attending(thread_id):
                await answer_main(app, run_id, calls(*begin), says("Begun."))
                assert (await app.runs.wait(run_id, 10)).run.answer == "Begun."
            journal = app.agent().checkpointer
            while sum(map(is_parked, await journal.find_runs(limit=20))) < 10:
                await anyio.lowlevel.checkpoint()
        tasks = [one for one in await journal.find_runs(limit=20) if is_parked(one)]
        launcher = app.runs.supervisor.tasks
        assert launcher is not None
        while any(launcher.is_busy(one.thread_id) for one in tasks):
            await anyio.lowlevel.checkpoint()
        legs = [Leg(one.id, one.attempt) for one in tasks]
        await app.runs.unpark(run_id)
        offered = app.runs.queue.engine.offered
        while app.runs.active < 8 or (app.runs.active < 10 and len(await offered(legs)) < 2):
            await anyio.lowlevel.checkpoint()
        assert app.runs.active == 8
        answered = 0
        while answered < 10:  # the last two begin once there is room
            for asked in app.runs.sampling.calls(thread_id):
                app.runs.sampling.take(thread_id, {asked.key: says("Dug.")})
                answered += 1
            await anyio.lowlevel.checkpoint()
            assert app.runs.active <= 8
        for one in tasks:
            assert (await app.runs.wait(one.id, 10)).run.status == "done"


async def test_who_listens_to_a_run_is_told_what_its_tasks_ask_the_model(tmp_path: Path) -> None:
    told: list[str] = []
    more = anyio.Event()

    async def hear(change: TaskChange) -> None:
        for key in (change.model_extra or {}).get("inputRequests", {}):
            if key.endswith(".general-purpose") and key not in told:
                told.append(key)
                more.set()

    tasks = Tasks()
    tasks.changed = hear
    async with (
        running(tmp_path, background_subagents=True) as app,
        Client(app.server, extensions=[tasks], **ClientModel({}).options) as client,
        anyio.create_task_group() as group,
    ):
        run_id = await app.runs.start("hello", offer="tools")
        thread_id = (await app.runs.snapshot(run_id)).run.thread_id
        group.start_soon(listen_to, client, run_id)
        await answer_main(app, run_id, calls(start("dig")), calls(LOOK))
        for known in range(3):  # of the later ones the thread itself does not tell
            await more.wait()
            more = anyio.Event()
            assert len(told) == known + 1
            app.runs.sampling.take(thread_id, {told[-1]: WRITE})
        group.cancel_scope.cancel()
