"""The store in Redis keeps every promise of the kit."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.store.conformance import Promise
from tests.store.conftest import Opener, cases

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("kind", "promise"), cases("redis"))
async def test_a_promise_is_kept(kind: str, promise: Promise, opener: Opener) -> None:
    await promise.check(opener(kind))
