"""Events of a run that another server works on, as those hear them who wait for it here."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.checkpoint.base import Batch, Run, RunEvent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.server.runs.watching import FarEvents

pytestmark = pytest.mark.anyio

RUN = Run("run_1", "thr_1", "delegate", "main")


async def test_who_waits_hears_what_is_new_once_and_nothing_that_was_before() -> None:
    journal, heard = MemoryCheckpointer(), list[Event]()

    async def store(name: str) -> None:
        event = RunEvent(RUN.id, "custom", (), {"event": name})
        await journal.commit(Batch(RUN.thread_id, runs=[RUN], events=[event]))

    far = FarEvents(journal, RUN.id, heard.append)
    await store("before")
    await far.pass_on()
    assert not heard
    await store("new")
    await far.pass_on()
    await far.pass_on()
    assert [one.data for one in heard] == [{"event": "new"}]
