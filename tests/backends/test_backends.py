"""What every backend does alike."""

import anyio
import pytest

from deep_agent_mcp.harness.backends import base, search
from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.errors import ToolError
from tests.backends.workbench import Bench

pytestmark = pytest.mark.anyio


async def code_of(operation) -> str:
    with pytest.raises(FileError) as caught:
        await operation
    return caught.value.code


async def test_what_was_written_is_read(bench: Bench):
    files = bench.files()
    assert await files.write("/a/b/c.txt", b"one\r\n") is True
    assert await files.read("/a/b/c.txt") == b"one\r\n"
    assert await files.write("a/b/../b/c.txt".replace("../b/", ""), b"two") is False
    assert await files.read("\\a\\b\\c.txt") == b"two"


async def test_bytes_that_are_not_text_survive_the_journal(bench: Bench):
    files = bench.files()
    await files.write("/x.bin", bytes(range(256)))
    bench.apply(dict(files.update()))
    assert await bench.data("/x.bin") == bytes(range(256))


async def test_a_listing_has_directories_first_then_names(bench: Bench):
    for path in ("/b.txt", "/a.txt", "/z/1", "/.hidden/2"):
        await bench.seed(path, b"xy")
    entries = await bench.files().ls("/")
    assert [(one.path, one.is_dir) for one in entries if one.path not in bench.mounts] == [
        ("/.hidden", True),
        ("/z", True),
        ("/a.txt", False),
        ("/b.txt", False),
    ]
    assert [one.size for one in entries if not one.is_dir] == [2, 2]


async def test_failures_have_codes(bench: Bench):
    await bench.seed("/d/f", b"x")
    files = bench.files()
    assert await code_of(files.read("/no")) == "not_found"
    assert await code_of(files.ls("/no")) == "not_found"
    assert await code_of(files.delete("/no")) == "not_found"
    assert await code_of(files.grep("x", "/no")) == "not_found"
    assert await code_of(files.read("/d")) == "is_directory"
    assert await code_of(files.write("/d", b"")) == "is_directory"
    assert await code_of(files.write("/", b"")) == "is_directory"
    assert await code_of(files.ls("/d/f")) == "not_a_directory"
    assert await code_of(files.write("/d/f/g", b"")) == "not_a_directory"
    for bad in ("", "/../x", "a/../../b", "~/x", "C:\\x", "/a\0b", "/\ud800"):
        assert await code_of(files.read(bad)) == "invalid_path"
        assert await code_of(files.write(bad, b"")) == "invalid_path"


async def test_a_write_that_expects_other_content_changes_nothing(bench: Bench):
    await bench.seed("/f", b"theirs")
    files = bench.files()
    assert await code_of(files.write("/f", b"mine", expected=b"ours")) == "changed"
    assert await bench.data("/f") == b"theirs"
    assert await files.write("/f", b"mine", expected=b"theirs") is False
    assert await files.read("/f") == b"mine"


async def test_a_deleted_directory_is_gone_with_all_it_held(bench: Bench):
    for path in ("/d/a", "/d/e/b", "/keep"):
        await bench.seed(path, b"x")
    files = bench.files()
    await files.delete("/d")
    bench.apply(dict(files.update()))
    assert {one.path for one in await bench.files().ls("/")} == {"/keep", *bench.mounts}


async def test_glob_results_are_newest_first_and_capped(bench: Bench):
    for number in range(5):
        await bench.seed(f"/{number}.txt", b"x")
    assert len(await bench.files().glob("*", limit=3)) == 3
    files = bench.files()
    await files.write("/0.txt", b"newer")
    assert (await files.glob("*.txt", limit=1))[0].path == "/0.txt"


async def test_globs_that_explode_are_refused(bench: Bench):
    with pytest.raises(ToolError, match="cannot be used"):
        await bench.files().glob("{1..100}{1..100}{1..100}")
    with pytest.raises(ToolError, match="needed"):
        await bench.files().glob(" ")


async def test_grep_names_lines_and_skips_binary(bench: Bench):
    await bench.seed("/a.txt", b"one\r\ntwo ONE\r\n\r\n")
    await bench.seed("/b/c.md", "größe one".encode("latin-1"))
    await bench.seed("/d.bin", b"one\0")
    files = bench.files()
    page = await files.grep("one")
    assert [(one.path, one.line, one.text) for one in page.matches] == [
        ("/a.txt", 1, "one"),
        ("/b/c.md", 1, "größe one"),
    ]
    page = await files.grep("^.*ONE$", ignore_case=True, glob="*.txt")
    assert [one.line for one in page.matches] == [1, 2]
    assert [one.line for one in (await files.grep("^$")).matches] == [3]
    assert [one.path for one in (await files.grep("one", "/b")).matches] == ["/b/c.md"]
    assert [one.path for one in (await files.grep("one", "/a.txt")).matches] == ["/a.txt"]


async def test_grep_is_capped_and_says_so(bench: Bench):
    await bench.seed("/a", b"x\n" * 10)
    page = await bench.files().grep("x", limit=4)
    assert (len(page.matches), page.truncated) == (4, True)
    page = await bench.files().grep("x", limit=10)
    assert (len(page.matches), page.truncated) == (10, False)


async def test_long_lines_come_back_cut_around_the_match(bench: Bench):
    await bench.seed("/a", b"-" * 2_000 + b"needle" + b"-" * 2_000)
    (match,) = (await bench.files().grep("needle")).matches
    assert "needle" in match.text and len(match.text) < 600


async def test_an_expression_that_elsewhere_runs_for_ever_finds_its_line_at_once(bench: Bench):
    await bench.seed("/a", b"a" * 2_000 + b"b")
    with anyio.fail_after(20):
        page = await bench.files().grep("(.*a)*(.*a)*(.*a)*c?b$")
    assert [one.line for one in page.matches] == [1]


async def test_a_search_over_its_time_says_that_there_may_be_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    await bench.seed("/a", b"a\n" * 1_000)
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.0)
    page = await bench.files().grep("a")
    assert page.truncated and len(page.matches) < 1_000


async def test_a_wrong_expression_says_how_to_search_literally(bench: Bench):
    with pytest.raises(ToolError, match=r"use 'f\\\\\("):
        await bench.files().grep("f(")


async def test_two_calls_that_expect_the_same_content_do_not_both_win(shared: Bench):
    await shared.seed("/f", b"0")
    outcomes: list[str] = []

    async def change(data: bytes) -> None:
        try:
            await shared.files().write("/f", data, expected=b"0")
            outcomes.append("won")
        except FileError as error:
            outcomes.append(error.code)

    async with anyio.create_task_group() as group:
        for number in range(1, 6):
            group.start_soon(change, b"%d" % number)
    assert sorted(outcomes) == ["changed"] * 4 + ["won"]


def test_long_paths_are_not_remembered() -> None:
    before = base._remembered.cache_info().currsize
    assert base.canonical_path("x" * 100_000) == "/" + "x" * 100_000
    assert base._remembered.cache_info().currsize == before
    assert base.canonical_path("x") == base.canonical_path("/x") == "/x"
