"""Tasks and snapshots in the Redis journal, and the names of their fields.

A task is one entry among those of its step: its size, id, index, the digests of its shared values,
and its packed writes, in which the position of a digest replaces a shared value. Reading checks
every length, and raises `ValueError` for damaged data.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from struct import Struct

from ..._internal.records import record
from ..base import Snapshot, StoredWrite, TaskWrites
from ..codec import (
    SHARED_FROM,
    compress,
    decompress,
    digest_of,
    pack,
    unpack,
)

__all__ = [
    "DIGEST_BYTES",
    "SIZE",
    "Blobs",
    "Entry",
    "Held",
    "entries",
    "entry_of",
    "field_of",
    "maybe",
    "number_at",
    "place_of",
    "read_snapshot",
    "snapshot_body",
    "snapshot_field",
    "snapshot_place",
    "thread_key",
]

Blobs = dict[bytes, bytes]
"""Shared values by digest."""

SIZE = Struct(">I")
_INDEX = Struct(">q")
DIGEST_BYTES = 32


class Held(bytes):
    """Placeholder for a shared value that maintenance of a thread does not read."""

    @classmethod
    def of(cls, digest: bytes) -> Held:
        """Return the placeholder for the value with this digest, as long as a shared value."""
        return cls(digest * (SHARED_FROM // DIGEST_BYTES))


def thread_key(thread_id: str) -> str:
    """Return the name of a thread in keys."""
    return blake2b(thread_id.encode(), digest_size=16).hexdigest()


def field_of(ns: str, name: str) -> bytes:
    """Return the field of a checkpoint or step; the script that commits makes the same."""
    scope = ns.encode()
    return b"%d:%s%s" % (len(scope), scope, name.encode())


def place_of(data: bytes) -> tuple[str, str]:
    """Return the namespace and the name that were passed to `field_of`."""
    ns, rest = _prefixed(data)
    return ns.decode(), rest.decode()


def snapshot_field(ns: str, snapshot: Snapshot) -> bytes:
    """Return the field of a snapshot."""
    return field_of(ns, "") + field_of(snapshot.checkpoint_id, snapshot.schema)


def snapshot_place(data: bytes) -> tuple[str, str, str]:
    """Return namespace, checkpoint and schema of a snapshot's field."""
    ns, rest = _prefixed(data)
    return ns.decode(), *place_of(rest)


def _prefixed(data: bytes) -> tuple[bytes, bytes]:
    digits, colon, rest = data.partition(b":")
    if not colon or len(digits) > 9 or not digits.isdigit() or int(digits) > len(rest):
        raise ValueError(f"{data!r:.60} is no name that the journal gives")
    return rest[: int(digits)], rest[int(digits) :]


def maybe(text: str | None) -> bytes:
    """Encode a text that may be None for the scripts."""
    return b"" if text is None else b"+" + text.encode()


@record
class Entry:
    """A task as it is stored."""

    task_id: str
    index: int
    digests: tuple[bytes, ...]
    body: bytes

    def task(self, step: str, shared: Callable[[bytes], bytes]) -> TaskWrites:
        """Return the task of a step.

        Args:
            step: The step.
            shared: Returns a shared value by its digest.

        Raises:
            ValueError: It is damaged.
        """
        data = decompress(self.body)

        def value(place: int) -> bytes:
            if place >= len(self.digests):
                raise ValueError("a stored write names a shared value that its task does not hold")
            return shared(self.digests[place])

        return TaskWrites(step, self.task_id, self.index, tuple(unpack(data, 0, len(data), value)))


def entry_of(task: TaskWrites) -> tuple[bytes, Blobs]:
    """Return the entry of a task, and its shared values.

    Raises:
        ValueError: It cannot be stored.
    """
    blobs: Blobs = {}
    places: dict[bytes, int] = {}

    def share(value: bytes) -> int:
        digest = value[:DIGEST_BYTES] if isinstance(value, Held) else digest_of(value)
        blobs[digest] = value
        return places.setdefault(digest, len(places))

    body = compress(pack(task.writes, share))
    name = task.task_id.encode()
    rest = b"".join(
        (
            *(SIZE.pack(len(name)), name, _INDEX.pack(task.index)),
            *(SIZE.pack(len(places)), *places, body),
        )
    )
    return SIZE.pack(len(rest)) + rest, blobs


def entries(data: bytes) -> list[Entry]:
    """Return the tasks of a step, in order of commit.

    Raises:
        ValueError: They are damaged.
    """
    found: list[Entry] = []
    place = 0
    while place < len(data):
        size, start = number_at(data, place), place + SIZE.size
        place = start + size
        if place > len(data):
            raise ValueError("the tasks of a step end in the middle of one")
        found.append(_entry(data[start:place]))
    return found


def _entry(data: bytes) -> Entry:
    name_end = SIZE.size + number_at(data, 0)
    if len(data) < name_end + _INDEX.size:
        raise ValueError("a stored task ends in its name")
    (index,) = _INDEX.unpack_from(data, name_end)
    start = name_end + _INDEX.size + SIZE.size
    held = number_at(data, start - SIZE.size)
    body = start + held * DIGEST_BYTES
    if len(data) < body:
        raise ValueError("a stored task ends in its digests")
    digests = tuple(data[at : at + DIGEST_BYTES] for at in range(start, body, DIGEST_BYTES))
    return Entry(data[SIZE.size : name_end].decode(), index, digests, data[body:])


def number_at(data: bytes, place: int) -> int:
    """Read the length at a position.

    Raises:
        ValueError: It does not.
    """
    if len(data) < place + SIZE.size:
        raise ValueError("a stored record ends in a length")
    return SIZE.unpack_from(data, place)[0]


def snapshot_body(snapshot: Snapshot) -> bytes:
    """Return the stored form of a snapshot, without shared values: it may be deleted any time."""
    return compress(pack(snapshot.writes, None))


def read_snapshot(body: bytes) -> list[StoredWrite]:
    """Return the writes of a snapshot.

    Raises:
        ValueError: It is damaged.
    """
    data = decompress(body)

    def nothing(place: int) -> bytes:
        raise ValueError("a stored snapshot names a shared value")

    return unpack(data, 0, len(data), nothing)
