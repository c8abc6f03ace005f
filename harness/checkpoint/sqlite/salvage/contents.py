"""Row matching: which rows of a damaged journal belong together, and whether sealed records open.

Each row's key is stored twice: in the row and in an index. If one of them was altered, it usually
refers to something that does not exist. If it is unclear which one is right, neither counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...._internal.records import changed
from ....errors import CheckpointError
from ...base import Record, Run, TaskWrites, step_id, turn_step_id
from ...codec import PackedTask, decompress, digest_of, step_key, step_name, unpack, unpack_step
from ...record_encryption import RecordCipher, is_sealed
from .tables import INDEX_OF, Tables
from .trees import Row, layout

if TYPE_CHECKING:
    from ...keyring import Keyring

__all__ = ["Contents", "SealedRecords"]


_KEPT = 4
"""How many pages are remembered; tasks are read in order."""


class Contents:
    """The rows of a journal, matched with each other.

    Attributes:
        tables: The tables of the rows.
        threads: Rows of threads by number.
        names: Ids of threads by number, including threads whose row is lost.
        scopes: By thread, its namespaces with their numbers.
        checkpoints: Rows by namespace's number, in order of commit.
        lost_steps: Keys of checkpoints that are lost, by namespace's number.
        pending: Rows of tasks of unfinished steps, by namespace's number and step.
        torn: Namespaces and unfinished steps that lack a task.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._pages: dict[int, bytes] = {}
        self.threads, _ = _settled(tables, "threads", lambda _: True)
        self.names = self._names()
        self.scopes = self._scopes()
        self.checkpoints, self.lost_steps = self._checkpoints()
        self.pending, self.torn = self._pending()
        self._changes, self._lost_changes = _settled(
            tables, "file_changes", lambda key: key[0] in self.names
        )

    def _names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        found = {number: row[1] for number, row in self.threads.items()}
        for number, keys in self.tables.keys("threads").items():
            found.setdefault(number, keys[0][0])
        taken: set[str] = set()
        for number, name in found.items():
            names[number] = f"salvaged-{number}" if name in taken else name
            taken.add(name)
        for _, thread, _ in self.tables.rows("scopes").values():
            names.setdefault(thread, f"salvaged-{thread}")
        return names

    def _scopes(self) -> dict[int, list[tuple[str, int]]]:
        rows = self.tables.rows("scopes")
        claims = defaultdict[Any, set[int]](set)
        for number, (_, thread, ns) in rows.items():
            claims[thread, ns].add(number)
        for number, keys in self.tables.keys("scopes").items():
            for key in keys:
                claims[key].add(number)

        def plausible(key: Row) -> bool:
            return key[0] in self.threads and len(claims[key]) == 1

        found = defaultdict[int, list[tuple[str, int]]](list)
        sound, lost = _settled(self.tables, "scopes", plausible)
        kept = {number: (row[1], row[2]) for number, row in sound.items()}
        for number, keys in self.tables.keys("scopes").items():
            if number not in rows and len(keys) == 1 and keys[0] in lost:
                kept[number] = keys[0][0], keys[0][1]  # the index contains all data of the row
        taken = [*kept.values()]
        for number, (thread, ns) in kept.items():
            if taken.count((thread, ns)) == 1 and thread in self.names:
                found[thread].append((ns, number))
        return found

    def _checkpoints(self) -> tuple[dict[int, list[Row]], dict[int, set[Any]]]:
        grown = self._grown()
        sound, lost = _settled(self.tables, "checkpoints", grown.__contains__)
        found, gone = defaultdict[int, list[Row]](list), defaultdict[int, set[Any]](set)
        for scope, key in lost:
            gone[scope].add(key)
        twice = defaultdict[Any, int](int)
        for row in sound.values():
            twice[row[1], row[2]] += 1
        for row in sorted(sound.values()):
            if twice[row[1], row[2]] > 1:
                gone[row[1]].add(row[2])
            else:
                found[row[1]].append(row)
        return found, gone

    def _grown(self) -> set[Row]:
        """Return the keys that steps may have which follow on others: as the loop makes them."""
        by_seq = self.tables.rows("checkpoints")
        rows = by_seq.values()
        keys, runs = {(row[1], row[2]) for row in rows}, {(row[1], row[8]) for row in rows}
        begun = {
            (row[1], step_name(by_seq[row[3]][2]), row[8])
            for row in rows
            if row[8] and row[3] in by_seq
        }
        keys |= {key for said in self.tables.keys("checkpoints").values() for key in said}
        grown: set[Row] = set()
        for thread, scopes in self.scopes.items():
            for ns, scope in scopes:
                above = [None, *(step_name(key) for at, key in keys if at == scope)]
                for one in above:
                    ids = step_id(one), turn_step_id(one, self.names[thread], ns)
                    grown |= {(scope, step_key(new)) for new in ids}
                if not ns:
                    name = self.names[thread]
                    first = {(None, run) for at, run in runs if at == scope and run}
                    turns = first | {(above, run) for at, above, run in begun if at == scope}
                    new = [turn_step_id(one, name, run_id=run) for one, run in turns]
                    grown |= {(scope, step_key(one)) for one in new}
        return grown

    def _pending(self) -> tuple[Mapping[Row, list[Row]], set[Row]]:
        following: set[Row] = {
            (scope, step_key(step_id(step_name(row[2]))))
            for scope, rows in self.checkpoints.items()
            for row in rows
        }
        sound, lost = _settled(self.tables, "pending", following.__contains__)
        found = defaultdict[Row, list[Row]](list)
        for row in sorted(sound.values()):
            found[row[1], row[2]].append(row)
        return found, {*lost}

    def is_torn(self, scope: int, step: object) -> bool:
        """Whether tasks of an unfinished step are missing, or may be missing without a trace."""
        key: Any = (scope, step)
        return key in self.torn or self.tables.may_lack("pending", key)

    def changes_of(self, thread: int) -> tuple[list[Row], int]:
        """Return the rows of changed files of a thread, and how many are lost."""
        rows = [row for row in self._changes.values() if row[1] == thread]
        return sorted(rows), sum(key[0] == thread for key in self._lost_changes)

    # --- values ----------------------------------------------------------------------------

    def step(self, row: Row) -> list[TaskWrites]:
        """Return the tasks of a checkpoint with their writes.

        Raises:
            ValueError: They are missing or damaged.
        """
        seq, _, key, *_, page, place, length, body = row
        if body is not None:
            data = decompress(body)
        else:
            whole = self._page(seq if page is None else page)
            if not 0 <= place <= place + length <= len(whole):
                raise ValueError("a stored step is beyond the end of its page")
            data = whole[place : place + length]
        return [self._task(key, one) for one in unpack_step(data)]

    def task(self, row: Row) -> TaskWrites:
        """Return a pending task with its writes.

        Raises:
            ValueError: They are missing or damaged.
        """
        _, _, step, task_id, index, body = row
        return self._task(step, PackedTask(task_id, index, decompress(body)))

    def _task(self, step: Any, task: PackedTask) -> TaskWrites:
        writes = unpack(task.writes, 0, len(task.writes), self.shared)
        return TaskWrites(step_name(step), task.task_id, task.place, tuple(writes))

    def shared(self, number: int) -> bytes:
        """Return a large value by its number.

        Raises:
            ValueError: It is missing or damaged.
        """
        _, digest, body = self.tables.large("blobs", number)
        value = decompress(body)
        if digest_of(value) != digest:
            raise ValueError(f"shared value {number} is not what was stored")
        return value

    def _page(self, number: int) -> bytes:
        data = self._pages.get(number)
        if data is None:
            data = decompress(self.tables.large("pages", number)[2])
            if len(self._pages) == _KEPT:
                del self._pages[next(iter(self._pages))]
            self._pages[number] = data
        return data


