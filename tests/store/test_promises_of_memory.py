"""The store in memory keeps every promise of the kit, which `test_kit` checks with one call."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.store.conformance import Promise
from tests.store.conftest import Opener, cases

pytestmark = pytest.mark.anyio


@pytest.mark.exhaustive(cases=8)
@pytest.mark.parametrize(("kind", "promise"), cases("memory"))
async def test_a_promise_is_kept(kind: str, promise: Promise, opener: Opener) -> None:
    await promise.check(opener(kind))
