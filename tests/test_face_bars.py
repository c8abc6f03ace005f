"""What the tools cost a model stays below the bars of `python -m benchmarks face`."""

from __future__ import annotations

import anyio
import pytest

from benchmarks import face

pytestmark = pytest.mark.anyio


async def test_a_model_can_afford_the_tools_and_their_results() -> None:
    with anyio.fail_after(60):
        report = await face.counted()
    missed = [bar for bar in report.bars if not bar.ok]
    assert not missed, f"{missed}\n{report.as_text()}"
