"""Replicas disturbed under load at random moments, as `python -m benchmarks replicas` does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.own_postgres import binaries, own_postgres
from benchmarks.replicas import ENGINE_KINDS, KINDS, Outcome, disturbed
from tests.databases import unavailable
from tests.replicas.servers import start

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if binaries() is None:
        unavailable("no initdb: install PostgreSQL's server")
    with own_postgres() as conninfo:
        yield conninfo


@pytest.mark.exhaustive(cases=1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
async def test_nothing_is_lost_and_nothing_done_twice(
    server: str, tmp_path: Path, kind: str, seed: int
) -> None:
    outcome = Outcome()
    await disturbed(tmp_path, server, kind, seed, outcome, start)
    assert outcome.done == outcome.runs
    assert outcome.once_repeated == outcome.run_again == 0


@pytest.mark.exhaustive(cases=1)
@pytest.mark.parametrize("kind", ENGINE_KINDS)
@pytest.mark.parametrize("seed", range(5))
async def test_nothing_is_lost_with_an_engine_that_all_share(
    server: str, tmp_path: Path, kind: str, seed: int
) -> None:
    outcome = Outcome()
    await disturbed(tmp_path, server, kind, seed, outcome, start, ("--engine", "dbos"))
    assert outcome.done == outcome.runs
    assert outcome.once_repeated == outcome.run_again == 0
