"""Edits change what they were asked to change, and nothing else: bytes, mode, owner, attributes."""

import codecs
import os
import struct
from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.backends.directory.tree import FileMetadata
from deep_agent_mcp.harness.errors import ToolError
from tests.backends.workbench import Bench

pytestmark = pytest.mark.anyio

BODY = "first line\nchange me, süß\nlast line"
CODINGS = {
    "utf-8": (b"", "utf-8"),
    "a byte order mark": (codecs.BOM_UTF8, "utf-8"),
    "utf-16, little end first": (codecs.BOM_UTF16_LE, "utf-16-le"),
    "utf-16, big end first": (codecs.BOM_UTF16_BE, "utf-16-be"),
    "latin-1": (b"", "latin-1"),
}
ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("last", ["", "\n"], ids=["no final newline", "final newline"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("coding", CODINGS)
async def test_an_edit_keeps_encoding_mark_and_line_ends(
    bench: Bench, coding: str, end: str, last: str
):
    mark, codec = CODINGS[coding]

    def stored(text: str) -> bytes:
        return mark + (text + last).replace("\n", ENDS[end]).encode(codec)

    await bench.seed("/d/file.txt", stored(BODY))
    assert "change me, süß\n" in await bench.call("read_file", path="/d/file.txt")
    await bench.call(
        "edit_file", path="/d/file.txt", old_string="line\nchange me", new_string="line\nü\nchanged"
    )
    wanted = BODY.replace("line\nchange me", "line\nü\nchanged")
    assert await bench.data("/d/file.txt") == stored(wanted)


async def test_mixed_line_ends_stay_where_they_are(bench: Bench):
    await bench.seed("/f", b"a\r\nb\nc\rd\r\n\r\ne")
    await bench.call("read_file", path="/f")
    await bench.call("edit_file", path="/f", old_string="c\nd", new_string="c\nD")
    assert await bench.data("/f") == b"a\r\nb\nc\rD\r\n\r\ne"


async def test_replacements_are_counted_and_all_are_made(bench: Bench):
    await bench.seed("/f", b"x = 1\r\nx = 1\r\n")
    await bench.call("read_file", path="/f")
    with pytest.raises(ToolError, match=r"2 times \(lines 1, 2\)"):
        await bench.call("edit_file", path="/f", old_string="x = 1", new_string="y")
    edit = {"path": "/f", "old_string": "x = 1", "new_string": "y", "replace_all": True}
    result = await bench.result("edit_file", **edit)
    assert result.artifact == {
        "path": "/f", "replacements": 2, "line": 1, "added": 2, "removed": 2
    }  # fmt: skip
    assert await bench.data("/f") == b"y\r\ny\r\n"


async def test_a_character_that_the_encoding_lacks_changes_nothing(bench: Bench):
    await bench.seed("/f", "süß".encode("latin-1"))
    await bench.call("read_file", path="/f")
    with pytest.raises(ToolError, match="stored as latin-1, which has no '€'"):
        await bench.call("edit_file", path="/f", old_string="s", new_string="€")
    assert await bench.data("/f") == "süß".encode("latin-1")


async def test_an_edit_of_a_file_that_was_not_read_or_changed_since_is_refused(bench: Bench):
    await bench.seed("/f", b"one\n")
    edit = {"path": "/f", "old_string": "one", "new_string": "two"}
    with pytest.raises(ToolError, match="was not read in this thread yet"):
        await bench.call("edit_file", **edit)
    await bench.call("read_file", path="/f")
    await bench.seed("/f", b"one or two\n")
    with pytest.raises(FileError, match="somebody else changed it") as caught:
        await bench.call("edit_file", **edit)
    assert caught.value.code == "changed"
    assert await bench.data("/f") == b"one or two\n"


async def test_of_parallel_edits_of_one_file_none_is_lost_unnoticed(shared: Bench):
    await shared.seed("/f", b"a b c d e f\n")
    await shared.call("read_file", path="/f")
    outcomes: list[str] = []

    async def edit(letter: str) -> None:
        try:
            await shared.call("edit_file", path="/f", old_string=letter, new_string=letter.upper())
            outcomes.append(letter.upper())
        except FileError as error:
            assert error.code == "changed"

    async with anyio.create_task_group() as group:
        for letter in "abcdef":
            group.start_soon(edit, letter)
    data = (await shared.data("/f")).decode()
    assert outcomes and {one for one in data if one.isupper()} == {*outcomes}


async def test_writers_that_reach_one_file_by_different_names_do_not_undo_each_other(disk: Bench):
    await disk.seed("/real/f", b"0")
    (disk.root / "link").symlink_to("real/f")
    (disk.root / "dir").symlink_to("real")
    outcomes: list[str] = []

    async def change(path: str, data: bytes) -> None:
        try:
            await disk.files().write(path, data, expected=b"0")
            outcomes.append("won")
        except FileError as error:
            outcomes.append(error.code)

    async with anyio.create_task_group() as group:
        for number, path in enumerate(["/real/f", "/link", "/dir/f"] * 3):
            group.start_soon(change, path, b"%d" % (number + 1))
    assert sorted(outcomes) == ["changed"] * 8 + ["won"]


@pytest.mark.parametrize("how", ["in place", "by another file", "taken away"])
async def test_what_another_program_writes_while_ours_is_made_is_not_lost(
    disk: Bench, monkeypatch: pytest.MonkeyPatch, how: str
):
    await disk.seed("/f", b"old")
    give = FileMetadata.give

    def meanwhile(self: FileMetadata, fd: int) -> None:
        give(self, fd)
        if how == "in place":
            (disk.root / "f").write_bytes(b"new by them")
        elif how == "by another file":
            (disk.root.parent / "g").write_bytes(b"old")
            os.replace(disk.root.parent / "g", disk.root / "f")
        else:
            os.unlink(disk.root / "f")

    monkeypatch.setattr(FileMetadata, "give", meanwhile)
    with pytest.raises(FileError) as caught:
        await disk.files().write("/f", b"ours", expected=b"old")
    assert caught.value.code == ("not_found" if how == "taken away" else "changed")
    left = [(disk.root / name).read_bytes() for name in os.listdir(disk.root)]
    assert left == {"in place": [b"new by them"], "by another file": [b"old"]}.get(how, [])


async def test_a_write_keeps_mode_owner_and_attributes(disk: Bench):
    await disk.seed("/f", b"old")
    place = disk.root / "f"
    place.chmod(0o751)
    if os.getuid() == 0:
        os.chown(place, 1234, 5678)
        place.chmod(0o4751)  # writing takes this mark from others' files
    attributes: dict[str, bytes] = {}
    # Somebody else may read: version 2, then owner, user 42, group, mask and others.
    entries = ((1, 7, -1), (2, 4, 42), (4, 5, -1), (16, 5, -1), (32, 1, -1))
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *one) for one in entries)
    wanted = {"user.origin": b"https://example.org", "system.posix_acl_access": access}
    for name, value in wanted.items() if hasattr(os, "setxattr") else ():
        try:
            os.setxattr(place, name, value)
        except OSError:
            continue  # this disk has none
        attributes[name] = value
    before = place.stat()
    await disk.files().write("/f", b"new")
    after = place.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode, before.st_uid, before.st_gid,
    )  # fmt: skip
    assert {name: os.getxattr(place, name) for name in attributes} == attributes


