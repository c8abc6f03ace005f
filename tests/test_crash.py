"""Workers killed at random moments; `python -m benchmarks crash` kills a thousand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.crash import kill_repeatedly

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")


@pytest.mark.parametrize("seed", range(4))
def test_kills_at_random_moments_lose_nothing_and_repeat_nothing_that_was_stored(
    tmp_path: Path, seed: int
):
    outcome = kill_repeatedly(tmp_path, kills=25, seed=seed)
    assert outcome.wrong == []
    assert outcome.kills == 25
    # Otherwise the kills met nothing.
    assert outcome.threads > 5
    assert outcome.acknowledged > 100
