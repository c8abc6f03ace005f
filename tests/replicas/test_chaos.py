"""Replicas disturbed under load at random moments, as `python -m benchmarks replicas` does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.replicas import KINDS, Outcome, disturbed
from tests.databases import Database, made_database
from tests.replicas.servers import start

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


@pytest.mark.exhaustive(cases=1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
async def test_nothing_is_lost_and_nothing_done_twice(
    database: Database, tmp_path: Path, kind: str, seed: int
) -> None:
    outcome = Outcome()
    await disturbed(tmp_path, database.conninfo, kind, seed, outcome, start)
    assert outcome.done == outcome.runs
    assert outcome.once_repeated == outcome.run_again == 0