async def test_a_temporary_file_is_never_more_open_than_the_file_it_replaces(
    disk: Bench, monkeypatch: pytest.MonkeyPatch
):
    await disk.seed("/secret", b"old")
    (disk.root / "secret").chmod(0o600)
    modes: list[int] = []
    replaced = os.replace

    def seen(source: str, target: str, **where: int) -> None:
        modes.append(os.stat(source, dir_fd=where.get("src_dir_fd")).st_mode & 0o777)
        replaced(source, target, **where)

    monkeypatch.setattr(os, "replace", seen)
    await disk.files().write("/secret", b"new")
    assert modes == [0o600]


@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="hands files over")
def test_what_cannot_be_kept_is_given_up_towards_less_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "f").write_bytes(b"")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    with open(tmp_path / "f", "r+b") as file:
        FileMetadata(0o6774, 1234, 5678, {}).give(file.fileno())
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o744


@pytest.mark.skipif(os.name == "nt" or os.getuid() == 0, reason="root may write everything")
async def test_a_read_only_file_is_not_replaced(disk: Bench):
    await disk.seed("/f", b"old")
    (disk.root / "f").chmod(0o444)
    with pytest.raises(FileError, match="read-only") as caught:
        await disk.files().write("/f", b"new")
    assert caught.value.code == "permission_denied"
    assert os.listdir(disk.root) == ["f"] and (disk.root / "f").read_bytes() == b"old"


async def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(
    disk: Bench, monkeypatch: pytest.MonkeyPatch
):
    await disk.seed("/f", b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for broken in ("replace", "link"):
        monkeypatch.setattr(os, broken, full)
    for path in ("/f", "/new"):
        with pytest.raises(ToolError, match="No space left"):
            await disk.files().write(path, b"new")
    assert os.listdir(disk.root) == ["f"] and (disk.root / "f").read_bytes() == b"old"


async def test_a_directory_deleted_only_in_part_is_said_to_be(
    disk: Bench, monkeypatch: pytest.MonkeyPatch
):
    for name in ("a", "b", "c"):
        await disk.seed(f"/d/{name}", name.encode())
    tree = disk.backend.tree  # type: ignore[attr-defined]
    remove = tree.remove

    def interfere(present) -> None:
        remove(present)
        for name in os.listdir(disk.root / "d"):
            (disk.root / "d" / name).write_bytes(b"theirs")

    monkeypatch.setattr(tree, "remove", interfere)
    with pytest.raises(FileError, match="only in part, 1 of 3 files") as caught:
        await disk.files().delete("/d")
    assert caught.value.code == "changed" and "Nothing was done" not in str(caught.value)
    assert len(os.listdir(disk.root / "d")) == 2


async def test_texts_that_mean_something_to_shells_and_patterns_are_taken_as_they_are(
    bench: Bench,
):
    old, new = r"""\1 $HOME '"`x` .* (a|b)""", r"""\g<0> \n ${x} "'\\ $(y) %s {} &"""
    await bench.seed("/f", f"before\n{old}\nafter\n".encode())
    await bench.call("read_file", path="/f")
    await bench.call("edit_file", path="/f", old_string=old, new_string=new)
    assert await bench.data("/f") == f"before\n{new}\nafter\n".encode()


async def test_a_file_of_some_megabytes_is_written_and_edited_to_the_byte(bench: Bench):
    lines = [f"line {number} süß" for number in range(90_000)]
    await bench.call("write_file", path="/big.txt", content="\n".join(lines))
    assert await bench.data("/big.txt") == "\n".join(lines).encode()
    await bench.call("read_file", path="/big.txt", limit=5)
    await bench.call("edit_file", path="/big.txt", old_string=lines[71_234], new_string="changed")
    lines[71_234] = "changed"
    assert await bench.data("/big.txt") == "\n".join(lines).encode()
