"""`reply`: the first answer stands, the same one again is no error, and another one is told so."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client
from pydantic import JsonValue

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.base import Batch, Interrupt, Run, taken_over
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.run_executor import RunExecutor, RunResult
from deep_agent_mcp.harness.tools.runtime import ToolRuntime
from deep_agent_mcp.harness.tools.tool import tool
from deep_agent_mcp.server.engine.local import LocalEngine
from deep_agent_mcp.server.runs.runs import RunManager
from deep_agent_mcp.server.runs.server_processes import ServerProcesses
from deep_agent_mcp.server.runs.supervisor import RunSupervisor
from deep_agent_mcp.server.settings.state_dir import StateDir
from deep_agent_mcp.server.tools.replies import REPEATED, Reply, hand_over
from tests.e2e.client_model import ClientModel, calls, says
from tests.e2e.servers import call, data_of, refused, text_of
from tests.loop.models import Turns
from tests.loop.models import call as use
from tests.loop.models import says as turn
from tests.server.same_agent import SameAgent
from tests.server.test_runs import running
from tests.server.test_sampling import no_key as no_key
from tests.server.test_sampling import running as sampling

pytestmark = pytest.mark.anyio

APPROVE: dict[str, JsonValue] = {"decision": "approve"}


async def never(run: Run, message: str) -> str:
    """Start a run on the thread of an ended one: none of these runs has ended."""
    raise AssertionError(run, message)


async def asked(client: Client) -> tuple[str, str]:
    """Return a run that waits for an approval, and its question."""
    waiting = await call(client, "glob", pattern="*.none")
    assert waiting["status"] == "needs_approval"
    return waiting["run_id"], waiting["pending"][0]["id"]


@asynccontextmanager
async def carrying(
    agent: Agent, journal: MemoryCheckpointer, directory: Path, owner: str = "me"
) -> AsyncGenerator[RunManager]:
    """Give what carries runs of an agent; nobody hears of changes."""

    def changed(thread_id: str, **_: object) -> None:
        pass

    servers = ServerProcesses(StateDir.open(directory))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            who = SameAgent(agent)
            supervisor = RunSupervisor(who, journal, group, owner, servers, changed, Limits())
            yield RunManager(supervisor, who, journal, group)
            group.cancel_scope.cancel()  # the queue never ends by itself


@pytest.mark.parametrize("by_id", [True, False])
async def test_the_same_answer_again_just_waits(by_id: bool, tmp_path: Path) -> None:
    async with running(tmp_path, approve=("glob",)) as app, Client(app.server) as client:
        run_id, question = await asked(client)
        answer: dict[str, Any] = {"answers": {question: "approve"}} if by_id else APPROVE
        first = await call(client, "reply", run_id=run_id, **answer)
        again = await call(client, "reply", run_id=run_id, **answer)
    assert first["status"] == "done" and again == first


@pytest.mark.parametrize("by_id", [True, False])
async def test_another_answer_is_told_which_one_stands(by_id: bool, tmp_path: Path) -> None:
    async with running(tmp_path, approve=("glob",)) as app, Client(app.server) as client:
        run_id, question = await asked(client)
        await call(client, "reply", run_id=run_id, answers={question: "approve"})
        late: dict[str, Any] = (
            {"answers": {question: "reject"}} if by_id else {"decision": "reject"}
        )
        result = await client.call_tool("reply", {"run_id": run_id, **late})
    (note,) = data_of(result)["notes"]
    assert question in note and '{"decision": "approve"}' in note and "not stored" in note
    assert note in text_of(result) and data_of(result)["status"] == "done"


async def test_a_run_that_is_answered_as_it_goes_to_wait_is_seen_at_work_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, go_on = RunExecutor._answered, RunSupervisor._go_on_if_answered
    seen: list[str] = []
    async with running(tmp_path, approve=("glob",)) as app, Client(app.server) as client:

        async def answered_late(supervisor: RunExecutor, waiting: Sequence[Interrupt]) -> bool:
            found = await looked(supervisor, waiting)
            for one in waiting:
                await app.runs.reply(one.run_id, {one.id: APPROVE})
            return found

        async def watched(supervisor: RunSupervisor, result: RunResult) -> None:
            seen.append((await app.runs.snapshot(result.run.id)).run.status)
            await go_on(supervisor, result)

        monkeypatch.setattr(RunExecutor, "_answered", answered_late)
        monkeypatch.setattr(RunSupervisor, "_go_on_if_answered", watched)
        done = await call(client, "glob", pattern="*.none")
    assert done["results"] == []
    assert seen[0] == "running"


class Slow(MemoryCheckpointer):
    """A journal that stores answers only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.has_answers, self.may_store = anyio.Event(), anyio.Event()

    async def commit(self, batch: Batch) -> None:
        if batch.answers:
            self.has_answers.set()
            await self.may_store.wait()
        await super().commit(batch)


