"""What `.gitignore` leaves out is what Git leaves out."""

import re
import shutil
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.ignore import without_ignored
from tests.backends.workbench import Bench

pytestmark = pytest.mark.anyio

PATHS = tuple(
    f"{first}{second}{name}"
    for first in ("", "a/", "b/", "a.b/")
    for second in ("", "a/", "build/")
    for name in ("c", "ab", "x.log", "a.py", "#c", "!d", "e ", "build.py")
)
PIECES = (
    "a",
    "b",
    "c",
    "*",
    "**",
    "?",
    "/",
    "/",
    ".log",
    ".py",
    "build",
    "[ab]",
    "[!a]",
    "x",
    "\\a",
)
LINES = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join),
    st.tuples(
        st.sampled_from(["!", "/", ""]),
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join),
        st.sampled_from(["", "/", "/**", " ", "  "]),
    ).map("".join),
    st.sampled_from(
        ["#c", "\\#c", "!d", "\\!d", "e ", "e\\ ", "", " ", "[a", "[[:alpha:]]", "a\\"]
    ),
)
ODD_STARS = re.compile(r"[^/!]\*\*|\*\*[^/ ]")
"""Git does not match these as its documentation says."""

FILES = st.lists(LINES.filter(lambda line: not ODD_STARS.search(line)), max_size=4)


def by_git(root: Path) -> set[str]:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        env={
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "PATH": "/usr/bin",
        },
    )
    return {f"/{name}" for name in listed.stdout.decode().split("\0")[:-1]}


@pytest.mark.skipif(shutil.which("git") is None, reason="Git is what it is held against")
@given(top=FILES, inner=FILES)
@example(top=["*.log", "!x.log"], inner=["*.log"])
@example(top=["a/", "!a/x.log"], inner=["!*"])
@example(top=["/a/**/x.log", "**/build", "b/**"], inner=[])
@example(top=["\ufeffa.py", "e\r"], inner=["!/a\r"])
@example(top=[], inner=["\\#c", "!/**"])
async def test_the_same_files_are_left_out_as_by_git(top: list[str], inner: list[str]):
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for path in PATHS:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
        (root / ".gitignore").write_text("\n".join(top) + "\n", newline="")
        (root / "a.b/.gitignore").write_text("\n".join(inner) + "\n", newline="")
        files = Bench(DirectoryBackend(root), root).files()
        kept = await without_ignored(files, "/", "")
        ours = {one.path for one in await files.glob(kept)}
        assert ours == by_git(root)


SETS = (
    "[ab] [!a] [^b] [a-c] [c-a] []a] [a-] [-a] [[:alpha:].] [[:nope:]] [![:digit:]] [\\]] [/a] [a "
    "[[] [a-\\c] [[:alpha] [[:]] [a-b-c] [!] []-a]"
)
TOKENS = st.sampled_from(
    [*"aab./?!^-]", "*", "*", "**/", "/**", "/**/", "\\*", "\\/", "\\[", *SETS.split()]
)
NAMES = st.text("aab.c*[-]", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))


def ignored_by_git(root: Path, paths: list[str]) -> set[str]:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    answer = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=root,
        input="\0".join(paths).encode(),
        capture_output=True,
    )
    return set(answer.stdout.decode().split("\0")[:-1])


