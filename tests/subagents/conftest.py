from __future__ import annotations

import pytest

from harness.checkpoint.memory import MemoryCheckpointer


@pytest.fixture
def journal() -> MemoryCheckpointer:
    return MemoryCheckpointer()