@tool
async def inquire(runtime: ToolRuntime, about: str) -> str:
    """Ask."""
    return str(runtime.interrupt(about))


async def has_paused(runs: RunManager, run_id: str) -> None:
    while runs.supervisor.goes_on(run_id):
        await anyio.lowlevel.checkpoint()


async def test_an_answer_that_is_stored_just_after_its_run_has_paused_continues_it(
    tmp_path: Path,
) -> None:
    journal, may_end = Slow(), anyio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await may_end.wait()
        return "worked"

    both = turn("", use("1", "inquire", about="what"), use("2", "work"))
    agent = create_agent(Turns(both, turn("end")), [inquire, work], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        run_id = await runs.start("go")
        while not await runs.questions(run_id):
            await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as group:
            (question,) = await runs.questions(run_id)
            group.start_soon(runs.reply, run_id, {question.id: "this"})
            await journal.has_answers.wait()
            may_end.set()
            await has_paused(runs, run_id)
            journal.may_store.set()
        while (await runs.snapshot(run_id)).run.status != "done":
            await anyio.lowlevel.checkpoint()


async def test_an_answer_beside_another_continues_its_run_though_there_is_no_place_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, resume = MemoryCheckpointer(), RunSupervisor.resume
    both = turn("", use("1", "inquire", about="what"), use("2", "inquire", about="how"))
    agent = create_agent(Turns(both, turn("end")), [inquire], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:

        async def resume_until_it_pauses(
            supervisor: RunSupervisor, run: Run, answers: Mapping[str, JsonValue], **_: object
        ) -> None:
            monkeypatch.setattr(RunSupervisor, "resume", resume)
            await resume(supervisor, run, answers)
            await has_paused(runs, run.id)
            monkeypatch.setattr(LocalEngine, "admits", lambda *_: False)

        run_id = await runs.start("go")
        await has_paused(runs, run_id)
        monkeypatch.setattr(RunSupervisor, "resume", resume_until_it_pauses)
        async with anyio.create_task_group() as group:
            for one in await runs.questions(run_id):
                group.start_soon(runs.reply, run_id, {one.id: "this"})
        while (await runs.snapshot(run_id)).run.status != "done":
            await anyio.lowlevel.checkpoint()


async def test_a_run_whose_server_ended_when_its_answer_was_stored_is_continued_by_the_next(
    tmp_path: Path,
) -> None:
    journal = MemoryCheckpointer()
    turns = turn("", use("1", "inquire", about="what")), turn("end")
    agent = create_agent(Turns(*turns), [inquire], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        answered, waiting = await runs.start("go"), await runs.start("go")
        for run_id in (answered, waiting):
            await has_paused(runs, run_id)
        (question,) = await runs.questions(answered)
        await agent.answer(answered, {question.id: "this"})
    async with carrying(agent, journal, tmp_path, "next") as runs:
        assert await runs.recover() == [answered]
        while (await runs.snapshot(answered)).run.status != "done":
            await anyio.lowlevel.checkpoint()
        assert (await runs.snapshot(waiting)).run.status == "needs_approval"


async def test_a_run_that_ends_as_it_is_taken_over_counts_as_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = MemoryCheckpointer()
    agent = create_agent(Turns(turn("end")), checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        ended = (await runs.wait(await runs.start("go"), 10)).run
    left = taken_over(ended, status="running", answer=None)
    await journal.commit(left)
    takeover = ServerProcesses.takeover

    @asynccontextmanager
    async def slow(servers: ServerProcesses) -> AsyncGenerator[None]:
        async with takeover(servers):
            yield
            while runs.supervisor.live:
                await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(ServerProcesses, "takeover", slow)
    async with carrying(agent, journal, tmp_path, "next") as runs:
        assert await runs.recover() == [ended.id]
        assert (await runs.snapshot(ended.id)).run.status == "done"
        assert runs.figures.taken_over == 1


async def test_of_two_who_answer_at_once_the_later_one_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, approve=("glob",)) as app, Client(app.server) as client:
        run_id, question = await asked(client)
        told: dict[str, Any] = {}

        async def reply(decision: str) -> None:
            told[decision] = await app.runs.reply(run_id, {question: {"decision": decision}})

        async with anyio.create_task_group() as group:
            group.start_soon(reply, "approve")
            group.start_soon(reply, "reject")
        assert told == {"approve": {}, "reject": {question: APPROVE}}
        assert (await app.runs.wait(run_id, 10)).result is not None


@pytest.mark.parametrize("says_it_again", [True, False])
async def test_a_run_that_did_not_go_on_with_its_answer_does_so_at_the_next_reply(
    says_it_again: bool, tmp_path: Path
) -> None:
    async with running(tmp_path, approve=("glob",)) as app, Client(app.server) as client:
        run_id, question = await asked(client)
        thread_id = (await app.runs.snapshot(run_id)).run.thread_id
        answers: dict[str, JsonValue] = {question: dict(APPROVE)}
        await app.agent().checkpointer.commit(Batch(thread_id, answers=answers))
        done = await call(client, "reply", run_id=run_id, **APPROVE if says_it_again else {})
    assert done["status"] == "done"


async def test_what_fits_is_stored_beside_what_came_too_late(no_key: None, tmp_path: Path) -> None:
    model = ClientModel({"hello": [calls(("ls", {}), ("glob", {"pattern": "*"})), says("Done.")]})
    async with (
        sampling(tmp_path, approve=("ls", "glob")) as app,
        Client(app.server, **model.options) as client,
    ):
        waiting = await call(client, "task", goal="hello")
        run_id, (first, second) = waiting["run_id"], [one["id"] for one in waiting["pending"]]
        waiting = await call(client, "reply", run_id=run_id, answers={first: "approve"})
        assert [one["id"] for one in waiting["pending"]] == [second]
        both = {first: "reject", second: "approve"}
        told = await call(client, "reply", run_id=run_id, answers=both)
        assert len(told["notes"]) == 1 and first in told["notes"][0]
        assert (await call(client, "wait", run_id=run_id))["answer"] == "Done."


@pytest.mark.parametrize("again", ["approve", "reject"])
async def test_a_decision_that_comes_twice_does_not_decide_what_is_asked_next(
    again: str, no_key: None, tmp_path: Path
) -> None:
    turns = [calls(("ls", {})), calls(("glob", {"pattern": "*"})), says("Done.")]
    model = ClientModel({"hello": turns})
    async with (
        sampling(tmp_path, approve=("ls", "glob")) as app,
        Client(app.server, **model.options) as client,
    ):
        waiting = await call(client, "task", goal="hello")
        run_id, (first,) = waiting["run_id"], waiting["pending"]
        waiting = await call(client, "reply", run_id=run_id, decision="approve")
        (second,) = waiting["pending"]
        assert (first["tool"], second["tool"]) == ("ls", "glob")

        result = await client.call_tool("reply", {"run_id": run_id, "decision": again})
        told = data_of(result)
        if again == "reject":  # another decision cannot be the first one come again
            assert told["status"] == "done"
            return
        assert told["pending"] == [second]
        assert told["notes"] == [REPEATED] and REPEATED in text_of(result)
        wanted = f'reply(run_id="{run_id}", answers={{"{second["id"]}": "approve"}})'
        assert wanted in told["next"] and wanted in text_of(result)
        by_id = {second["id"]: "approve"}
        assert (await call(client, "reply", run_id=run_id, answers=by_id))["answer"] == "Done."


@pytest.mark.parametrize("decision", ["approve", "reject", "respond"])
@pytest.mark.parametrize("count", [2, 3, 25])
async def test_a_decision_without_ids_decides_nothing_while_more_than_one_thing_is_asked(
    count: int, decision: str, no_key: None, tmp_path: Path
) -> None:
    wanted = [("glob", {"pattern": f"*.{number}" + "x" * 300}) for number in range(count)]
    model = ClientModel({"hello": [calls(*wanted), says("Done.")]})
    async with (
        sampling(tmp_path, approve=("glob",)) as app,
        Client(app.server, **model.options) as client,
    ):
        run_id = (await call(client, "task", goal="hello"))["run_id"]
        asked = await app.runs.asked(run_id)
        error = await refused(client, "reply", run_id=run_id, decision=decision, message="why")
        assert error.startswith(f"Nothing was decided: run {run_id} asks {count} things")
        assert len(error) < 10_000
        for one in asked[:20]:
            assert one.id in error and str(one.payload["args"]["pattern"])[:20] in error  # type: ignore[index]
        assert ("and 5 more" in error) == (count == 25)
        assert await app.runs.asked(run_id) == asked and len(asked) == count
        answers = {one.id: "approve" for one in asked}
        done = await call(client, "reply", run_id=run_id, answers=answers)
        assert done["answer"] == "Done."


async def test_a_decision_is_taken_once_only_one_thing_is_left_to_ask(
    no_key: None, tmp_path: Path
) -> None:
    wanted = [("glob", {"pattern": "a"}), ("glob", {"pattern": "b"})]
    model = ClientModel({"hello": [calls(*wanted), says("Done.")]})
    async with (
        sampling(tmp_path, approve=("glob",)) as app,
        Client(app.server, **model.options) as client,
    ):
        waiting = await call(client, "task", goal="hello")
        run_id, (first, _) = waiting["run_id"], waiting["pending"]
        await call(client, "reply", run_id=run_id, answers={first["id"]: "reject"})
        done = await call(client, "reply", run_id=run_id, decision="approve")
        assert done["answer"] == "Done."


async def test_a_decision_that_comes_twice_does_not_decide_what_was_asked_beside_it_meanwhile(
    tmp_path: Path,
) -> None:
    asks_now = anyio.Event()

    @tool
    async def early(runtime: ToolRuntime) -> str:
        """Ask at once."""
        return str(runtime.interrupt("Early?"))

    @tool
    async def late(runtime: ToolRuntime) -> str:
        """Ask later."""
        await asks_now.wait()
        return str(runtime.interrupt("Late?"))

    model = Turns(turn("", use("1", "early"), use("2", "late")), turn("Both."))
    journal = MemoryCheckpointer()
    agent = create_agent(model, [early, late], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        run_id = await runs.start("anything")
        while not await runs.questions(run_id):
            await anyio.lowlevel.checkpoint()
        yes = Reply("", "yes", {})
        assert await hand_over(runs, run_id, yes, "none", never) == run_id
        asks_now.set()
        while not await runs.questions(run_id):
            await anyio.lowlevel.checkpoint()
        assert REPEATED in str(await hand_over(runs, run_id, yes, "none", never))
        (second,) = await runs.questions(run_id)
        assert second.message == "Late?"
        no = Reply("", "", {second.id: "no"})
        assert await hand_over(runs, run_id, no, "none", never) == run_id
        assert (await runs.wait(run_id, 10)).run.answer == "Both."


async def test_words_without_an_id_answer_nothing_while_more_than_one_thing_is_asked(
    tmp_path: Path,
) -> None:
    @tool
    async def paint(runtime: ToolRuntime, what: str) -> str:
        """Paint."""
        return str(runtime.interrupt(f"Which colour for the {what}?"))

    use_both = [use("1", "paint", what="door"), use("2", "paint", what="wall")]
    model = Turns(turn("", *use_both), turn("Painted."))
    journal = MemoryCheckpointer()
    agent = create_agent(model, [paint], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        run_id = await runs.start("anything")
        questions = (await runs.wait(run_id, 10)).questions
        with pytest.raises(HarnessError, match="Nothing was decided") as refusal:
            await hand_over(runs, run_id, Reply("", "blue", {}), "none", never)
        assert all(f"{one.id}: {one.message}" in str(refusal.value) for one in questions)
        assert [*await runs.questions(run_id)] == [*questions]


@pytest.mark.parametrize("delegated", [True, False])
@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"tool": "erase", "args": {}}, "there is no tool 'erase'"),
        ({"tool": "erase"}, "there is no tool 'erase'"),
        ({"tool": "write_file", "args": {"path": "/a"}}, "content"),
        ({"tool": "write_file"}, "content"),
        ({"args": {"no": 1}}, "does not fit"),
    ],
)
async def test_an_edit_into_what_cannot_run_is_refused_and_the_question_stays_open(
    edit: dict[str, Any], why: str, delegated: bool, no_key: None, tmp_path: Path
) -> None:
    model = ClientModel({"hello": [calls(("glob", {"pattern": "*"})), says("Done.")]})
    async with (
        sampling(tmp_path, approve=("glob",)) as app,
        Client(app.server, **model.options) as client,
    ):
        tool, args = ("task", {"goal": "hello"}) if delegated else ("glob", {"pattern": "*"})
        waiting = await call(client, tool, **args)
        run_id, (question,) = waiting["run_id"], waiting["pending"]
        answers: dict[str, Any] = {question["id"]: {"decision": "edit", **edit}}
        error = await refused(client, "reply", run_id=run_id, answers=answers)
        assert why in error and "Nothing was stored" in error
        seen = await call(client, "wait", run_id=run_id, wait_seconds=0)
        assert (seen["status"], seen["pending"]) == ("needs_approval", [question])
        done = await call(client, "reply", run_id=run_id, answers={question["id"]: "approve"})
        assert done["status"] == "done"


async def test_words_that_come_twice_do_not_answer_what_is_asked_next(tmp_path: Path) -> None:
    @tool
    async def paint(runtime: ToolRuntime) -> str:
        """Paint."""
        return f"{runtime.interrupt('Which colour?')} on {runtime.interrupt('On what?')}"

    model = Turns(turn("", use("1", "paint")), turn("Painted."))
    journal = MemoryCheckpointer()
    agent = create_agent(model, [paint], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        run_id = await runs.start("anything")
        (first,) = (await runs.wait(run_id, 10)).questions
        blue = Reply("", "blue", {})
        assert await hand_over(runs, run_id, blue, "none", never) == run_id
        (second,) = (await runs.wait(run_id, 10)).questions
        assert (first.message, second.message) == ("Which colour?", "On what?")
        told = await hand_over(runs, run_id, blue, "none", never)
        assert REPEATED in str(told)
        assert [*(await runs.snapshot(run_id)).questions] == [second]
        again = Reply("", "", {second.id: "blue"})
        assert await hand_over(runs, run_id, again, "none", never) == run_id


async def test_words_that_have_answered_a_question_may_be_said_again(tmp_path: Path) -> None:
    @tool
    async def paint(runtime: ToolRuntime) -> str:
        """Paint."""
        return str(runtime.interrupt("Which colour?"))

    model = Turns(turn("", use("1", "paint")), turn("Painted."))
    journal = MemoryCheckpointer()
    agent = create_agent(model, [paint], checkpointer=journal)
    async with carrying(agent, journal, tmp_path) as runs:
        run_id = await runs.start("anything")
        (question,) = (await runs.wait(run_id, 10)).questions
        model.asked, model.gate = anyio.Event(), anyio.Event()
        blue = Reply("", "blue", {})
        for reply in (blue, blue, Reply("", "", {question.id: "blue"})):
            assert await hand_over(runs, run_id, reply, "none", never) == run_id
            await model.asked.wait()
        told = await hand_over(runs, run_id, Reply("", "", {question.id: "red"}), "none", never)
        assert '"blue"' in str(told)
        with pytest.raises(HarnessError, match="has no message"):
            await hand_over(runs, run_id, Reply("", "", {}), "none", never)
        model.gate.set()
        assert (await runs.wait(run_id, 10)).run.answer == "Painted."


async def test_a_run_that_has_asked_nothing_takes_no_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as app, Client(app.server) as client:
        run_id = (await call(client, "task", goal="anything"))["run_id"]
        assert "asks nothing" in await refused(client, "reply", run_id=run_id, **APPROVE)
        slow = (await call(client, "task", goal="slow", wait_seconds=0))["run_id"]
        assert "has no message" in await refused(client, "reply", run_id=slow)
