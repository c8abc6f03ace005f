"""Names, patterns, lines and odd contents mean the same in every backend."""

import re

import pytest

from deep_agent_mcp.harness.backends.base import FileError, Files
from deep_agent_mcp.harness.errors import ToolError
from tests.backends.workbench import Bench

pytestmark = pytest.mark.anyio

FILES = (
    *("/README.md", "/a.py", "/A.PY", "/.env", "/src/a.py", "/src/b.ts", "/src/.hidden/c.py"),
    *("/src/deep/er/d.py", "/src/[x].py", "/src/a b.txt", "/src/größe.md", "/b/x.py", "/s/y.py"),
    *("/docs/v1/x.md", "/docs/v2/x.md", "/docs/v10/x.md", "/src/a.py.bak", "/src/{y}.py"),
)


def test_the_files_are_in_every_part_of_a_composite():
    assert {"/b", "/s", "/src"} <= {path.rpartition("/")[0] for path in FILES}


GLOBS = (
    ("a.py", "/", "/a.py /src/a.py"),
    ("*.py", "/src", "/src/a.py /src/.hidden/c.py /src/deep/er/d.py /src/[x].py /src/{y}.py"),
    ("*.{py,ts}", "/src/deep", "/src/deep/er/d.py"),
    ("*.{md,{ts,bak}}", "/src", "/src/b.ts /src/größe.md /src/a.py.bak"),
    ("src/*.ts", "/", "/src/b.ts"),
    ("src/*", "/", "/src/a.py /src/b.ts /src/[x].py /src/a b.txt /src/größe.md /src/a.py.bak "
        "/src/{y}.py"),
    ("/src/*.ts", "/", "/src/b.ts"),
    ("/src/*.ts", "/src", "/src/b.ts"),
    ("/*.py", "/", "/a.py"),
    ("src/**/*.py", "/", "/src/a.py /src/.hidden/c.py /src/deep/er/d.py /src/[x].py "
        "/src/{y}.py"),
    ("**/er/*", "/", "/src/deep/er/d.py"),
    ("src/**", "/", "/src/a.py /src/b.ts /src/.hidden/c.py /src/deep/er/d.py /src/[x].py "
        "/src/a b.txt /src/größe.md /src/a.py.bak /src/{y}.py"),
    ("**", "/docs", "/docs/v1/x.md /docs/v2/x.md /docs/v10/x.md"),
    ("docs/v?/x.md", "/", "/docs/v1/x.md /docs/v2/x.md"),
    ("docs/v{1..2}/x.md", "/", "/docs/v1/x.md /docs/v2/x.md"),
    ("docs/v[0-9]*/x.md", "/", "/docs/v1/x.md /docs/v2/x.md /docs/v10/x.md"),
    ("v1/*", "/docs", "/docs/v1/x.md"),
    (".*", "/", "/.env"),
    (".hidden/*", "/src", "/src/.hidden/c.py"),
    ("[[]x].py", "/", "/src/[x].py"),
    ("\\{y\\}.py", "/", "/src/{y}.py"),
    ("[!a]*.py", "/src", "/src/.hidden/c.py /src/deep/er/d.py /src/[x].py /src/{y}.py"),
    ("gr*e.md", "/", "/src/größe.md"),
    ("gr??e.md", "/", "/src/größe.md"),
    ("a b.txt", "/", "/src/a b.txt"),
    ("*.PY", "/", "/A.PY"),
    ("*.py", "/b", "/b/x.py"),
    ("[bs]/*.py", "/", "/b/x.py /s/y.py"),
    ("../*", "/src", ""),
    ("/../*", "/", ""),
    ("src", "/", ""),
    ("nothing*", "/", ""),
)  # fmt: skip


async def test_globs(bench: Bench):
    await bench.seed_all(dict.fromkeys(FILES, b"line\n"))
    for pattern, path, found in GLOBS:
        wanted = {f"/{one}" for one in found.replace(" /", "\0").lstrip("/").split("\0") if one}
        matched = {one.path for one in await bench.files().glob(pattern, path)}
        assert matched == wanted, pattern
        if "/" not in pattern and not pattern.startswith("."):
            # The same pattern chooses the files that grep looks into.
            page = await bench.files().grep("line", path, glob=pattern)
            assert {one.path for one in page.matches} == wanted, pattern


async def test_patterns_are_bounded_whatever_they_expand_to(bench: Bench):
    await bench.seed("/a", b"x")
    for pattern in ("{a,b}" * 12, "{1..100000}", "[" * 5_000, "*" * 2_000, "{" * 300, "**/" * 200):
        try:
            await bench.files().glob(pattern)
        except ToolError as error:
            assert "cannot be used" in str(error)
    with pytest.raises(ToolError, match="cannot be used"):
        await bench.files().glob("{1..100000}")


async def test_what_is_too_long_to_repeat_is_refused_in_few_words(bench: Bench):
    huge = "x" * 1_000_000
    for tool, args in (
        ("glob", {"pattern": huge}),
        ("grep", {"pattern": huge}),
        ("grep", {"pattern": "x", "glob": huge}),
        ("read_file", {"path": f"../{huge}"}),
        ("read_file", {"path": huge}),
        ("write_file", {"path": f"~{huge}", "content": ""}),
    ):
        with pytest.raises(ToolError) as caught:
            await bench.call(tool, **args)
        assert len(str(caught.value)) < 2_000, tool
    for name, args in (("glob", {"pattern": "y" * 1_000}), ("grep", {"pattern": "y" * 2_000})):
        assert len(await bench.call(name, **args)) < 10_000


