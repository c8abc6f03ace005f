"""Redis changes: the changes of one thread, as commands of one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from secrets import token_hex

from ...databases.redis import Argument
from ..codec import compress
from ..memory_threads import Namespace, Thread
from .records import (
    change_digest,
    change_row,
    checkpoint_row,
    event_row,
    interrupt_row,
    json_bytes,
    run_row,
)
from .tasks import (
    Blobs,
    Held,
    entries,
    entry_of,
    field_of,
    snapshot_body,
    snapshot_field,
)
from .thread_scripts import HOLD
from .threads import Command, Keys, Stored, Table, batched

__all__ = ["differences"]


def differences(stored: Stored, thread: Thread) -> list[Command]:
    """Return the commands that turn the stored thread into the given one.

    Raises:
        ValueError: It cannot be stored.
    """
    keys = stored.keys
    blobs: Blobs = {}
    new = {
        ":c": _checkpoint_table(thread),
        ":s": _step_table(stored, thread, blobs),
        ":x": _snapshot_table(stored, thread),
        ":g": _change_table(thread, blobs),
    }
    commands: list[Command] = []
    for name, table in new.items():
        commands += _table_changes(keys.of(name), stored.tables[name], table)
    commands += _order_changes(stored, thread)
    commands += _run_changes(stored, thread)
    commands += _interrupt_changes(stored, thread)
    commands += _event_changes(stored, thread)
    uses = {
        ":u": _counted(one.digests for data in new[":s"].values() for one in entries(data)),
        ":v": _counted([digest] for digest in map(change_digest, new[":g"].values()) if digest),
    }
    for name in (":u", ":v"):
        commands += _use_changes(keys, name, stored.uses[name], uses[name], blobs)
    made = [one for namespace in thread.namespaces.values() for one in namespace.checkpoints]
    head: tuple[Argument, ...] = ("HSET", keys.of(), "checkpoints", len(made))
    return [*commands, (*head, "newest", thread.newest, "shape", token_hex(8))]


def _checkpoint_table(thread: Thread) -> Table:
    return {
        field_of(ns, one.id): checkpoint_row(one)
        for ns, namespace in thread.namespaces.items()
        for one in namespace.checkpoints.values()
    }


def _step_table(stored: Stored, thread: Thread, blobs: Blobs) -> Table:
    table: Table = {}
    for ns, namespace in thread.namespaces.items():
        for step, tasks in namespace.steps.items():
            place = field_of(ns, step)
            if stored.tasks.get(place) == tasks:
                table[place] = stored.tables[":s"][place]
                continue
            made = [entry_of(task) for task in tasks.values()]
            table[place] = b"".join(data for data, _ in made)
            for _, held in made:
                blobs.update(held)
    return table


def _snapshot_table(stored: Stored, thread: Thread) -> Table:
    table: Table = {}
    for ns, namespace in thread.namespaces.items():
        for one in namespace.snapshots.values():
            place = snapshot_field(ns, one)
            # A task without writes was not read.
            table[place] = snapshot_body(one) if one.writes else stored.tables[":x"][place]
    return table


def _change_table(thread: Thread, blobs: Blobs) -> Table:
    table: Table = {}
    for change in thread.file_changes:
        record, held = change_row(change)
        number = b"%d" % change.seq
        table[number] = record
        blobs.update(held)
    return table


def _table_changes(key: bytes, old: Mapping[bytes, bytes], new: Table) -> list[Command]:
    commands: list[Command] = [
        ("HDEL", key, *some) for some in batched(place for place in old if place not in new)
    ]
    fresh = [place for place, value in new.items() if old.get(place) != value]
    commands += [("HSET", key, place, new[place]) for place in fresh]
    return commands


def _order_changes(stored: Stored, thread: Thread) -> list[Command]:
    keys = stored.keys
    commands: list[Command] = []
    for ns, order in stored.order.items():
        left = thread.namespaces.get(ns, Namespace()).checkpoints
        gone = [name for name, _ in order if name.decode() not in left]
        commands += [("ZREM", keys.of(f":o:{ns}"), *some) for some in batched(gone)]
        if ns not in thread.namespaces:
            commands.append(("ZREM", keys.of(":n"), ns))
        else:
            first = min((one.seq for one in left.values()), default=0)
            commands.append(("ZADD", keys.of(":n"), first, ns))
    kept = {b"%d" % change.seq for change in thread.file_changes}
    gone = [number for number, _ in stored.changes if number not in kept]
    commands += [("ZREM", keys.of(":f"), *some) for some in batched(gone)]
    made = {
        one.run_id
        for namespace in thread.namespaces.values()
        for one in namespace.checkpoints.values()
    }
    for run in stored.made - made:
        commands.append(("SREM", keys.of(":m"), run))
        commands.append(("SREM", keys.all(f"made:{run}"), keys.thread))
    return commands


def _run_changes(stored: Stored, thread: Thread) -> list[Command]:
    keys = stored.keys
    commands: list[Command] = []
    for name, (_, _, record, number, status, key) in stored.runs.items():
        place, run = keys.all(f"run:{name}"), thread.runs.get(name)
        new_key = None if run is None or run.idempotency_key is None else run.idempotency_key
        if key is not None and (new_key is None or new_key.encode() != key):
            commands.append(("ZREM", keys.all("runs:key:") + key, name))
            commands.append(("HDEL", place, "key"))
        if run is None:
            commands.append(("UNLINK", place))
            commands.append(("ZREM", keys.of(":r"), name))
            commands.append(("SREM", keys.of(":w"), name))
            commands.append(("ZREM", keys.all("runs:all"), name))
            commands.append(("ZREM", keys.all("runs:status:") + status, name))
            continue
        if (row := run_row(run)) != record:
            commands.append(("HSET", place, "d", row))
        if new_key is not None and new_key.encode() != key:
            commands.append(("HSET", place, "key", new_key))
            commands.append(("ZADD", keys.all(f"runs:key:{new_key}"), number, name))
    return commands


def _interrupt_changes(stored: Stored, thread: Thread) -> list[Command]:
    keys = stored.keys
    commands: list[Command] = []
    for name, (_, run, place, record, _answer) in stored.interrupts.items():
        asked = thread.interrupts.get(name)
        if asked is None:
            commands.append(("UNLINK", keys.of(f":i:{name}")))
            commands.append(("ZREM", keys.of(":i"), name))
            commands.append(("ZREM", keys.of(":q:") + place, name))
            commands.append(("ZREM", keys.all("asked:") + run, f"{keys.thread}{name}"))
            continue
        if (row := interrupt_row(asked)) != record:
            commands.append(("HSET", keys.of(f":i:{name}"), "d", row))
        if asked.answered and json_bytes(asked.answer) != _answer:
            commands.append(("HSET", keys.of(f":i:{name}"), "answer", json_bytes(asked.answer)))
    return commands


def _event_changes(stored: Stored, thread: Thread) -> list[Command]:
    keys = stored.keys
    commands: list[Command] = []
    for run in stored.newest_events:
        log, key = thread.events.get(run), keys.of(f":e:{run}")
        if log is None:
            commands.append(("UNLINK", key))
            commands.append(("HDEL", keys.of(":e"), run))
            commands.append(("HDEL", keys.all("logs"), run))
            commands.append(("ZREM", keys.all("logs:age"), run))
        elif log.events:
            commands.append(("UNLINK", key))
            for one in log.events:
                place, time = f"{one.seq}-1", repr(one.created_at)
                commands.append(("XADD", key, place, "t", time, "d", event_row(one)))
            oldest = repr(log.events[0].created_at)
            commands.append(("ZADD", keys.all("logs:age"), "NX", oldest, run))
    return commands


def _counted(groups: Iterable[Iterable[bytes]]) -> dict[bytes, int]:
    counts: dict[bytes, int] = {}
    for group in groups:
        for digest in group:
            counts[digest] = counts.get(digest, 0) + 1
    return counts


def _use_changes(
    keys: Keys, holder: str, old: Table, new: Mapping[bytes, int], blobs: Blobs
) -> list[Command]:
    changed: list[tuple[Argument, ...]] = []
    for digest in old.keys() | new.keys():
        times = new.get(digest, 0)
        if old.get(digest) != b"%d" % times:
            changed.append((digest, times, b"" if digest in old else _body(blobs.get(digest))))
    return [
        HOLD.first_call(
            [keys.prefix, keys.thread, holder, len(some), *(one for row in some for one in row)]
        )
        for some in batched(changed)
    ]


def _body(value: bytes | None) -> bytes:
    if value is None or isinstance(value, Held):
        raise ValueError("a stored write names a shared value that its thread does not hold")
    return compress(value)
