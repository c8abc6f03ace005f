"""Reader of an SQLite file, page by page. SQLite itself gives up at the first damaged page.

Commits in its write-ahead log are included. Nothing is written or locked, so no other process may
write to the file meanwhile. With any content, each read ends and takes no more memory than the size
of the file; unreadable data raises `ValueError`.

The format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import mmap
import sys
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct, error
from typing import NamedTuple, TypeAlias

__all__ = ["Cell", "DatabaseFile", "TreePage", "Value"]

Value: TypeAlias = int | float | str | bytes | None

_MAGIC = b"SQLite format 3\x00"
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""The sizes of integers by their serial types."""

_U16, _U32, _REAL = Struct(">H"), Struct(">I"), Struct(">d")
_WAL_HEADER, _FRAME = Struct(">8I"), Struct(">6I")
_USUAL_SIZE = 4096
_SAMPLE = 64
"""How many pages are checked to find out if a page size is right."""


class Cell(NamedTuple):
    """An entry of a page of a tree.

    Attributes:
        rowid: The number of a table's row; None in an index.
        child: The page below, with the entries before this one; None in a leaf.
        payload: Start of its record in the page, and the record's length; None without a record.
        page: The page it is on.
        of_index: Whether it belongs to an index.
    """

    rowid: int | None
    child: int | None
    payload: tuple[int, int] | None
    page: int
    of_index: bool


class TreePage(NamedTuple):
    """A page of a tree.

    Attributes:
        cells: Its entries; None for each unreadable one.
        after: The page below with the entries after them; None in a leaf.
        of_index: Whether it belongs to an index.
    """

    cells: list[Cell | None]
    after: int | None
    of_index: bool


