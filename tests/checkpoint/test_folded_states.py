"""Agents whose log is long and whose state is small: what they read, and that it is exact."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict
from unittest.mock import patch

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.checkpoint.base import Checkpointer, ThreadSlice
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop import checkpoints as snapshots
from deep_agent_mcp.harness.loop.checkpoints import fingerprint
from deep_agent_mcp.harness.messages.message import HumanMessage, RemoveMessage
from deep_agent_mcp.harness.state.channels import Mark, Overwrite, Reducer
from deep_agent_mcp.harness.state.schema import StateSchema
from tests.loop.models import Turns, says

pytestmark = pytest.mark.anyio


def merged(current: dict[str, str], write: dict[str, str | None]) -> dict[str, str]:
    both = {**current, **write}
    return {key: value for key, value in both.items() if value is not None}


class Notes(TypedDict):
    files: NotRequired[
        Annotated[
            dict[str, str], Reducer(merged, write=dict[str, str | None], default=dict[str, str])
        ]
    ]
    seen: NotRequired[Annotated[list[str], Reducer(operator.add, default=list[str])]]
    label: NotRequired[str]
    scratch: NotRequired[Annotated[str, Mark.UNTRACKED]]


def last_wins(current: dict[str, str], write: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in write.items() if value is not None}


class Changed(TypedDict):
    files: NotRequired[
        Annotated[
            dict[str, str], Reducer(last_wins, write=dict[str, str | None], default=dict[str, str])
        ]
    ]


class Unused(MemoryCheckpointer):
    """Keeps snapshots and never hands one out."""

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
        schema: str | None = None,
    ) -> ThreadSlice | None:
        return await super().load(thread_id, ns, checkpoint_id, cached=cached)


def agent(journal: Checkpointer, state: type = Notes) -> Agent:
    """Return an agent that knows nothing yet, as after a restart."""
    return create_agent(Turns(says("done")), [], state_schema=state, checkpointer=journal)


async def opened(journal: Checkpointer, state: type = Notes) -> int:
    """Return how many bytes a fresh agent reads to open the thread."""
    schema = fingerprint(agent(journal, state).definition.schema)
    found = await journal.load("t", schema=schema)
    assert found is not None
    return sum(len(write.value) for write in found.writes)


async def rewritten(journal: Checkpointer, times: int = 200) -> Agent:
    """Return an agent that has rewritten one file many times."""
    worker = agent(journal)
    await worker.ainvoke("begin", thread_id="t")
    for number in range(times):
        content = f"{number} " * 500
        await worker.update_state("t", {"files": {"/f": content}, "label": str(number)})
    return worker


async def test_opening_reads_a_multiple_of_the_state_and_not_its_history():
    journal = MemoryCheckpointer()
    worker = await rewritten(journal)
    everything = await journal.load("t")
    assert everything is not None
    assert sum(len(one.value) for one in everything.writes) > 300_000
    assert await opened(journal) < 150_000
    fresh = await agent(journal).get_state("t")
    assert fresh.values == (await worker.get_state("t")).values
    assert fresh.values["files"] == {"/f": "199 " * 500}
    weights = [one.weight for one in await worker.get_state_history("t", limit=500)]
    assert max(weights) < 150_000


async def test_snapshots_are_few_and_small_beside_the_log():
    kept = 0

    class Counting(MemoryCheckpointer):
        async def commit(self, batch: Any) -> None:
            nonlocal kept
            kept += sum(len(one.value) for each in batch.snapshots for one in each.writes)
            await super().commit(batch)

    journal = Counting()
    await rewritten(journal)
    everything = await journal.load("t")
    assert everything is not None
    log = sum(len(one.value) for one in everything.writes)
    assert 0 < kept < log / 3


async def test_a_thread_that_only_grows_keeps_no_snapshot():
    journal = MemoryCheckpointer()
    worker = agent(journal)
    await worker.ainvoke("begin", thread_id="t")
    for number in range(100):
        await worker.update_state("t", {"seen": [f"{number} " * 500]})
    everything = await journal.load("t")
    assert everything is not None
    assert await opened(journal) == sum(len(one.value) for one in everything.writes)


async def test_another_reducer_folds_the_writes_anew():
    journal = MemoryCheckpointer()
    worker = await rewritten(journal)
    await worker.update_state("t", {"files": {"/g": "other"}})
    assert (await agent(journal, Changed).get_state("t")).values["files"] == {"/g": "other"}
    assert set((await agent(journal).get_state("t")).values["files"]) == {"/f", "/g"}


async def test_a_state_that_does_not_come_back_as_it_was_is_not_kept():
    class Loose(TypedDict):
        anything: NotRequired[Any]

    journal = MemoryCheckpointer()
    worker = agent(journal, Loose)
    await worker.ainvoke("begin", thread_id="t")
    for _ in range(40):
        await worker.update_state("t", {"anything": ("a tuple is a list in JSON " * 200,)})
    everything = await journal.load("t")
    assert everything is not None
    assert await opened(journal, Loose) == sum(len(one.value) for one in everything.writes)


def test_fingerprints_tell_schemas_apart_and_stay():
    def schema(fn: Callable[[Any, Any], Any], key: str = "key") -> StateSchema:
        annotation = Annotated[list[str], Reducer(fn, default=list)]
        return StateSchema.of((TypedDict("S", {key: annotation}), "test"))  # type: ignore[misc]

    def one(current: list[str], write: list[str]) -> list[str]:
        return [*current, *write]

    def keeping(number: int) -> Callable[[Any, Any], Any]:
        return lambda current, write: [*current, *write][-number:]

    assert fingerprint(schema(one)) == fingerprint(schema(one))
    different = [schema(one), schema(operator.add), schema(one, "other"), schema(lambda a, b: b)]
    assert len({fingerprint(each) for each in different}) == len(different)
    assert fingerprint(schema(keeping(2))) is None


Update = Mapping[str, Any]
updates: st.SearchStrategy[Update] = st.dictionaries(
    st.sampled_from(["files", "seen", "label", "scratch"]), st.none(), min_size=1
).flatmap(
    lambda keys: st.fixed_dictionaries(
        {
            key: {
                "files": st.dictionaries(
                    st.sampled_from(["/a", "/b"]), st.none() | st.text("xyz", max_size=9)
                )
                | st.just(Overwrite({"/c": "only"})),
                "seen": st.lists(st.text("pq"), max_size=2) | st.just(Overwrite(["new"])),
                "label": st.text("kl"),
                "scratch": st.text("m"),
            }[key]
            for key in keys
        }
    )
)
plans = st.lists(st.tuples(st.integers(0, 5), updates), min_size=1, max_size=14)


async def played(journal: Checkpointer, plan: Sequence[tuple[int, Update]]) -> list[Update]:
    """Write to the head or a place before it; return the state at every checkpoint, read anew."""
    worker = agent(journal)
    await worker.ainvoke([HumanMessage("begin", id="m1")], thread_id="t")
    await worker.update_state("t", {"messages": [HumanMessage("x", id="m2")]})
    await worker.update_state("t", {"messages": [RemoveMessage("m2")]})
    for back, update in plan:
        places = await worker.get_state_history("t")
        place = places[min(back, len(places) - 1)].id if back else None
        await worker.update_state("t", update, checkpoint_id=place)
    ids = [one.id for one in await worker.get_state_history("t", limit=100)]
    states = [(await agent(journal).get_state("t", one)).values for one in ids]
    return [{**state, "messages": [one.text for one in state["messages"]]} for state in states]


@given(plan=plans)
def test_every_state_is_the_same_with_snapshots_and_without(plan: list[tuple[int, Update]]):
    made = 0
    make = snapshots.snapshot_of

    def counting(*args: Any) -> Any:
        nonlocal made
        snapshot = make(*args)
        made += snapshot is not None
        return snapshot

    async def both() -> None:
        with (
            patch.object(snapshots, "_FROM_BYTES", 1),
            patch.object(snapshots, "_TIMES", 0),
            patch("deep_agent_mcp.harness.loop.checkpoints.snapshot_of", counting),
        ):
            assert await played(MemoryCheckpointer(), plan) == await played(Unused(), plan)

    anyio.run(both)
    assert made > 0