def _settled(
    tables: Tables, table: str, plausible: Callable[[Row], bool]
) -> tuple[dict[int, Row], list[Row]]:
    """Return the rows of a table that count, and the keys of lost rows.

    Args:
        tables: The tables.
        table: Its name.
        plausible: Whether a row may have such a key.
    """
    rows, keys = tables.rows(table), tables.keys(table)
    places = layout().indices[INDEX_OF[table]][1]
    sound, lost = dict[int, Row](), list[Row]()
    for number in {**rows, **keys}:
        row, said = rows.get(number), keys.get(number, ())
        if row is None:
            lost += said
            continue
        own = tuple(row[place] for place in places)
        others = [key for key in said if plausible(key)]
        if not said or own in said or (plausible(own) and not others):
            sound[number] = row
        else:
            lost += [*others, *([own] if plausible(own) else [])]
    return sound, lost


class SealedRecords:
    """Decrypts records to check them; without keys, every record passes.

    Args:
        keys: The keys of the journal; None if it is not encrypted, or the keys are not available.

    Raises:
        CheckpointError: The package `cryptography` is missing (extra `encryption`).
    """

    def __init__(self, keys: Keyring | None) -> None:
        self._cipher = None
        self._opened = False
        self._refusal: CheckpointError | None = None
        if keys is not None:
            from ...keyring import Cipher

            self._cipher = RecordCipher(Cipher(keys))

    def open(self, record: Record) -> None:
        """Open a record.

        Raises:
            CheckpointError: It is damaged, not sealed, or sealed with another key.
        """
        if self._cipher is None:
            return
        try:
            self._cipher.open(record)
        except CheckpointError as error:
            self._refusal = self._refusal or error
            raise
        self._opened = True

    def failed(self, run: Run, reason: str) -> Run:
        """Return a run as failed; without keys, the reason cannot be added to an encrypted one."""
        if self._cipher is not None:
            opened = self._cipher.open(run)
            return self._cipher.seal(changed(opened, status="failed", owner=None, reason=reason))
        told = None if is_sealed(run) else reason
        return changed(run, status="failed", owner=None, reason=told)

    def require_right_keys(self) -> None:
        """Refuse keys that have decrypted nothing.

        Raises:
            CheckpointError: They are wrong, or nothing is sealed.
        """
        if self._refusal is not None and not self._opened:
            raise self._refusal
