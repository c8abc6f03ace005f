"""Searching with ripgrep finds what searching without it finds."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends import ripgrep
from deep_agent_mcp.harness.backends.base import GrepMatch, Page
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.directory import search as directory_search
from deep_agent_mcp.harness.backends.expressions import line_expression
from deep_agent_mcp.harness.backends.ignore import without_ignored
from deep_agent_mcp.harness.backends.ripgrep import candidates, find_ripgrep, prefilter
from deep_agent_mcp.harness.backends.search import names_of
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.errors import ToolError
from tests.backends.patterns import PATTERNS
from tests.backends.workbench import Bench
from tests.ports_and_waits import growing

pytestmark = pytest.mark.anyio

RIPGREP = find_ripgrep() or ""
if not RIPGREP:
    pytest.skip("ripgrep is not here; the extra `search` brings it", allow_module_level=True)

TEXTS = st.text(alphabet="abKsi_7-. \töéß\u017f\u212a\n\r\x1c\\", max_size=40)
CODECS = ("utf-8", "utf-8-sig", "latin-1", "utf-16", "cp1252")


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=20))
    return draw(TEXTS).encode(draw(st.sampled_from(CODECS)), "replace")


FOLDERS = ("0", "0.x", "0 x", "1/.h", "ö")
"""Names that sort differently as a whole and part by part."""
GLOBS = (
    *("*.txt", "[0-4].*", "/0/*", "**/.h/*", "{1,ö}/**"),
    *("**/*.txt", "**/1.txt", "1.{txt,md}", "{0,1}", "{0..3}.txt", "*.{txt}", "{0,1}.txt", ".*"),
)
SEARCHES = st.fixed_dictionaries(
    {
        "path": st.sampled_from(["/", "/", "/1", "/0"]),
        "glob": st.sampled_from([None, None, *GLOBS]),
        "ignore_case": st.booleans(),
        "limit": st.sampled_from([1, 2, 5, 1_000]),
    }
)
EVERYWHERE = {"path": "/", "glob": None, "ignore_case": False, "limit": 1_000}


@given(PATTERNS, st.lists(contents(), min_size=1, max_size=12), SEARCHES)
@example("^b", [b"a\rb", b"\xef\xbb\xbfb", b"x\nb", "b".encode("utf-16")], EVERYWHERE)
@example("a$", [b"a" + b" " * 5_000, b" " * 3_999 + b"a" + b" " * 50], EVERYWHERE)
@example("k", ["\u212a".encode(), "\u212a".encode("utf-16")], EVERYWHERE | {"ignore_case": True})
@example("ö.ö", ["öäö".encode("latin-1"), "öäö".encode()], EVERYWHERE)
@example("a", [b"a\0", b"\0a", b"x" * 70_000 + b"\na\n\0", "a\0".encode("utf-16")], EVERYWHERE)
@example("a", [b"a", b"a"], EVERYWHERE | {"glob": "1.txt"})
@example("a.{3}b", ["aöööb".encode(), "aöööb".encode("latin-1")], EVERYWHERE)
async def test_the_same_lines_are_found(pattern: str, files: list[bytes], asked: dict[str, Any]):
    try:
        line_expression(pattern)
    except ToolError:
        return
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True)
        for number, data in enumerate(files):
            place = root / FOLDERS[number % len(FOLDERS)]
            (place / f"{number}.txt").write_bytes(data)
        pages = [
            await Bench(backend, root).files().grep(pattern, **asked)
            for backend in (DirectoryBackend(root), DirectoryBackend(root, ripgrep=False))
        ]
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("pattern", "wide"),
    [
        ("needle", r"(?-u:\x6E\x65\x65\x64\x6C\x65)"),
        (r"\bok$", r"(?-u:\x6F\x6B)"),
        (r"\p{Lu}x", None),
        ("[[:alpha:]]x", None),
        ("(?i)x", None),
        ("(?:cat){e<=1}", None),
        ("x*", None),
    ],
)
def test_only_what_is_surely_no_narrower_is_asked_of_ripgrep(pattern: str, wide: str | None):
    assert prefilter(line_expression(pattern)) == wide


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        (None, ["a.md", "a.txt"]),
        ("*.md", ["a.md"]),
        ("**/a.{txt,rst}", ["a.txt"]),
        ("/*.md", ["a.md", "a.txt"]),
        ("at/*.md", ["a.md", "a.txt"]),
    ],
)
@pytest.mark.parametrize("kind", ["directory", "mounted", "with ignored"])
async def test_ripgrep_is_asked_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, glob: str | None, names: list[str]
):
    asked: list[object] = []

    async def noted(*args: Any, **options: Any) -> object:
        found = await candidates(*args, **options)
        asked.append(found and found.names)
        return found

    monkeypatch.setattr(directory_search, "candidates", noted)
    for name in ("a.md", "a.txt"):
        (tmp_path / name).write_text("needle\n")
    (tmp_path / "b.md").write_text("hay\n")
    backend: Any = DirectoryBackend(tmp_path)
    if kind == "mounted":
        backend = CompositeBackend(StateBackend(), {"/at": backend})
    files = Bench(backend, tmp_path).files()
    wanted = await without_ignored(files, "/", glob or "") if kind == "with ignored" else glob
    await files.grep("needle", glob=wanted)
    assert asked == [names]


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("*", "*"),
        ("**/*.test.ts", "*.test.ts"),
        ("*.{ts,tsx}", "*.{ts,tsx}"),
        ("Makefile", "Makefile"),
        ("**/", None),
        ("", None),
        ("src/*.py", None),
        ("/*.py", None),
        ("*.{py}", None),
        ("{1..3}.py", None),
        ("{a,{b,c}}", None),
        ("!a", None),
        ("a*b", None),
        ("[ab]", None),
        ("a?", None),
        ("\\*.py", None),
        ("ö.py", None),
        ("a.py\n", None),
    ],
)
def test_only_globs_that_mean_the_same_everywhere_are_asked_of_ripgrep(
    glob: str, names: str | None
):
    assert names_of(glob) == names


async def test_a_line_end_in_a_name_belongs_to_it(tmp_path: Path):
    (tmp_path / "a.md\n").write_text("needle\n")
    for backend in (DirectoryBackend(tmp_path), DirectoryBackend(tmp_path, ripgrep=False)):
        files = Bench(backend, tmp_path).files()
        assert not (await files.grep("needle", glob="*.md")).matches
        assert len((await files.grep("needle", glob="a*")).matches) == 1


@pytest.mark.parametrize("program", ["/nowhere/rg", "/bin/false"])
async def test_a_ripgrep_that_does_not_work_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
):
    script = tmp_path / "rg"
    script.write_text("#!/bin/sh\nexit 2\n")
    script.chmod(0o755)
    monkeypatch.setattr(
        directory_search,
        "find_ripgrep",
        lambda: str(script) if program == "/bin/false" else program,
    )
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("needle\n")
    page = await Bench(DirectoryBackend(root), root).files().grep("needle")
    assert [one.path for one in page.matches] == ["/a"]


async def test_ripgrep_is_ended_in_time_and_the_answer_says_there_may_be_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "rg"
    script.write_text('#!/bin/sh\nprintf "./a\\0./b"\necho $$ > "$0.pid"\nexec sleep 1000\n')
    script.chmod(0o755)
    monkeypatch.setattr(directory_search, "find_ripgrep", lambda: str(script))
    root = tmp_path / "root"
    root.mkdir()
    for name in "ab":
        (root / name).write_text("needle\n")
    with anyio.fail_after(60):
        for share in growing(0.05, 0.8):
            monkeypatch.setattr(directory_search, "LIKELY_SHARE", share)
            page = await Bench(DirectoryBackend(root), root).files().grep("needle")
            if page.matches:
                break
    assert page == Page([GrepMatch("/a", 1, "needle")], truncated=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path(f"{script}.pid").read_text()), 0)


async def test_links_and_ignored_and_hidden_files(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_text("needle\n")
    root = tmp_path / "root"
    (root / ".hidden").mkdir(parents=True)
    (root / ".gitignore").write_text("*.log\n")
    for name in (".hidden/x", "y.log", "z"):
        (root / name).write_text("needle\n")
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    page = await Bench(DirectoryBackend(root), root).files().grep("needle")
    assert [one.path for one in page.matches] == ["/.hidden/x", "/y.log", "/z"]
    assert ripgrep.find_ripgrep() == RIPGREP
