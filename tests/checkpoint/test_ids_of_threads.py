"""The id of a checkpoint is of one thread: with it nobody is taken to a step of another one."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint import (
    MemoryCheckpointer,
    RedisCheckpointer,
    SqliteCheckpointer,
    export_thread,
    import_thread,
)
from deep_agent_mcp.harness.checkpoint.base import Checkpoint, Checkpointer, step_id
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import UnknownCheckpoint
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from deep_agent_mcp.server.threads.rewinding import rewind
from tests.checkpoint.postgres_journals import opened
from tests.loop.models import Turns, call, says
from tests.redis_server import SERVER, keys
from tests.sampled_cases import few
from tests.subagents.family import Cast, task, told

pytestmark = pytest.mark.anyio

KINDS = ["memory", "sqlite", "postgres", "redis"]
LONG_AGO = "deep_agent_mcp.harness.loop.thread_state.turn_step_id"


@asynccontextmanager
async def opened_journal(kind: str, tmp_path: Path, request: Any) -> AsyncGenerator[Checkpointer]:
    async with AsyncExitStack() as stack:
        match kind:
            case "memory":
                journal = MemoryCheckpointer()
            case "sqlite":
                journal = SqliteCheckpointer(tmp_path / "journal.db")
            case "postgres":
                database = request.getfixturevalue("database")
                journal = await stack.enter_async_context(opened(database, database.new_schema()))
            case _:
                prefix = stack.enter_context(keys()).prefix
                journal = await stack.enter_async_context(RedisCheckpointer(SERVER, prefix=prefix))
        yield journal
        await journal.close()


class Worker(Turns):
    """Calls two tools in each turn, one of which has to be approved in every other; then ends."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = [self._turn] * 100

    def _turn(self, request: Any) -> AIMessage:
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if place % 2:
            return says("done")
        second = "gated" if place % 4 == 0 else "note"
        return says("", call(f"a{place}", "note"), call(f"b{place}", second))


def worker(journal: Checkpointer) -> Agent:
    @tool
    async def note() -> str:
        """Note."""
        return "noted"

    @tool
    async def gated() -> str:
        """Do what needs approval."""
        return "did it"

    policy = Policy((Rule("ask", "gated"),))
    return create_agent(Worker(), [note, gated], policy=policy, checkpointer=journal)


async def moved(agent: Agent, chance: random.Random, threads: list[str], new: str) -> None:
    """Do something to a thread, or make a new one."""
    journal, thread = agent.checkpointer, chance.choice(threads)
    known = [one.id for one in await journal.history(thread)]
    match chance.choice(["input", "go on", "drive", "fork", "update", "copy", "import", "new"]):
        case "go on" if known:
            await agent.ainvoke(None, thread_id=thread)
        case "drive":
            await agent.adrive([call(f"d{new}", "note")], thread_id=thread)
        case "fork" if known:
            await agent.fork(thread, chance.choice(known))
        case "update" if known:
            await agent.update_state(thread, {"messages": []})
        case "copy" if known:
            await journal.copy_thread(thread, new)
            threads.append(new)
        case "import" if known:
            lines = [line async for line in export_thread(journal, thread)]
            await import_thread(journal, lines, new)
            threads.append(new)
        case "new":
            await agent.ainvoke("begin", thread_id=new)
            threads.append(new)
        case _:
            await agent.ainvoke("more", thread_id=thread)


