"""Codec of journals: packs writes into one body, and compresses and checks bodies.

The first byte of a body determines how to read the rest. Unpacking checks every length against the
actual data: a damaged or hostile body raises `ValueError`, and never takes more memory than
allowed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple, TypeVar
from zlib import crc32

import anyio.to_thread
from pydantic import JsonValue

from ..errors import CheckpointError
from .base import Batch, StoredWrite

__all__ = [
    "SHARED_FROM",
    "PackedTask",
    "compress",
    "decompress",
    "digest_of",
    "json_text",
    "off_loop",
    "pack",
    "pack_step",
    "plain",
    "step_key",
    "step_name",
    "task_spans",
    "unpack",
    "unpack_all",
    "unpack_step",
    "weight_of",
]

T = TypeVar("T")

_LARGE = 131_072
"""Bytes that can be packed or unpacked in about a millisecond."""

SHARED_FROM = 4096
"""Values of at least this many bytes are stored once, even if many writes contain them."""

_PLAIN, _DEFLATED = b"\xa6", b"\x5a"
"""First bytes of bodies, which differ in several bits. A checksum of the data follows, and the
length of deflated data."""

_OLD_PLAIN, _OLD_DEFLATED = b"\x00", b"\x01"
"""First bytes of bodies without a checksum, as written by the first versions."""

_DEFLATE_FROM = 64
"""The fewest bytes for which compression is worth its time."""

_WORTH = 0.9
"""The largest fraction of its size to which a body must shrink, since each read costs time."""

_MOST = 1100
"""Deflate shrinks data to 1/1032 at most; a body that claims more is damaged."""

_SUM = Struct("<I")
_LENGTH = Struct("<I")
_WRITE = Struct("<BHI")
_WRITE_SIZE, _read_write = _WRITE.size, _WRITE.unpack_from
_OVERWRITES, _SHARED, _ALL_FLAGS = 1, 2, 3
_BLOB = Struct("<Q")
_STEP_LENGTH = Struct("<I")
_TASK = Struct("<II8s")
_TASK_SIZE, _read_task = _TASK.size, _TASK.unpack_from

_DICTIONARY = (
    b'"description":"","status":"pending""in_progress""completed","priority":'
    b'"file_path":"","path":"/","offset":0,"limit":200,"pattern":"**/*.py","command":"'
    b'"old_string":"","new_string":"","replace_all":false,"query":"","url":"https://'
    b'{"files":{"/":"","encoding":"utf-8","created_at":"","modified_at":"2026-'
    b'[{"content":"","source":null,"name":null,"id":"msg_","type":"human"}]'
    b'[{"content":[{"text":"I will now use the tool to read the file and then write the result. '
    b'","type":"text"},{"thinking":"","signature":"","type":"thinking"},'
    b'{"id":"toolu_01","name":"write_file","args":{"number":0,"content":"","text":""},'
    b'"invalid":null,"type":"tool_call"}],"model":"claude-sonnet-","stop_reason":"tool_use",'
    b'"stop_reason":"end_turn","usage":{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,'
    b'"cache_write_tokens":0},"source":"client","model":null,"stop_reason":null,"usage":null,'
    b'"source":null,"name":null,"id":"msg_0123456789abcdef","type":"ai"}]'
    b"files\x00todos\x00messages\x00"
    b'[{"tool_call_id":"toolu_01","content":"Error: the file was not found. ",'
    b'"name":"read_file","status":"error","artifact":{"'
    b'"},"name":"","status":"success","artifact":null,"id":"msg_","type":"tool"}]'
)
"""A dictionary of frequent texts, so that small values compress too. It is part of the file format:
a better one gets another first byte, and this one is kept."""

_STEP = re.compile(r"ckpt_[0-9a-f]{16}", re.ASCII)


def digest_of(value: bytes) -> bytes:
    """Return the hash by which a shared value is found."""
    return blake2b(value, digest_size=32).digest()


def plain(data: bytes) -> bytes:
    """Return an uncompressed body for `decompress`, which takes almost no time."""
    return b"".join((_PLAIN, _SUM.pack(crc32(data)), data))


def compress(data: bytes) -> bytes:
    """Return a body for `decompress`, compressed if that pays."""
    if len(data) >= _DEFLATE_FROM:
        deflate = zlib.compressobj(1, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY)
        small = deflate.compress(data) + deflate.flush()
        if len(small) < len(data) * _WORTH:
            return b"".join((_DEFLATED, _SUM.pack(crc32(data)), _LENGTH.pack(len(data)), small))
    return plain(data)


def decompress(body: bytes) -> bytes:
    """Return the data of a body.

    Raises:
        ValueError: It is damaged.
    """
    kind = body[:1]
    if kind == _OLD_PLAIN:
        return body[1:]
    if kind == _OLD_DEFLATED:
        return _inflated(body, 1)
    if kind not in (_PLAIN, _DEFLATED):
        raise ValueError(f"a stored value begins with {kind!r}, which no version has written")
    start = 1 + _SUM.size
    data = body[start:] if kind == _PLAIN else _inflated(body, start)
    if body[1:start] != _SUM.pack(crc32(data)):
        raise ValueError("a stored value is damaged: it is not what was stored")
    return data


def _inflated(body: bytes, start: int) -> bytes:
    """Return the data of a deflated body whose length is at `start`."""
    if len(body) < start + _LENGTH.size:
        raise ValueError("a stored value is damaged: it is too short")
    (length,) = _LENGTH.unpack_from(body, start)
    if length > _MOST * len(body):
        raise ValueError("a stored value claims to be larger than it can be")
    inflate = zlib.decompressobj(-15, _DICTIONARY)
    try:
        data = inflate.decompress(memoryview(body)[start + _LENGTH.size :], length + 1)
    except zlib.error as error:
        raise ValueError(f"a stored value is damaged: {error}") from error
    if len(data) != length or not inflate.eof:
        raise ValueError("a stored value is damaged: it has not the length it was stored with")
    return data


def pack(writes: Iterable[StoredWrite], share: Callable[[bytes], int] | None) -> bytes:
    """Return writes as bytes, which `unpack` reads.

    Args:
        writes: The writes, in order.
        share: Stores a large value and returns its number; None keeps all values in it.

    Raises:
        ValueError: A channel's name is not Unicode or longer than 64 KiB.
    """
    parts: list[bytes] = []
    for write in writes:
        channel, value = write.channel.encode(), write.value
        flags = _OVERWRITES if write.overwrite else 0
        if share is not None and len(value) >= SHARED_FROM:
            flags, value = flags | _SHARED, _BLOB.pack(share(value))
        if len(channel) > 0xFFFF:
            raise ValueError(f"the name of a channel has {len(channel)} bytes, more than 65,535")
        parts += (_WRITE.pack(flags, len(channel), len(value)), channel, value)
    return b"".join(parts)


def unpack(data: bytes, place: int, end: int, shared: Callable[[int], bytes]) -> list[StoredWrite]:
    """Return packed writes.

    Args:
        data: The data that contains them.
        place: The index of their first byte.
        end: The index after their last byte.
        shared: Returns a shared value by its number.

    Raises:
        ValueError: They are damaged.
    """
    return unpack_all(data, [(place, end)], shared)


def unpack_all(
    data: bytes, spans: Iterable[tuple[int, int]], shared: Callable[[int], bytes]
) -> list[StoredWrite]:
    """Return the writes of several packed parts, each given by its beginning and end.

    Args:
        data: The data that contains them.
        spans: Beginning and end of each part.
        shared: Returns a shared value by its number.

    Raises:
        ValueError: They are damaged.
    """
    writes: list[StoredWrite] = []
    channels: dict[bytes, str] = {}
    for place, end in spans:
        if not 0 <= place <= end <= len(data):
            raise ValueError("stored writes are beyond the end of what holds them")
        while place < end:
            name = place + _WRITE_SIZE
            if name > end:
                raise ValueError("stored writes end in the middle of one")
            flags, name_length, length = _read_write(data, place)
            start = name + name_length
            place = start + length
            if place > end or flags > _ALL_FLAGS:
                raise ValueError("stored writes end in the middle of one")
            value = data[start:place]
            if flags & _SHARED:
                if length != _BLOB.size:
                    raise ValueError("a stored write names its shared value wrongly")
                value = shared(_BLOB.unpack(value)[0])
            key = data[name:start]
            channel = channels.get(key)
            if channel is None:
                channel = channels[key] = key.decode()
            writes.append(StoredWrite(channel, value, flags & _OVERWRITES != 0))
    return writes


class PackedTask(NamedTuple):
    """A task of a step, with its index, and its writes as returned by `pack`."""

    task_id: str
    place: int
    writes: bytes


def pack_step(tasks: Iterable[PackedTask]) -> bytes:
    """Return all tasks of a step as bytes, in the order in which they are applied.

    Raises:
        ValueError: A task's id is not Unicode.
        OverflowError: A task's index takes more than 8 bytes.
    """
    parts = [b""]
    for task_id, index, writes in tasks:
        name, place = task_id.encode(), index.to_bytes(8, "little", signed=True)
        parts += (_TASK.pack(len(name), len(writes), place), name, writes)
    parts[0] = _STEP_LENGTH.pack(sum(map(len, parts)))
    return b"".join(parts)


def task_spans(data: bytes, place: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield positions of each task of a packed step: its start, and start and end of its writes.

    Raises:
        ValueError: The step is damaged, or the data is not a step.
    """
    if not 0 <= place <= end - _STEP_LENGTH.size <= len(data) - _STEP_LENGTH.size:
        raise ValueError("a stored step is beyond the end of what holds it")
    (length,) = _STEP_LENGTH.unpack_from(data, place)
    place += _STEP_LENGTH.size
    if length != end - place:
        raise ValueError("a stored step has not the length it says")
    while place < end:
        if place + _TASK_SIZE > end:
            raise ValueError("a stored step ends in the middle of a task")
        name_length, length, _ = _read_task(data, place)
        start = place + _TASK_SIZE + name_length
        if start + length > end:
            raise ValueError("a stored step ends in the middle of a task")
        yield place, start, start + length
        place = start + length


