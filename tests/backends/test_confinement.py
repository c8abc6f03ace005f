"""Nothing outside of a directory is read, changed, made or removed, and nothing blocks."""

import os
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import anyio
import anyio.to_thread
import pytest

from deep_agent_mcp.harness.backends.base import FileError, Files
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.directory.descriptor_tree import DescriptorTree
from deep_agent_mcp.harness.backends.directory.realpath_tree import RealpathTree, windows_problem
from deep_agent_mcp.harness.backends.directory.tree import Tree
from deep_agent_mcp.harness.backends.file_tools.results import MAX_COUNTED
from deep_agent_mcp.harness.errors import ToolError
from tests.backends.attack_paths import ATTACKS, FAMILIES, SECRET, Ground, lay_out
from tests.backends.workbench import DISKS, Bench, make_backend

pytestmark = pytest.mark.anyio

TREES = {"descriptors": DescriptorTree, "realpath": RealpathTree}
LIMIT = 1 << 20
TOOLS = ("ls", "read_file", "write_file", "edit_file", "delete_file", "glob", "grep")


@pytest.fixture
def ground(tmp_path: Path) -> Generator[Ground]:
    made = lay_out(tmp_path)
    yield made
    made.close()


def test_the_corpus_is_large_and_every_case_is_its_own():
    assert len(ATTACKS) >= 300
    assert len({one.path for one in ATTACKS}) >= 500
    assert min(Counter(one.family for one in ATTACKS).values()) >= 8


def backend_operations(files: Files, path: str) -> dict[str, Callable[[], Any]]:
    return {
        "ls": lambda: files.ls(path),
        "read": lambda: files.read(path),
        "glob below it": lambda: files.glob("**", path),
        "glob of it": lambda: files.glob(path),
        "grep below it": lambda: files.grep("secret|root:", path),
        "grep in what fits it": lambda: files.grep("secret|root:", glob=path),
        "expecting write": lambda: files.write(path, b"w", expected=SECRET),
        "write": lambda: files.write(path, b"written"),
        "delete": lambda: files.delete(path),
    }


