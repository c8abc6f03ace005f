"""A real directory: confinement, atomic writes, native paths."""

import os
import stat
import threading
from pathlib import Path, PurePosixPath, PureWindowsPath

import anyio
import pytest

from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.backends.directory import DirectoryBackend, native_to_virtual
from deep_agent_mcp.harness.backends.directory.descriptor_tree import DescriptorTree
from deep_agent_mcp.harness.backends.directory.realpath_tree import RealpathTree, windows_problem
from deep_agent_mcp.harness.backends.directory.tree import Present
from deep_agent_mcp.harness.backends.search import Budget
from deep_agent_mcp.harness.errors import AgentBuildError, ToolError
from tests.backends.workbench import Bench, make_backend

pytestmark = pytest.mark.anyio


async def refused(operation) -> str:
    with anyio.fail_after(60):
        with pytest.raises(FileError) as caught:
            await operation
    return caught.value.code


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "key").write_text("secret")
    return secret


async def test_links_that_lead_out_are_refused_everywhere(disk: Bench, outside: Path):
    (disk.root / "file").symlink_to(outside / "key")
    (disk.root / "dir").symlink_to(outside)
    (disk.root / "up").symlink_to("../outside")
    files = disk.files()
    for path in ("/file", "/dir/key", "/up/key", "/dir/new"):
        assert await refused(files.read(path)) in ("permission_denied", "not_found")
        assert await refused(files.write(path, b"x")) == "permission_denied"
        assert await refused(files.delete(path)) == "permission_denied"
    assert await refused(files.read("/file")) == "permission_denied"
    assert await refused(files.ls("/dir")) == "permission_denied"
    assert await refused(files.glob("*", "/up")) == "permission_denied"
    assert await refused(files.grep("s", "/dir")) == "permission_denied"
    assert not (await files.grep("secret")).matches
    assert not await files.glob("**")
    assert {(one.path, one.is_dir, one.size) for one in await files.ls("/")} == {
        ("/dir", False, None),
        ("/file", False, None),
        ("/up", False, None),
    }
    assert os.listdir(outside) == ["key"] and (outside / "key").read_text() == "secret"


async def test_links_that_stay_inside_are_followed(disk: Bench):
    await disk.seed("/real/f", b"x")
    (disk.root / "rel").symlink_to("real/f")
    (disk.root / "abs").symlink_to(disk.root / "real")
    (disk.root / "real" / "back").symlink_to("../real/f")
    files = disk.files()
    assert await files.read("/rel") == b"x"
    assert await files.read("/abs/f") == b"x"
    assert await files.read("/real/back") == b"x"
    await files.write("/rel", b"y")
    assert (disk.root / "rel").is_symlink()
    assert (disk.root / "real/f").read_bytes() == b"y"
    (change,) = await disk.checkpointer.file_changes("thr_1", 0)
    assert change.path == "/real/f"
    assert {one.path for one in await files.ls("/") if one.is_dir} == {"/abs", "/real"}


async def test_a_circle_of_links_ends(disk: Bench):
    (disk.root / "a").symlink_to("b")
    (disk.root / "b").symlink_to("a")
    assert await refused(disk.files().read("/a")) in ("permission_denied", "not_found")
    assert await refused(disk.files().write("/a/x", b"")) in (
        "permission_denied",
        "not_a_directory",
    )


async def test_a_link_put_in_place_after_the_look_is_not_followed(tmp_path: Path, outside: Path):
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/key").write_text("mine")
    tree = DescriptorTree(str(root))
    present = tree.present("/d/key", 100)
    (root / "d").rename(root / "old")
    (root / "d").symlink_to(outside)
    with pytest.raises(FileError):
        tree.replace(present, b"stolen")
    with pytest.raises(FileError):
        tree.remove(present)
    assert (outside / "key").read_text() == "secret"


async def test_swapping_a_directory_for_a_link_never_reads_outside(tmp_path: Path, outside: Path):
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/key").write_text("mine")
    (root / "link").symlink_to(outside)
    tree, done = DescriptorTree(str(root)), threading.Event()

    def swap() -> None:
        while not done.is_set():
            os.rename(root / "d", root / "x")
            os.rename(root / "link", root / "d")
            os.rename(root / "d", root / "link")
            os.rename(root / "x", root / "d")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[bytes] = set()
    try:
        for _ in range(3_000):
            try:
                seen.add(tree.read("/d/key", 100))
            except FileError:
                continue
    finally:
        done.set()
        swapper.join()
    assert seen <= {b"mine"}


