"""What `.gitignore` leaves out is what Git leaves out."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.backends.directory import DirectoryBackend
from harness.backends.ignore import kept_by_gitignore
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
@settings(
    max_examples=int(os.environ.get("SEARCH_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(top=FILES, inner=FILES)
@example(top=["*.log", "!x.log"], inner=["*.log"])
@example(top=["a/", "!a/x.log"], inner=["!*"])
@example(top=["/a/**/x.log", "**/build", "b/**"], inner=[])
@example(top=["\ufeffa.py", "e\r"], inner=["!/a\r"])
async def test_the_same_files_are_left_out_as_by_git(top: list[str], inner: list[str]):
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for path in PATHS:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
        (root / ".gitignore").write_text("\n".join(top) + "\n", newline="")
        (root / "a.b/.gitignore").write_text("\n".join(inner) + "\n", newline="")
        files = Bench(DirectoryBackend(root), root).files()
        kept = await kept_by_gitignore(files)
        ours = {one.path for one in await files.glob(kept)}
        assert ours == by_git(root)


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
    for number in range(800):
        await bench.seed(f"/directory/{'no' * (number % 2)}file {number:04}.txt", b"word\n")
    result = await bench.result("grep", pattern="word", skip_ignored=True)
    assert result.artifact["total"] == 400
    assert "skip_ignored=true" in result.artifact["next"]