def tool_operations(bench: Bench, path: str) -> dict[str, Callable[[], Any]]:
    def call(tool: str, **args: str) -> Callable[[], Any]:
        return lambda: bench.result(tool, **args)

    return {
        "ls": call("ls", path=path),
        "read_file": call("read_file", path=path),
        "edit_file": call("edit_file", path=path, old_string="the", new_string="no"),
        "glob": call("glob", pattern=path, path=path),
        "grep": call("grep", pattern="secret|root:", path=path, output_mode="content"),
        "write_file": call("write_file", path=path, content="written"),
        "edit again": call("edit_file", path=path, old_string="written", new_string="edited"),
        "delete_file": call("delete_file", path=path),
    }


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do at once what is for a thread: to wait for one takes longer than most of it."""

    async def at_once(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(anyio.to_thread, "run_sync", at_once)


@pytest.mark.exhaustive(together=1)
@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("family", FAMILIES)
async def test_no_path_leads_out(family: str, kind: str, tmp_path: Path, no_threads: None):
    attacks = [*FAMILIES[family]]
    while attacks:
        # Until one has left its mark, all may be tried on the same ground, which is dear to make.
        with TemporaryDirectory(dir=tmp_path) as directory:
            ground = lay_out(Path(directory))
            untouched = ground.within()
            # ripgrep only ever names files to read, so it would add nothing here but time.
            backend = DirectoryBackend(ground.root, tree=TREES[kind], ripgrep=False)
            bench = Bench(backend, ground.root, tools=TOOLS)
            while attacks and ground.within() == untouched:
                path = attacks.pop().path.format(outside=ground.outside, root=ground.root)
                await no_way_out(path, bench, ground)
                bench.forget()
            ground.close()


async def no_way_out(path: str, bench: Bench, ground: Ground) -> None:
    before = ground.around()
    everything = {
        **backend_operations(bench.files(), path),
        **{f"{name} tool": one for name, one in tool_operations(bench, path).items()},
    }
    for name, operation in everything.items():
        with anyio.fail_after(60):
            try:
                shown = repr(await operation())
            except ToolError as error:
                shown = str(error)
        assert SECRET.decode() not in shown, (name, path)
        assert "root:x:0" not in shown, (name, path)
    assert ground.around() == before, path  # whose times tell of what was made and undone


async def test_nothing_is_made_that_windows_would_take_for_something_else(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    files = Bench(
        DirectoryBackend(root, tree=lambda path: RealpathTree(path, windows=True)), root
    ).files()
    made: list[str] = []
    for attack in (*FAMILIES["Windows"], *FAMILIES["unreadable"], *FAMILIES["NUL"]):
        try:
            await files.write(attack.path.format(outside="/o", root="/r"), b"")
        except FileError:
            continue
        made.append(attack.path)
    names = [name for _, dirs, found in os.walk(root) for name in (*dirs, *found)]
    assert len(names) >= 20 and len(made) >= 20
    assert [name for name in names if windows_problem(name)] == []


@pytest.mark.parametrize("kind", DISKS)
async def test_searches_from_the_root_show_nothing_from_outside(kind: str, ground: Ground):
    files = Bench(make_backend(kind, ground.root), ground.root).files()
    with anyio.fail_after(60):
        assert not (await files.grep("secret|root:x")).matches
        found = {one.path for one in await files.glob("**")}
        page = await files.grep("mine")
    mine = {"/key", "/d/key", "/d/e/key"}
    assert found == mine | {"/sparse"}
    assert {one.path for one in page.matches} == mine


@pytest.mark.parametrize("kind", DISKS)
async def test_a_huge_file_of_nothing_is_refused_at_once(kind: str, ground: Ground):
    files = Bench(make_backend(kind, ground.root), ground.root).files()
    began = monotonic()
    for operation in (files.read("/sparse"), files.write("/sparse", b""), files.delete("/sparse")):
        with pytest.raises(FileError) as caught:
            await operation
        assert caught.value.code == "too_large"
    assert monotonic() - began < 30
    assert (ground.root / "sparse").stat().st_size == 10 << 30


@pytest.mark.parametrize("kind", TREES)
def test_a_file_whose_size_is_not_told_is_read_whole_and_only_to_the_bound(
    kind: str, tmp_path: Path
):
    if not os.path.exists("/proc/self/smaps"):
        pytest.skip("needs /proc")
    tree = TREES[kind](os.path.realpath("/proc/self"))
    assert (Path("/proc/self/status")).stat().st_size == 0
    assert tree.read("/status", LIMIT).startswith(b"Name:")
    with pytest.raises(FileError) as caught:
        tree.read("/status", 100)
    assert caught.value.code == "too_large"


NAMES = MAX_COUNTED + 1_000


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crowd")
    for number in range(NAMES):
        os.close(os.open(root / f"{number:05}", os.O_CREAT | os.O_WRONLY))
    (root / "03141").write_text("needle\n")
    return root


@pytest.mark.parametrize("kind", TREES)
async def test_a_directory_of_very_many_names_is_listed_and_searched(kind: str, crowd: Path):
    bench = Bench(make_backend(kind, crowd), crowd)
    with anyio.fail_after(60):
        assert len(await bench.files().ls("/")) == NAMES
        assert [one.path for one in (await bench.files().grep("needle")).matches] == ["/03141"]
        assert len(await bench.files().glob("031*")) == 100
        last = await bench.call("ls", offset=NAMES - 11)
        assert f"entries {NAMES - 10}-{NAMES} of {NAMES}" in last


STRANGE = (
    *("a\nb", "a\x1b[31mb", "\u202egnp.exe", "a\u200bb", "e\u0301", "\u00e9", "a\rb", "*", "[x]"),
    *("-rf", "'", '"', "`id`", "$(id)", "a;b", "CON", "a::$DATA", "end.", " lead", "n" * 255),
)


@pytest.mark.parametrize("kind", DISKS)
async def test_hard_to_see_names_are_told_apart_and_shown_on_one_line(kind: str, tmp_path: Path):
    bench = Bench(make_backend(kind, tmp_path), tmp_path)
    for number, name in enumerate(STRANGE):
        await bench.files().write(f"/{name}", b"needle %d\n" % number)
    assert len(os.listdir(tmp_path)) == len(STRANGE)
    for number, name in enumerate(STRANGE):
        assert await bench.data(f"/{name}") == b"needle %d\n" % number
    assert {one.path[1:] for one in (await bench.files().grep("needle")).matches} == {*STRANGE}
    text = await bench.call("ls")
    assert len(text.splitlines()) == len(STRANGE) + 1
    assert not any(mark in text for mark in "\x1b\u202e\u200b\r")


@pytest.mark.parametrize("kind", DISKS)
async def test_a_hard_link_is_read_like_the_file_it_is_and_writing_leaves_its_twin(
    kind: str, ground: Ground
):
    """Nobody can tell a hard link from a file; but what is outside is never changed through it."""
    os.link(ground.outside / "key", ground.root / "hard")
    files = Bench(make_backend(kind, ground.root), ground.root).files()
    assert await files.read("/hard") == SECRET
    await files.write("/hard", b"mine now")
    assert (ground.outside / "key").read_bytes() == SECRET
    assert (ground.root / "hard").stat().st_nlink == 1
    os.unlink(ground.root / "hard")
    os.link(ground.outside / "key", ground.root / "hard")
    await files.delete("/hard")
    assert (ground.outside / "key").read_bytes() == SECRET


@pytest.mark.parametrize("kind", TREES)
async def test_directories_nested_beyond_the_bound_are_neither_walked_nor_deleted(
    kind: str, tmp_path: Path
):
    root = tmp_path / "root"
    root.mkdir()
    here = os.open(root, os.O_RDONLY)
    for number in range(300):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
        if number in (50, 250):
            os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    files = Bench(DirectoryBackend(root, tree=TREES[kind]), root).files()
    assert [one.path.count("/") for one in await files.glob("f")] == [52]
    with pytest.raises(FileError, match="more than 100 deep"):
        await files.delete("/d")
    assert os.path.exists(root / Path(*["d"] * 51) / "f")


SWAPPER = """
import os, shutil, sys
victim, aside, link, target, stop, often = sys.argv[1:]
print("ready", flush=True)
swaps = 0
while not os.path.exists(stop):
    try:
        os.rename(victim, aside)
    except OSError:  # an operation has made what was away
        shutil.rmtree(aside, ignore_errors=True)
        continue
    try:
        os.rename(link, victim)
        os.rename(victim, link)
        swaps += 1
        if swaps == 100:
            open(often, "x").close()
    except OSError:
        if not os.path.lexists(link):
            os.symlink(target, link)
    try:
        os.rename(aside, victim)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
