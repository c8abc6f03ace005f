"""Memory files: reading, caps, errors."""

import os
from pathlib import Path

import pytest

from deep_agent_mcp.harness.memory import MAX_MEMORY_BYTES, MemoryFiles


def test_files_come_in_order_without_comments_and_missing_ones_are_skipped(tmp_path: Path):
    one, two = tmp_path / "one.md", tmp_path / "two.md"
    one.write_bytes(b"\xef\xbb\xbfA\r\n<!-- not\r\nthis -->B\r\n")
    two.write_text("C")
    files = MemoryFiles([two, tmp_path / "missing.md", one, two])
    assert [(file.path, file.text) for file in files.snapshot.files] == [
        (str(two), "C"),
        (str(one), "A\nB"),
    ]
    assert not files.snapshot.errors


def test_a_change_is_seen_once_and_a_touch_is_none(tmp_path: Path):
    path = tmp_path / "AGENTS.md"
    files = MemoryFiles([path])
    assert not files.snapshot.files
    path.write_text("A")
    assert files.reload()
    assert not files.reload()
    os.utime(path)
    assert not files.reload()
    path.write_text("B")
    assert files.reload()
    assert files.snapshot.files[0].text == "B"
    path.unlink()
    assert files.reload()
    assert not files.snapshot.files
    assert files.snapshot.version == 4


def test_a_file_that_cannot_be_used_is_an_error_beside_its_last_good_text(tmp_path: Path):
    path = tmp_path / "AGENTS.md"
    path.write_text("good")
    files = MemoryFiles([path])
    path.write_bytes(b"a\nb\xff")
    assert files.reload()
    assert files.snapshot.files[0].text == "good"
    assert f"{path}:2: not UTF-8" in files.snapshot.errors[str(path)]
    path.unlink()
    path.mkdir()
    files.reload()
    assert "not a regular file" in files.snapshot.errors[str(path)]
    assert files.snapshot.files[0].text == "good"
    path.rmdir()
    path.write_text("new")
    assert files.reload()
    assert (files.snapshot.files[0].text, dict(files.snapshot.errors)) == ("new", {})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path):
    path = tmp_path / "AGENTS.md"
    os.mkfifo(path)
    assert "not a regular file" in MemoryFiles([path]).snapshot.errors[str(path)]


def test_all_files_together_stay_under_the_cap_and_say_so(tmp_path: Path):
    one, two, three = (tmp_path / name for name in ("1.md", "2.md", "3.md"))
    one.write_text("a" * (MAX_MEMORY_BYTES - 5))
    two.write_text("ü" * 10)
    three.write_text("c")
    first, second, third = MemoryFiles([one, two, three]).snapshot.files
    assert "Cut here" not in first.text
    assert second.text.startswith("üü\n[Cut here: 15 bytes")
    assert third.text.startswith("\n[Cut here: 1 bytes")
    one.write_text("x" * 1_000_001)
    assert "more than 1,000,000 bytes" in MemoryFiles([one]).snapshot.errors[str(one)]


def test_comments_do_not_count(tmp_path: Path):
    path = tmp_path / "AGENTS.md"
    path.write_text("<!--" + "x" * MAX_MEMORY_BYTES + "-->keep")
    assert MemoryFiles([path]).snapshot.files[0].text == "keep"