@pytest.mark.skipif(shutil.which("git") is None, reason="Git is what it is held against")
@given(
    patterns=st.lists(
        st.lists(TOKENS, min_size=1, max_size=12)
        .map("".join)
        .filter(lambda line: not ODD_STARS.search(line)),
        min_size=20,
        max_size=40,
    ),
    paths=st.lists(
        st.lists(NAMES, min_size=1, max_size=5).map("/".join), min_size=10, max_size=30, unique=True
    ),
)
async def test_a_pattern_fits_what_it_fits_for_git(patterns: list[str], paths: list[str]):
    with TemporaryDirectory() as folder:
        root = Path(folder)
        files = Bench(DirectoryBackend(root), root).files()
        for number, pattern in enumerate(patterns):
            (root / f"{number}").mkdir()
            (root / f"{number}/.gitignore").write_text(f"{pattern}\n", newline="")
        asked = [f"{number}/{path}" for number in range(len(patterns)) for path in paths]
        ignored = ignored_by_git(root, asked)
        kept = await without_ignored(files, "/", "")
        wrong = [one for one in asked if kept(f"/{one}") == (one in ignored)]
        assert not [(patterns[int(one.split("/")[0])], one) for one in wrong]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 2_000 + "b", "a" * 4_000),
        ("a*" * 500 + "b", "a" * 4_000 + "c"),
        ("*[ab]*?" * 500 + "x", "ab" * 2_000),
        ("**/a*a*/" * 400 + "b", "aa/" * 200 + "c"),
        ("a/**/" * 1_000 + "b", "a/" * 200 + "c"),
        ("**/" + "?*/" * 100 + "b", "a/" * 200 + "c"),
        ("*" * 10_000 + "b", "a" * 4_000),
        ("[" * 10_000, "[" * 4_000),
    ],
)
async def test_no_pattern_takes_long(pattern: str, path: str, tmp_path: Path):
    (tmp_path / ".gitignore").write_text(f"{pattern}\n")
    files = Bench(DirectoryBackend(tmp_path), tmp_path).files()
    kept = await without_ignored(files, "/", "")
    started = time.thread_time()
    assert kept(f"/{path}")
    assert time.thread_time() - started < 2


async def test_a_path_of_very_many_directories_is_judged(tmp_path: Path):
    (tmp_path / ".gitignore").write_text("x.log\n")
    files = Bench(DirectoryBackend(tmp_path), tmp_path).files()
    kept = await without_ignored(files, "/", "")
    assert kept("/a" * 1_500 + "/b")
    assert not kept("/a" * 1_500 + "/x.log")


async def test_patterns_with_many_stars_fit(bench: Bench):
    await bench.seed("/.gitignore", b"*a*b*c*d*e*f*\n[z-a]\n/x/**/y/**/z/**/*.t*x*t\n")
    kept = await without_ignored(bench.files(), "/", "")
    assert not kept("/d/1a2b3c4d5e6f7")
    assert kept("/d/1a2b3c4d5e6")
    assert not kept("/x/1/y/2/3/z/n.text")
    assert kept("/x/1/y/2/3/n.text")


async def test_ignored_files_are_left_out_of_searches_on_request(bench: Bench):
    for path in ("/s/.gitignore", "/s/build/.gitignore", "/s/build/x.py", "/s/d/y.py", "/b/y.py"):
        await bench.seed(path, b"build\n" if path == "/s/.gitignore" else b"!*\nneedle\n")
    everything = await bench.call("glob", pattern="*.py")
    assert "/s/build/x.py" in everything
    kept = await bench.call("glob", pattern="*.py", skip_ignored=True)
    assert "/s/build" not in kept and "/s/d/y.py" in kept and "/b/y.py" in kept
    kept = await bench.call("grep", pattern="needle", path="/s", glob="*.py", skip_ignored=True)
    assert "/s/build" not in kept and "/s/d/y.py" in kept
    below = await bench.call("grep", pattern="needle", path="/s/build", skip_ignored=True)
    assert "no files with matches" in below


async def test_the_next_page_leaves_the_same_files_out(bench: Bench):
    await bench.seed("/.gitignore", b"no*\n")
    names = [f"/directory/{'no' * (number % 2)}file {number:04}.txt" for number in range(500)]
    await bench.seed_all(dict.fromkeys(names, b"word\n"))
    result = await bench.result("grep", pattern="word", skip_ignored=True)
    assert result.artifact["total"] == 250
    assert "skip_ignored=true" in result.artifact["next"]
