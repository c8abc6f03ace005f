from __future__ import annotations

import pytest

from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer


@pytest.fixture
def journal() -> MemoryCheckpointer:
    return MemoryCheckpointer()