TEXTS = {
    "/b/1.txt": "Größe und 大きさ\nnaïve cafe\u0301\n",
    "/empty": "",
    "/one": "no newline at the end",
    "/s/blank": "\n\n\n",
    "/src/code.py": "def f(x):\n\treturn x[0] + 1.5  # TODO(me): a|b\n",
    "/src.txt": "def g():\n",
}


LINES = (
    (r"def \w+\(", ["/src/code.py:1", "/src.txt:1"]),
    (r"def", ["/src/code.py:1", "/src.txt:1"]),
    (re.escape("x[0] + 1.5"), ["/src/code.py:2"]),
    (re.escape("TODO(me): a|b"), ["/src/code.py:2"]),
    (r"größe", []),
    (r"(?i)GRÖSSE|größe", ["/b/1.txt:1"]),
    (r"大き", ["/b/1.txt:1"]),
    ("cafe\u0301", ["/b/1.txt:2"]),
    (r"end$", ["/one:1"]),
    (r"^$", ["/s/blank:1", "/s/blank:2", "/s/blank:3"]),
    (r"^\treturn", ["/src/code.py:2"]),
    (r"f\(x\):\n", []),
    (r"nothing like it", []),
)


async def test_grep(bench: Bench):
    await bench.seed_all({path: text.encode() for path, text in TEXTS.items()})
    for pattern, found in LINES:
        page = await bench.files().grep(pattern)
        # In the order of a walk: a directory's files come before a name that only begins like it.
        assert [f"{one.path}:{one.line}" for one in page.matches] == found, pattern
        assert not page.truncated


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
async def test_a_line_of_a_megabyte_is_searched_at_its_start_and_shown_cut(bench: Bench, end: str):
    text = f"first{end}needle {'x' * 1_000_000} needle{end}needle{end}"
    await bench.seed("/huge", text.encode())
    page = await bench.files().grep("needle")
    assert [one.line for one in page.matches] == [2, 3]
    assert len(page.matches[0].text) < 600
    assert await bench.data("/huge") == text.encode()


async def test_empty_files_and_directories(bench: Bench):
    files = bench.files()
    assert await files.write("/d/empty", b"") is True
    assert await files.read("/d/empty") == b""
    assert [(one.path, one.size) for one in await files.ls("/d")] == [("/d/empty", 0)]
    assert await files.write("/d/empty", b"", expected=b"") is False
    assert (await files.grep("x", "/d")).matches == []
    bench.apply(dict(files.update()))
    assert await bench.call("read_file", path="/d/empty") == "[/d/empty is empty]"


async def test_any_name_is_kept_as_it_is(bench: Bench):
    for name in ("ä ö", "大", "😀", "e\u0301", "a\nb", "a'b\"c", "%41", "a;b", "-x"):
        await keeps(bench.files(), name)


async def keeps(files: Files, name: str) -> None:
    path = f"/{name}/{name}.txt"
    await files.write(path, b"needle")
    assert await files.read(path) == b"needle"
    assert [one.path for one in await files.ls(f"/{name}")] == [path]
    assert [one.path for one in await files.glob("*.txt")] == [path]
    assert [one.path for one in (await files.grep("needle")).matches] == [path]
    await files.delete(path)
    with pytest.raises(FileError) as caught:
        await files.read(path)
    assert caught.value.code == "not_found"


async def test_searches_see_what_the_same_call_wrote_and_deleted(bench: Bench):
    await bench.seed("/old", b"needle")
    files = bench.files()
    await files.write("/new", b"needle")
    await files.delete("/old")
    assert [one.path for one in await files.glob("*")] == ["/new"]
    assert [one.path for one in (await files.grep("needle")).matches] == ["/new"]
    assert [one.path for one in await files.ls("/") if one.path not in bench.mounts] == ["/new"]


async def test_the_root_is_never_deleted(bench: Bench):
    await bench.seed("/f", b"x")
    with pytest.raises(FileError) as caught:
        await bench.files().delete("/")
    assert caught.value.code == "permission_denied"
    assert await bench.data("/f") == b"x"


async def test_every_error_names_the_path_and_says_what_happened(bench: Bench):
    await bench.seed("/d/f", b"x")
    files = bench.files()
    for operation, path in (
        (files.read("/d/no"), "/d/no"),
        (files.read("/d"), "/d"),
        (files.ls("/d/f"), "/d/f"),
        (files.write("/d", b""), "/d"),
        (files.write("/d/f/g", b""), "/d/f/g"),
        (files.delete("/d/no"), "/d/no"),
        (files.glob("*", "/no"), "/no"),
        (files.grep("x", "/no"), "/no"),
        (files.write("/d/f", b"", expected=b"y"), "/d/f"),
    ):
        with pytest.raises(FileError) as caught:
            await operation
        assert caught.value.path == path and path in str(caught.value)
