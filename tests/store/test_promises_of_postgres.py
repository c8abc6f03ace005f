"""The store in Postgres keeps every promise of the kit, with pgvector and without."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.store.conformance import Promise
from tests.store.conftest import Opener, cases

pytestmark = pytest.mark.anyio


@pytest.mark.exhaustive(cases=64)
@pytest.mark.parametrize(("kind", "promise"), cases("postgres", with_vectors="pgvector"))
async def test_a_promise_is_kept(kind: str, promise: Promise, opener: Opener) -> None:
    await promise.check(opener(kind))
