"""Any replica takes any request: a run of one is waited for, answered and ended through others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from benchmarks.replica_trio import Fleet
from tests.databases import Database, made_database
from tests.e2e.servers import call, refused
from tests.replicas.servers import clients, journal_url, serving, until, waited

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.fixture(scope="module")
def fleet(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with serving(tmp_path_factory.mktemp("fleet"), journal_url(database)) as fleet:
        yield fleet


async def test_a_run_of_one_is_waited_for_and_answered_through_others(fleet: Fleet) -> None:
    async with clients(*fleet.all.values()) as (a, b, c):
        run = await call(a, "task", goal="work 2 ask work 1", wait_seconds=0)
        found = await waited(b, run["run_id"])
        assert found["status"] == "needs_approval"
        (question,) = found["questions"]
        answer = {question["id"]: {"decision": "approve"}}
        done = await call(c, "reply", run_id=run["run_id"], answers=answer)
        done = await waited(a, run["run_id"])
        assert (done["status"], done["answer"]) == ("done", "Finished work 2 ask work 1.")
        assert not fleet.effects.repeated()
