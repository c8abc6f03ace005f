from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.backends.workbench import BACKENDS, DISKS, SHARED, Bench, opened


@pytest.fixture(params=BACKENDS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=DISKS)
async def disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=SHARED)
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with opened(request.param, tmp_path) as made:
        yield made