def unpack_step(data: bytes) -> list[PackedTask]:
    """Return the tasks of a packed step.

    Raises:
        ValueError: It is damaged.
    """
    tasks: list[PackedTask] = []
    for place, start, end in task_spans(data, 0, len(data)):
        index = int.from_bytes(_read_task(data, place)[2], "little", signed=True)
        tasks.append(PackedTask(data[place + _TASK_SIZE : start].decode(), index, data[start:end]))
    return tasks


def step_key(step: str) -> int | str:
    """Return a step's id as a number if `step_id` made it; that takes 8 bytes instead of 21."""
    if _STEP.fullmatch(step) is None:
        return step
    number = int(step[5:], 16)
    return number if number < 1 << 63 else number - (1 << 64)  # SQLite's integers have a sign


def step_name(key: int | str) -> str:
    """Return the id for a number of `step_key`."""
    return key if isinstance(key, str) else f"ckpt_{key & 0xFFFFFFFFFFFFFFFF:016x}"


def json_text(value: JsonValue) -> str:
    """Return a value as JSON text.

    Raises:
        CheckpointError: It is not JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{type(value).__name__} cannot be stored as JSON: {error}. Nothing was stored."
        ) from error


def weight_of(batch: Batch) -> int:
    """Return how many bytes of values a batch contains."""
    values = sum(len(write.value) for task in batch.writes for write in task.writes)
    folded = sum(len(write.value) for one in batch.snapshots for write in one.writes)
    return values + folded + sum(len(one.before or b"") for one in batch.file_changes)


async def off_loop(size: int, function: Callable[[], T]) -> T:
    """Call a function that packs or unpacks this many bytes, in a thread if that takes long."""
    return function() if size < _LARGE else await anyio.to_thread.run_sync(function)