async def test_pipes_and_devices_are_not_opened(disk: Bench):
    os.mkfifo(disk.root / "pipe")
    files = disk.files()
    assert await refused(files.read("/pipe")) == "not_a_file"
    assert await refused(files.write("/pipe", b"x")) == "not_a_file"
    assert await refused(files.grep("x", "/pipe")) == "not_a_file"
    with anyio.fail_after(60):
        assert not (await files.grep("x")).matches
    (disk.root / "null").symlink_to("/dev/null")
    assert await refused(files.read("/null")) == "permission_denied"


@pytest.mark.skipif(not os.access("/dev/null", os.R_OK), reason="needs /dev")
async def test_a_device_inside_the_root_is_not_a_file():
    files = Bench(DirectoryBackend("/dev"), Path("/dev")).files()
    assert await refused(files.read("/null")) == "not_a_file"
    assert await refused(files.write("/null", b"x")) == "not_a_file"


async def test_names_the_disk_cannot_hold(disk: Bench):
    files = disk.files()
    assert await refused(files.write("/" + "n" * 300, b"")) == "invalid_path"
    assert await refused(files.read("/" + "n" * 300)) == "invalid_path"
    assert await refused(files.write("/d" * 3_000, b"")) == "invalid_path"
    assert await refused(files.write("/d" * 300, b"")) == "invalid_path"
    assert not os.listdir(disk.root)


async def test_names_that_are_not_unicode_are_left_out(disk: Bench):
    (disk.root / os.fsdecode(b"bad\xff")).write_bytes(b"x")
    files = disk.files()
    assert not await files.ls("/")
    assert not await files.glob("*")
    assert not (await files.grep("x")).matches


async def test_a_write_keeps_the_mode_and_leaves_nothing_beside(disk: Bench):
    await disk.seed("/run.sh", b"old")
    (disk.root / "run.sh").chmod(0o750)
    inode = (disk.root / "run.sh").stat().st_ino
    await disk.files().write("/run.sh", b"new")
    status = (disk.root / "run.sh").stat()
    assert stat.S_IMODE(status.st_mode) == 0o750
    assert status.st_ino != inode  # replaced at once, not rewritten
    assert os.listdir(disk.root) == ["run.sh"]


async def test_a_change_is_recorded_before_it_is_made(disk: Bench, monkeypatch: pytest.MonkeyPatch):
    await disk.seed("/f", b"old")
    seen: list[tuple[bytes | None, bytes]] = []
    commit = disk.checkpointer.commit

    async def watch(batch) -> None:
        seen.append((batch.file_changes[0].before, (disk.root / "f").read_bytes()))
        await commit(batch)

    monkeypatch.setattr(disk.checkpointer, "commit", watch)
    await disk.files().write("/f", b"new")
    await disk.files().delete("/f")
    assert seen == [(b"old", b"old"), (b"new", b"new")]


async def test_what_could_not_be_undone_is_refused(tmp_path: Path, disk: Bench):
    small = Bench(make_backend("descriptors", disk.root, max_undo_bytes=10), disk.root)
    await disk.seed("/big", b"x" * 11)
    await disk.seed("/d/1", b"x" * 6)
    await disk.seed("/d/2", b"x" * 6)
    assert await refused(small.files().write("/big", b"y")) == "too_large"
    assert await refused(small.files().delete("/big")) == "too_large"
    assert await refused(small.files().delete("/d")) == "too_large"
    assert sorted(os.listdir(disk.root / "d")) == ["1", "2"]
    assert await small.files().write("/new", b"y" * 100) is True


async def test_links_are_not_deleted(disk: Bench):
    await disk.seed("/d/f", b"x")
    (disk.root / "d/link").symlink_to("f")
    assert await refused(disk.files().delete("/d")) == "not_a_file"
    assert await refused(disk.files().delete("/d/link")) == "not_a_file"
    assert await refused(disk.files().delete("/")) == "permission_denied"
    assert sorted(os.listdir(disk.root / "d")) == ["f", "link"]


