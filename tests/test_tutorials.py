"""A newcomer with an empty home can do what each tutorial says, without a key."""

from pathlib import Path

import pytest

from tests.tutorials import TUTORIALS, Newcomer, can_run, steps


@pytest.mark.skipif(not can_run(), reason="tutorials are written for a POSIX shell")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_newcomer_can_follow_it(page: Path, tmp_path: Path) -> None:
    with Newcomer(tmp_path).cleaned() as newcomer:
        newcomer.do(page)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_it_has_files_commands_and_no_other_blocks(page: Path) -> None:
    found = steps(page)
    blocks = page.read_text(encoding="utf-8").count("\n```") // 2
    assert sum(one["commands"] is None for one in found) == blocks
    assert any(one["commands"] for one in found)