class DatabaseFile:
    """The pages of a file. Close it with `close`.

    Attributes:
        pages: How many there are; they are numbered from 1.

    Args:
        path: The file; its log has the same name and `-wal`.

    Raises:
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._data = _mapped(path)
        self._wal: mmap.mmap | bytes = b""
        with suppress(FileNotFoundError):
            self._wal = _mapped(path.with_name(f"{path.name}-wal"))
        self._frames: dict[int, int] = {}
        self.size, self._unused = self._page_size()
        self.pages = len(self._data) // self.size
        self._replay()

    def close(self) -> None:
        """Close the file."""
        for data in (self._data, self._wal):
            if isinstance(data, mmap.mmap):
                data.close()

    def page(self, number: int) -> bytes:
        """Return a page.

        Raises:
            ValueError: There is no page with this number.
        """
        if not 1 <= number <= self.pages:
            raise ValueError(f"there is no page {number}")
        frame = self._frames.get(number)
        start = (number - 1) * self.size
        page = (
            self._data[start : start + self.size]
            if frame is None
            else self._wal[frame : frame + self.size]
        )
        if len(page) < self.size:
            raise ValueError(f"page {number} is cut off")
        return page

    def version(self) -> tuple[int, int]:
        """Return the version of the file's tables and its application id, from its header."""
        with suppress(ValueError):
            page = self.page(1)
            if page.startswith(_MAGIC):
                return _U32.unpack_from(page, 60)[0], _U32.unpack_from(page, 68)[0]
        return 0, 0

    def free_pages(self) -> set[int]:
        """Return the known free pages."""
        free: set[int] = set()
        with suppress(ValueError):
            trunk = _U32.unpack_from(self.page(1), 32)[0] if self.version()[1] else 0
            while trunk and trunk not in free:
                page = self.page(trunk)
                count = min(_U32.unpack_from(page, 4)[0], (self.size - 8) // 4)
                free |= {trunk, *(_U32.unpack_from(page, 8 + 4 * one)[0] for one in range(count))}
                trunk = _U32.unpack_from(page, 0)[0]
        return free

    def tree_page(self, number: int) -> TreePage:
        """Return a page of a tree.

        Raises:
            ValueError: It is not a page of a tree.
        """
        page = self.page(number)
        at = 100 if number == 1 else 0
        kind = page[at]
        if kind not in (2, 5, 10, 13):
            raise ValueError(f"page {number} is no page of a tree")
        inner = kind in (2, 5)
        count = _U16.unpack_from(page, at + 3)[0]
        first = at + (12 if inner else 8)
        if first + 2 * count > self.size:
            raise ValueError(f"page {number} claims to have more entries than fit")
        after = _U32.unpack_from(page, at + 8)[0] if inner else None
        cells: list[Cell | None] = []
        for place in range(first, first + 2 * count, 2):
            try:
                cells.append(self._cell(page, number, kind, _U16.unpack_from(page, place)[0]))
            except ValueError:
                cells.append(None)
        return TreePage(cells, after, kind in (2, 10))

    def _cell(self, page: bytes, number: int, kind: int, at: int) -> Cell:
        child = rowid = size = None
        try:
            if kind in (2, 5):
                (child,) = _U32.unpack_from(page, at)
                at += 4
            if kind != 5:
                size, at = _varint(page, at)
            if kind in (5, 13):
                rowid, at = _varint(page, at)
        except (IndexError, error) as cut:
            raise ValueError("a cell is beyond the end of its page") from cut
        if rowid is not None and rowid >= 1 << 63:
            rowid -= 1 << 64
        if size is not None and (size == 0 or size > self.pages * self.size):
            raise ValueError("a cell claims to be larger than it can be")
        payload = None if size is None else (at, size)
        return Cell(rowid, child, payload, number, kind in (2, 10))

    def record(self, cell: Cell) -> tuple[Value, ...]:
        """Return the values of a cell's record.

        Raises:
            ValueError: It is damaged.
        """
        if cell.payload is None:
            raise ValueError("the cell has no record")
        data = self._payload(cell.page, *cell.payload, of_index=cell.of_index)
        try:
            return tuple(_values(data))
        except (IndexError, error) as cut:
            raise ValueError("a record ends in the middle of a value") from cut

    def _payload(self, number: int, at: int, size: int, *, of_index: bool) -> bytes:
        """Return the bytes of a record that starts in a page."""
        page, usable = self.page(number), self.size - self._unused
        most = (usable - 12) * 64 // 255 - 23 if of_index else usable - 35
        here = size
        if size > most:
            least = (usable - 12) * 32 // 255 - 23
            here = least + (size - least) % (usable - 4)
            here = here if here <= most else least
        if at + here + (4 if here < size else 0) > usable:
            raise ValueError("a record is beyond the end of its page")
        parts, left = [page[at : at + here]], size - here
        following = _U32.unpack_from(page, at + here)[0] if left else 0
        while left:  # each page makes it shorter, so this ends
            page = self.page(following)
            parts.append(page[4 : min(usable, 4 + left)])
            left -= len(parts[-1])
            (following,) = _U32.unpack_from(page, 0)
        return b"".join(parts)

    # --- the header and the log ------------------------------------------------------------

    def _page_size(self) -> tuple[int, int]:
        """Return the size of a page, and how many bytes at its end are not used."""
        head = self._data[:100]
        own = head.startswith(_MAGIC) and len(head) == 100
        sizes = [_USUAL_SIZE]
        if own:
            sizes.insert(0, _U16.unpack_from(head, 16)[0])
        if len(self._wal) >= _WAL_HEADER.size:
            sizes.append(_WAL_HEADER.unpack_from(self._wal, 0)[2])
        sizes = [65_536 if one == 1 else one for one in sizes]
        sizes = [one for one in sizes if 512 <= one <= 65_536 and not one & (one - 1)]
        return max(sizes, key=self._looks_right), head[20] if own and head[20] <= 32 else 0

    def _looks_right(self, size: int) -> int:
        """Return how many of the first pages look like pages of a tree, weighted by size."""
        starts = range(size, min(len(self._data), _SAMPLE * size), size)
        return sum(size for at in starts if self._data[at] in (2, 5, 10, 13))

    def _replay(self) -> None:
        """Note the pages with newer content in the log, up to its last complete commit."""
        wal, frame = self._wal, _FRAME.size + self.size
        if len(wal) < _WAL_HEADER.size:
            return
        magic, _, size, _, *salts, first, second = _WAL_HEADER.unpack_from(wal, 0)
        big = magic == _WAL_MAGIC[1]
        sums = _checksum(wal[:24], (0, 0), big=big)
        if magic not in _WAL_MAGIC or size != self.size or sums != (first, second):
            return
        waiting: dict[int, int] = {}
        for at in range(_WAL_HEADER.size, len(wal) - frame + 1, frame):
            number, pages, *salts_here, first, second = _FRAME.unpack_from(wal, at)
            content = at + _FRAME.size
            sums = _checksum(wal[at : at + 8] + wal[content : at + frame], sums, big=big)
            if salts_here != salts or sums != (first, second):
                return
            waiting[number] = content
            if pages:
                self._frames |= waiting
                self.pages = pages
                waiting.clear()


def _mapped(path: Path) -> mmap.mmap | bytes:
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _checksum(data: bytes, sums: tuple[int, int], *, big: bool) -> tuple[int, int]:
    words = array("I", data)
    if big != (sys.byteorder == "big"):
        words.byteswap()
    first, second = sums
    for place in range(0, len(words), 2):
        first = (first + words[place] + second) & 0xFFFFFFFF
        second = (second + words[place + 1] + first) & 0xFFFFFFFF
    return first, second


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes, and where it ends."""
    number = 0
    for place in range(at, at + 8):
        byte = data[place]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, place + 1
    return number << 8 | data[at + 8], at + 9


def _values(data: bytes) -> Iterator[Value]:
    end, at = _varint(data, 0)
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(data, at)
        kinds.append(kind)
    if at != end or end + sum(map(_width, kinds)) != len(data):
        raise ValueError("a record has not the length it says")
    for kind in kinds:
        size = _width(kind)
        yield _value(kind, data[at : at + size])
        at += size


def _width(kind: int) -> int:
    if kind in (10, 11):
        raise ValueError("a record holds a value of a kind there is not")
    if kind >= 12:
        return (kind - 12) // 2
    return 8 if kind == 7 else _INTEGERS.get(kind, 0)


def _value(kind: int, data: bytes) -> Value:
    match kind:
        case 0:
            return None
        case 7:
            return _REAL.unpack(data)[0]
        case 8 | 9:
            return kind - 8
        case _ if kind < 10:
            return int.from_bytes(data, "big", signed=True)
        case _:
            return data.decode() if kind % 2 else data