"""
"""A program that puts a link, or whatever else `link` is, in the place of something."""


@contextmanager
def meanwhile_swapped(victim: Path, stranger: Path, target: Path) -> Iterator[Callable[[], bool]]:
    """Let another program swap a place for a stranger again and again; tell if it did often."""
    stop, aside, often = (stranger.parent / name for name in ("stop", "aside", "often"))
    places = map(str, (victim, aside, stranger, target, stop, often))
    command = [sys.executable, "-c", SWAPPER, *places]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        try:
            yield often.exists
        finally:
            stop.touch()
            program.wait(60)


def rounds(seconds: float, met: Callable[[], bool]) -> Iterator[int]:
    """Count for so long, and on until what was to be met was met."""
    ends = monotonic() + seconds
    number = 0
    while monotonic() < ends or not met():
        assert monotonic() < ends + 40, "it was never met"
        number += 1
        yield number


@contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Do something again and again in a thread."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            action()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def every_operation(tree: Tree, number: int) -> list[tuple[str, Callable[[], object]]]:
    def written() -> None:
        tree.replace(tree.present("/d/e/key", LIMIT, create=True), b"mine %d" % number)

    def removed() -> None:
        tree.remove(tree.present("/d/e/gone", LIMIT))

    def made() -> None:
        tree.replace(tree.present(f"/d/e/new{number}/x/gone", LIMIT, create=True), b"mine")

    def deleted() -> None:
        for one in tree.contents("/d/e", LIMIT):
            tree.remove(one)

    return [
        ("write", written),
        ("read", lambda: tree.read("/d/e/key", LIMIT)),
        ("children", lambda: [(one.path, one.size) for one in tree.children("/d/e")]),
        ("walk", lambda: [leaf.read(LIMIT) for leaf in tree.walk("/d")]),
        ("pick", lambda: [leaf.read(LIMIT) for leaf in tree.pick(["/d/e/key", "/d/e/only"])]),
        ("contents", lambda: [one.data for one in tree.contents("/d/e", LIMIT)]),
        ("make", made),
        ("remove", removed),
        ("delete", deleted),
    ]


@pytest.mark.parametrize("level", ["d", "d/e", "d/e/key"])
def test_no_swap_for_a_link_while_an_operation_runs_leads_out(level: str, tmp_path: Path):
    """The directory, its parent or the file is a link at one moment and itself at the next."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    for place in (outside, outside / "e", root / "d/e"):
        place.mkdir(parents=True)
    for place in (outside / "key", outside / "e/key", outside / "only", outside / "e/gone"):
        place.write_bytes(SECRET)
    (root / "d/e/key").write_bytes(b"mine")
    link = tmp_path / "link"
    target = outside / "key" if level.endswith("key") else outside
    link.symlink_to(target)
    before = {place: place.read_bytes() for place in outside.rglob("*") if place.is_file()}
    tree, outcomes = DescriptorTree(str(root)), Counter[str]()
    with meanwhile_swapped(root / level, link, target) as often:
        for number in rounds(
            1.5, lambda: often() and outcomes["permission_denied"] > 0 and outcomes["write"] > 0
        ):
            for name, operation in every_operation(tree, number):
                try:
                    shown = repr(operation())
                except ToolError as error:
                    outcomes[getattr(error, "code", "else")] += 1
                else:
                    outcomes[name] += 1
                    assert SECRET.decode() not in shown, name
    after = {place: place.read_bytes() for place in outside.rglob("*") if place.is_file()}
    assert after == before