async def all_checkpoints(journal: Checkpointer, threads: list[str]) -> dict[str, list[Checkpoint]]:
    """Return the checkpoints of threads by id, without what a copy changes."""
    found: dict[str, list[Checkpoint]] = {}
    for thread in threads:
        for ns in await journal.namespaces(thread):
            for one in await journal.history(thread, ns, limit=1_000):
                found.setdefault(one.id, []).append(replace(one, seq=0))
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
async def test_steps_of_two_threads_share_an_id_only_where_one_is_a_copy_of_the_other(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    histories = few(request.config, range(40 if kind == "memory" else 12), 3)
    async with opened_journal(kind, tmp_path, request) as journal:
        agent = worker(journal)
        for history in histories:
            chance = random.Random(f"{kind} {history}")
            threads = [f"{history} first"]
            for move in range(14):
                await moved(agent, chance, threads, f"{history} {move}")
            for same in (await all_checkpoints(journal, threads)).values():
                assert len({replace(one, thread_id="") for one in same}) == 1, (history, same)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_checkpoint_of_another_thread_is_refused_by_name(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened_journal(kind, tmp_path, request) as journal:
        agent = worker(journal)
        for thread in ("a", "b"):
            for _ in range(2):
                await agent.adrive([call("1", "note")], thread_id=thread)
        await journal.copy_thread("a", "c")
        await agent.adrive([call("2", "note")], thread_id="c")
        before = await journal.history("b")
        newest = (await journal.history("c"))[0].id
        for wrong in [newest, *(one.id for one in await journal.history("a"))]:
            refusals = [
                agent.fork("b", wrong),
                agent.get_state("b", wrong),
                agent.update_state("b", {"messages": []}, checkpoint_id=wrong),
                agent.replay("b", wrong),
                agent.get_state_history("b", before=wrong),
                rewind(
                    *(agent, None, "b", wrong),  # type: ignore[arg-type]
                    run_id="run_r", force=False, advice="See the history.",
                ),
            ]  # fmt: skip
            for refused in refusals:
                with pytest.raises(UnknownCheckpoint) as error:
                    await refused
                text = str(error.value)
                assert f"hread 'b' has no checkpoint '{wrong}'" in text
                assert "'a'" not in text and "'c'" not in text and "othing was done" in text
        with pytest.raises(UnknownCheckpoint):
            await agent.fork("a", newest)  # what its copy did since is not its own
        assert await journal.history("b") == before
        root = before[-1].id
        assert await agent.get_state_history("b", before=root) == []


async def test_a_copy_made_in_the_middle_of_a_turn_keeps_the_results_of_its_calls() -> None:
    journal = MemoryCheckpointer()
    agent = worker(journal)
    asked = await agent.ainvoke("go", thread_id="t")
    assert asked.run.status == "needs_approval"
    await journal.copy_thread("t", "copy")
    copy = await agent.ainvoke("something else", thread_id="copy")
    assert [one.text[:6] for one in told(copy)][:2] == ["noted", "gated "]
    (question,) = asked.interrupts
    done = await agent.aresume(asked.run.id, {question.id: {"decision": "approve"}})
    assert [one.text for one in told(done)] == ["noted", "did it"]


async def test_a_run_that_an_older_version_left_goes_on_and_gives_ids_of_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Subagents at work go on too, and what they wrote to the files of their caller is kept."""
    write = says("", call("w", "write_file", path="/a.md", content="precious"))
    turns: dict[str, Any] = {
        "main": [says("", task("c1", "go", "helper")), says("End.")],
        "helper": [write, says("", call("x", "execute_it")), says("written")],
    }
    journal = MemoryCheckpointer()

    @tool
    async def execute_it() -> str:
        """Do what needs approval."""
        return "did it"

    cast = Cast(**turns)
    agent = create_deep_agent(
        *(cast, [execute_it]),
        subagents=[SubAgent("helper", "Helps.")],
        checkpointer=journal,
        policy=Policy((Rule("ask", "execute_it"),)),
    )
    with monkeypatch.context() as before:
        before.setattr(LONG_AGO, lambda parent, *_: step_id(parent))
        asked = [await agent.ainvoke("go", thread_id=thread) for thread in ("t", "u")]
    known = await all_checkpoints(journal, ["t", "u"])
    for result in asked:
        (question,) = result.interrupts
        done = await agent.aresume(result.run.id, {question.id: {"decision": "approve"}})
        assert done.run.status == "done" and [*done.state["files"]] == ["/a.md"]
        await agent.ainvoke("more", thread_id=result.run.thread_id)
    assert len(cast.asked_by("helper")) == 6  # none began anew
    later = await all_checkpoints(journal, ["t", "u"])
    assert {id_ for id_, same in known.items() if len(same) == 2} <= later.keys()
    heads = {(await journal.history(thread))[0].id for thread in ("t", "u")}
    assert len(heads) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_thread_begun_again_after_its_deletion_has_nothing_of_the_deleted_one(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened_journal(kind, tmp_path, request) as journal:
        here, elsewhere = Turns(*[says("ok")] * 3), Turns(*[says("ok")] * 3)
        agent = create_agent(here, checkpointer=journal)
        await agent.ainvoke("old secret", thread_id="t")
        await journal.delete_thread("t")
        other = create_agent(elsewhere, checkpointer=journal)  # as in another process
        await other.ainvoke("new question", thread_id="t")
        await agent.ainvoke("and then?", thread_id="t")
    asked = [one.text for one in here.requests[-1].messages]
    assert asked == ["new question", "ok", "and then?"]


@pytest.mark.parametrize("how", ["import", "copy"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_thread_imported_or_copied_again_has_nothing_of_the_deleted_one(
    how: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with opened_journal(kind, tmp_path, request) as journal:
        here, elsewhere = (Turns(*(says("ok") for _ in range(3))) for _ in range(2))
        agent = create_agent(here, checkpointer=journal)
        other = create_agent(elsewhere, checkpointer=journal)  # as in another process
        await other.ainvoke("one", thread_id="source")
        lines = [line async for line in export_thread(journal, "source")]

        async def put_back() -> None:
            if how == "import":
                await import_thread(journal, lines, "t")
            else:
                await journal.copy_thread("source", "t")

        await put_back()
        await agent.ainvoke("old secret", thread_id="t")
        await journal.delete_thread("t")
        await put_back()
        await other.ainvoke("new question", thread_id="t")
        await agent.ainvoke("and then?", thread_id="t")
    asked = [one.text for one in here.requests[-1].messages]
    assert asked == ["one", "ok", "new question", "ok", "and then?"]
