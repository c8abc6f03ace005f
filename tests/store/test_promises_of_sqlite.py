"""The store on disk keeps every promise of the kit, with sqlite-vec and without."""

from __future__ import annotations

import pytest

from deep_agent_mcp.harness.store.conformance import Promise
from tests.store.conftest import Opener, cases

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("kind", "promise"), cases("sqlite", with_vectors="sqlite-vec"))
async def test_a_promise_is_kept(kind: str, promise: Promise, opener: Opener) -> None:
    await promise.check(opener(kind))
