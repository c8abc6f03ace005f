"""Every backend's answers lead from page to page until nothing is left, whatever the caps are."""

import ast
import codecs
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.file_tools import results as found
from deep_agent_mcp.harness.backends.search import Budget
from deep_agent_mcp.harness.backends.state import StateBackend
from tests.backends.workbench import Bench

pytestmark = pytest.mark.anyio


def call_of(text: str) -> tuple[str, dict[str, Any]]:
    """Read a call as a model would: `ls(path="/a", offset=50)`."""
    node = ast.parse(text.replace("=true", "=True"), mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return node.func.id, {one.arg: ast.literal_eval(one.value) for one in node.keywords if one.arg}


async def pages(bench: Bench, name: str, **args: Any) -> list[dict[str, Any]]:
    """Follow the call for the next page to the end."""
    got: list[dict[str, Any]] = []
    while True:
        result = await bench.result(name, **args)
        artifact: Any = result.artifact
        assert isinstance(result.content, str)
        assert len(result.content) < 9_000
        got.append(artifact)
        if "next" not in artifact:
            assert "next: " not in result.content.split("\n")[0]
            return got
        assert artifact["next"] in result.content
        name, args = call_of(artifact["next"])


@pytest.fixture
def small_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "MAX_RESULTS", 7)
    monkeypatch.setattr(found, "MAX_COUNTED", 10)


async def seed(bench: Bench) -> dict[str, int]:
    """Put 40 files where lines are found: as many as the number in their names says."""
    counts = {f"/{'abs'[n % 3]}/{n % 4}/f{n}.txt": n % 5 + 1 for n in range(40)}
    await bench.seed_all({path: b"hay\nneedle\n" * count for path, count in counts.items()})
    return counts


async def test_grep_leads_to_every_line_in_a_stable_order(bench: Bench, small_caps: None):
    counts = await seed(bench)
    got = await pages(bench, "grep", pattern="needle", output_mode="content")
    rows = [(row["path"], row["line"]) for page in got for row in page["results"]]
    assert rows == sorted(rows, key=lambda row: (row[0].split("/"), row[1]))
    assert Counter(path for path, _ in rows) == counts
    assert {line for _, line in rows} == {2, 4, 6, 8, 10}
    assert got[0]["truncated"] and not got[-1]["truncated"]


@pytest.mark.parametrize("mode", ["files", "count"])
async def test_grep_leads_to_every_file_with_its_whole_count(
    bench: Bench, small_caps: None, mode: str
):
    counts = await seed(bench)
    await bench.seed("/z/many.txt", b"needle\n" * 500)
    got = await pages(bench, "grep", pattern="needle", output_mode=mode)
    rows = [row for page in got for row in page["results"]]
    paths = [row["path"] for row in rows]
    assert paths == sorted({*counts, "/z/many.txt"}, key=lambda path: path.split("/"))
    if mode == "count":
        assert {row["path"]: row["count"] for row in rows} == {**counts, "/z/many.txt": 500}
    assert not got[-1]["truncated"]


async def test_glob_leads_to_every_file_newest_first(bench: Bench, small_caps: None):
    counts = await seed(bench)
    got = await pages(bench, "glob", pattern="**/*.txt")
    paths = [row["path"] for page in got for row in page["results"]]
    assert len(paths) == len({*paths}) and {*paths} == {*counts}
    ages = {one.path: one.modified or 0 for one in await bench.files().glob("*")}
    assert paths == sorted(paths, key=lambda path: (-ages[path], path))
    assert len(got) >= 3 and got[0]["truncated"] and not got[-1]["truncated"]


async def test_ls_leads_to_every_entry(bench: Bench):
    names = [f"/d/{'long name ' * 8}{number:03}" for number in range(150)]
    await bench.seed_all(dict.fromkeys(names, b""))
    got = await pages(bench, "ls", path="/d")
    assert [row["path"] for page in got for row in page["entries"]] == names
    assert len(got) >= 2


async def test_read_file_leads_to_every_character_of_any_line(bench: Bench):
    text = "\n".join(["short", "x" * 30_000, "é" * 9_000, "", "last " * 500]) + "\n"
    await bench.seed("/f", codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode())
    seen, args = "", {"path": "/f"}
    for _ in range(20):
        page = await bench.call("read_file", **args)
        head, _, body = page.partition("\n")
        seen += body
        if "next: " not in head:
            break
        name, args = call_of(head.rpartition("next: ")[2].removesuffix("]"))
        assert name == "read_file"
    assert seen == text


async def test_a_wild_offset_is_past_the_end_and_does_no_more_than_the_most(
    bench: Bench, small_caps: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(found, "MOST", 30)
    counts = await seed(bench)
    for args in ({"output_mode": "content"}, {"output_mode": "count"}, {}):
        result = await bench.result("grep", pattern="needle", offset=10**12, **args)
        assert "is past the end" in str(result.content) and "narrow" in str(result.content)
        artifact: Any = result.artifact
        assert artifact["truncated"] and artifact["total"] <= 30 and "next" not in artifact
    result = await bench.result("glob", pattern="*", offset=10**12)
    assert len(counts) > 30 and "narrow" in str(result.content)


async def test_what_was_found_before_time_ran_out_is_shown_and_how_to_get_the_rest(
    disk: Bench, monkeypatch: pytest.MonkeyPatch
):
    for number in range(10):
        await disk.seed(f"/{number}", b"x\n")
    looks = 0

    def over(self: Budget) -> bool:
        nonlocal looks
        looks += 1
        return looks > 4

    monkeypatch.setattr(Budget, "over", over)
    for name in ("glob", "grep"):
        looks = 0
        result = await disk.result(name, pattern="*" if name == "glob" else "x", path="/")
        artifact: Any = result.artifact
        assert artifact["truncated"] and [row["path"] for row in artifact["results"]]
        assert artifact["total"] < 10
        assert "no time to look everywhere" in str(result.content)


async def test_parts_that_ran_out_of_time_make_the_whole_answer_say_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "f").write_text("x")
    monkeypatch.setattr(Budget, "over", lambda self: True)
    backend = CompositeBackend(StateBackend(), {"/disk": DirectoryBackend(tmp_path)})
    result = await Bench(backend, tmp_path).result("glob", pattern="*")
    assert "no time to look everywhere" in str(result.content)