async def test_a_directory_is_not_deleted_through_a_link(disk: Bench):
    await disk.seed("/d/sub/f", b"x")
    (disk.root / "link").symlink_to("d")
    for path in ("/link", "/link/sub"):
        assert await refused(disk.files().delete(path)) == "not_a_file"
    assert (disk.root / "d/sub/f").read_bytes() == b"x"
    await disk.files().delete("/d")


async def test_large_files_are_not_read(disk: Bench):
    small = Bench(make_backend("descriptors", disk.root, max_read_bytes=10), disk.root)
    await disk.seed("/big", b"x" * 11)
    assert await refused(small.files().read("/big")) == "too_large"
    assert not (await small.files().grep("x")).matches


async def test_a_search_that_nobody_waits_for_stops(disk: Bench, monkeypatch: pytest.MonkeyPatch):
    for number in range(200):
        await disk.seed(f"/{number}", b"x\n")
    reading, go_on, budgets = threading.Event(), threading.Event(), []
    over = Budget.over

    def watched(self: Budget) -> bool:
        budgets.append(over(self))
        reading.set()
        go_on.wait(60)
        return over(self)

    monkeypatch.setattr(Budget, "over", watched)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(disk.files().grep, "x")
            await anyio.to_thread.run_sync(reading.wait)
            group.cancel_scope.cancel()
    go_on.set()
    assert budgets == [False]


async def test_a_search_over_its_time_says_so(disk: Bench, monkeypatch: pytest.MonkeyPatch):
    await disk.seed("/a", b"x")
    monkeypatch.setattr(Budget, "over", lambda self: True)
    assert (await disk.files().grep("x")).truncated
    with pytest.raises(ToolError, match="too long"):
        await disk.files().glob("*")


def test_a_root_that_is_not_a_directory_is_refused(tmp_path: Path):
    (tmp_path / "f").touch()
    for root in (tmp_path / "f", tmp_path / "no"):
        with pytest.raises(AgentBuildError, match="not a directory"):
            DirectoryBackend(root)


def test_native_paths_become_virtual(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    backend = DirectoryBackend(tmp_path / "alias")
    for root in (tmp_path / "real", tmp_path / "alias"):
        assert backend.canonical(str(root / "a" / "b.txt")) == "/a/b.txt"
        assert backend.canonical(str(root)) == "/"
    assert backend.canonical("/a/b.txt") == "/a/b.txt"
    assert backend.canonical("a//b.txt") == "/a/b.txt"
    assert backend.canonical(f"{tmp_path}/realm/x") == f"{tmp_path}/realm/x"
    with pytest.raises(FileError):
        backend.canonical(f"{tmp_path}/real/../../x")


def test_a_path_that_reads_both_ways_counts_from_the_root_of_the_files(tmp_path: Path):
    backend = DirectoryBackend(tmp_path)
    (tmp_path / tmp_path.parts[1]).mkdir()
    assert backend.canonical(f"{tmp_path}/x") == f"{tmp_path}/x"


def test_windows_paths_become_virtual():
    root = PureWindowsPath(r"C:\Users\Me\work")
    assert native_to_virtual(r"C:\Users\Me\work\src\a.py", root) == "/src/a.py"
    assert native_to_virtual("c:/users/me/WORK/a.py", root) == "/a.py"
    assert native_to_virtual(r"C:\Users\Me\work", root) == "/"
    assert native_to_virtual(r"C:\Users\Me\other\a.py", root) is None
    assert native_to_virtual(r"C:\Users\Me\work\..\a.py", root) is None
    assert native_to_virtual("/src/a.py", root) is None
    assert native_to_virtual("/w/a", PurePosixPath("/w")) == "/a"


@pytest.mark.parametrize(
    "name", ["NUL", "con.txt", "a.txt:stream", "a.", "a ", "LPT1", "COM²", "nul .x", "a?b", "a\x01"]
)
def test_names_with_a_meaning_of_their_own_on_windows_are_refused(tmp_path: Path, name: str):
    assert windows_problem(name) is not None
    with pytest.raises(FileError) as caught:
        RealpathTree(str(tmp_path), windows=True).replace(Present(f"/{name}", None), b"")
    assert caught.value.code == "invalid_path"


def test_plain_names_are_fine_on_windows():
    assert not any(map(windows_problem, ["a.txt", "console.log", ".git", "nul1", "ä b"]))
