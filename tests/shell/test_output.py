import os
import tracemalloc
from pathlib import Path

import pytest

from deep_agent_mcp.harness.shell.output import Collector, Output, Preview, keep, preview

pytestmark = pytest.mark.anyio


def all_of(data: bytes) -> Output:
    return Output(data, b"", len(data))


async def collected(*chunks: bytes, head: int, tail: int) -> Output:
    collector = Collector(head, tail)
    for one in chunks:
        await collector.add(one)
    return await collector.finish()


async def test_a_short_output_is_kept_whole() -> None:
    output = await collected(b"one ", b"two", head=100, tail=10)
    assert (output.head, output.tail, output.size) == (b"one two", b"", 7)
    assert output.whole


async def test_of_a_long_output_the_beginning_and_the_end_are_kept() -> None:
    output = await collected(b"abcdef", b"ghij", b"klm", head=4, tail=5)
    assert (output.head, output.tail, output.size) == (b"abcd", b"ijklm", 13)
    assert not output.whole


async def test_what_does_not_fit_into_memory_comes_back_from_disk() -> None:
    chunk = os.urandom(700_000)
    output = await collected(*[chunk] * 10, b"last", head=5_000_000, tail=1_000)
    assert output.head == (chunk * 10)[:5_000_000]
    assert output.tail == chunk[-996:] + b"last"


async def test_an_output_of_any_length_takes_little_memory() -> None:
    collector, chunk = Collector(1_000, 1_000), b"x" * 3_000_000
    tracemalloc.start()
    try:
        for _ in range(10):
            await collector.add(chunk)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (await collector.finish()).size == 30_000_000
    assert most < 10_000_000


def test_a_short_output_is_shown_whole() -> None:
    assert preview(all_of(b"a\nb\n"), [], 2, 100) == Preview("a\nb\n")
    assert preview(all_of(b"no end"), [], 1, 100) == Preview("no end")


def test_of_many_lines_the_first_and_the_last_are_shown() -> None:
    data = b"".join(b"%d\n" % number for number in range(100))
    shown = preview(all_of(data), [], 5, 1_000)
    assert (shown.head, shown.tail) == ("0\n1\n2\n", "98\n99\n")
    assert (shown.lines, shown.kept) == (95, data)
    assert len(shown.head) + shown.size + len(shown.tail) == len(data)


def test_a_line_without_end_is_cut_too() -> None:
    shown = preview(all_of(b"<" + b"x" * 5_000 + b">"), [], 100, 100)
    assert shown.head == "<" + "x" * 49
    assert shown.tail == "x" * 49 + ">"


def test_the_end_of_one_line_that_was_not_kept_whole_is_shown() -> None:
    output = Output(b"x" * 1_000, b"y" * 90 + b" the end\n", 50_000)
    shown = preview(output, [], 100, 100)
    assert shown.tail.endswith("y the end\n")
    cut = Output(b"x" * 1_000, "é".encode()[1:] + b"y the end", 50_000)
    assert preview(cut, [], 100, 100).tail.endswith("xy the end")


def test_a_cut_falls_between_lines_where_it_can() -> None:
    data = b"first line\n" + b"middle\n" * 1_000 + b"last line\n"
    shown = preview(all_of(data), [], 10_000, 60)
    assert shown.head == "first line\nmiddle\nmiddle\n"
    assert shown.tail == "middle\nmiddle\nlast line\n"


@pytest.mark.parametrize("text", ["ü" * 1_000, "😀" * 1_000, "a😀" * 1_000])
def test_bytes_are_counted_not_characters(text: str) -> None:
    shown = preview(all_of(text.encode()), [], 100, 100)
    assert 0 < len(shown.head.encode()) <= 50
    assert 0 < len(shown.tail.encode()) <= 50


def test_what_is_no_text_can_be_shown_and_stored() -> None:
    shown = preview(
        all_of(b"\0\1\xff\x1b[1mbold\r\nnext\ttab\x1b]0;title\x07\xc2\x9b\x1b"), [], 10, 100
    )
    assert shown.head == "\ufffd\ufffd\ufffdbold\nnext\ttab\ufffd\ufffd"


def test_of_an_output_with_a_gap_both_ends_are_shown() -> None:
    output = Output(b"first\n" * 10, b"art\nlast\n", 1_000_000)
    shown = preview(output, [], 4, 1_000)
    assert (shown.head, shown.tail) == ("first\nfirst\n", "first\nlast\n")
    assert shown.kept == output.head
    assert shown.size > 999_000


def test_a_gap_is_told_where_what_is_left_would_fit() -> None:
    shown = preview(Output(b"first\n", b"last\n", 1_000), [], 100, 8_000)
    assert (shown.head, shown.tail, shown.kept) == ("first\n", "last\n", b"first\n")
    assert shown.size == 1_000 - len("first\nlast\n")


def test_rules_see_the_text_before_it_is_cut() -> None:
    data = b"x" * 45 + b"SECRET" + b"y" * 1_000
    shown = preview(all_of(data), [lambda text: text.replace("SECRET", "***")], 100, 100)
    assert shown.head == "x" * 45 + "***" + "yy"
    assert b"SECRET" not in (shown.kept or b"")


def test_what_is_kept_is_the_users_alone_and_ignored_by_git(tmp_path: Path) -> None:
    keep(b"data", tmp_path, ".out", "one.txt")
    keep(b"more", tmp_path, ".out", "two.txt")
    kept = tmp_path / ".out" / "one.txt"
    assert kept.read_bytes() == b"data"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / ".out" / ".gitignore").read_text() == "*\n"


def test_links_that_a_command_made_lead_nowhere(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (workspace / ".out").symlink_to(outside)
    with pytest.raises(OSError):
        keep(b"data", workspace, ".out", "one.txt")
    assert not list(outside.iterdir())
    (workspace / ".out").unlink()
    (workspace / ".out").mkdir()
    (workspace / ".out" / "one.txt").symlink_to(outside / "file")
    with pytest.raises(OSError):
        keep(b"data", workspace, ".out", "one.txt")
    assert not list(outside.iterdir())