def test_a_parent_that_is_moved_meanwhile_takes_the_operation_along_but_never_out(tmp_path: Path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    (root / "a/b/c").mkdir(parents=True)
    outside.mkdir()
    for place in (outside / "key", tmp_path / "key"):
        place.write_bytes(SECRET)
    for place in (root / "key", root / "a/key", root / "a/b/c/key"):
        place.write_bytes(b"mine")
    # Seen from `b/c` where it is moved to, these would lead out of the root.
    (root / "a/b/c/up").symlink_to("../../key")
    (root / "a/b/c/further").symlink_to("../../../key")

    def move() -> None:
        os.rename(root / "a/b/c", root / "moved")
        os.rename(root / "moved", root / "a/b/c")

    tree, seen = DescriptorTree(str(root)), set[bytes]()
    with meanwhile(move):
        for _ in rounds(0.7, lambda: bool(seen)):
            for path in ("/a/b/c/up", "/a/b/c/further", "/moved/up", "/moved/further"):
                try:
                    seen.add(tree.read(path, LIMIT))
                except FileError:
                    continue
    assert seen == {b"mine"}


@pytest.mark.parametrize("kind", TREES)
def test_a_file_that_becomes_a_pipe_meanwhile_blocks_nobody(kind: str, tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "f").write_bytes(b"mine")
    os.mkfifo(tmp_path / "pipe")

    tree, seen, codes = TREES[kind](str(root)), set[bytes](), Counter[str]()
    with meanwhile_swapped(root / "f", tmp_path / "pipe", tmp_path / "no") as often:
        for _ in rounds(0.5, lambda: often() and bool(seen) and len(codes) > 1):
            try:
                seen.add(tree.read("/f", LIMIT))
            except FileError as error:
                codes[error.code] += 1
    assert seen == {b"mine"}
    assert {*codes} == {"not_found", "not_a_file"}


@pytest.mark.parametrize("kind", TREES)
def test_a_file_made_by_another_program_meanwhile_is_not_overwritten(kind: str, tmp_path: Path):
    tree = TREES[kind](str(tmp_path))
    present = tree.present("/f", LIMIT, create=True)
    (tmp_path / "f").write_bytes(b"theirs")
    with pytest.raises(FileError) as caught:
        tree.replace(present, b"ours")
    assert caught.value.code == "changed"
    assert os.listdir(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"theirs"


def test_of_many_programs_that_make_one_file_exactly_one_wins(tmp_path: Path):
    start, wins = threading.Barrier(8), Counter[int]()

    def make(me: int) -> None:
        tree = DescriptorTree(str(tmp_path))
        for number in range(50):
            present = tree.present(f"/{number}", LIMIT, create=True)
            start.wait(60)
            if present.data is None:
                try:
                    tree.replace(present, b"%d" % me)
                except FileError as error:
                    assert error.code == "changed"
                else:
                    wins[number] += 1
            start.wait(60)

    threads = [threading.Thread(target=make, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == dict.fromkeys(range(50), 1)
    assert len(os.listdir(tmp_path)) == 50


def test_confinement_holds_for_a_root_that_is_itself_reached_through_links(ground: Ground):
    alias = ground.root.parent / "alias"
    alias.symlink_to("root")
    backend = DirectoryBackend(alias)
    assert backend.root == ground.root
    assert backend.tree.read("/key", LIMIT) == b"mine\n"
    with pytest.raises(FileError):
        backend.tree.read("/abs-file", LIMIT)
    # What is put in the root's place is not the root.
    os.rename(ground.root, ground.root.parent / "old")
    ground.root.symlink_to(ground.outside)
    with pytest.raises(FileError):
        backend.tree.read("/key", LIMIT)
    assert stat.S_ISLNK(ground.root.lstat().st_mode)
