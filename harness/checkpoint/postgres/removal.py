"""Removes checkpoints from a namespace of the Postgres journal; what stays is whole.

All of it runs in a transaction that has locked the thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..base import StoredWrite
from ..invariants import missing_ancestor
from ..maintenance import MERGED, removal, squeezed, steps_left
from .commits import TASKS, USES
from .encoded_batch import packed
from .queries import DIGESTS, blobs
from .records import as_bytes, as_text, damage, writes
from .session import Row, Session, columns, off_loop
from .stored_state import NUMBERS

__all__ = ["Namespace", "delete_tasks", "digests_of"]

_MERGED = as_bytes(MERGED)

_MOVE = """
UPDATE {checkpoints} AS c SET parent = new.parent
FROM unnest(%(seqs)s::int8[], %(parents)s::int8[]) AS new (seq, parent)
WHERE c.scope = %(scope)s AND c.seq = new.seq
"""

_OTHERS = "NOT EXISTS (SELECT 1 FROM unnest(%(steps)s::bytea[]) AS s (stays) WHERE s.stays = {})"


class Namespace:
    """A namespace of which checkpoints are removed.

    Args:
        session: A connection in a transaction that has locked the thread.
        thread_id: The thread.
        thread: Its number.
        scope: The namespace's number.
        ns: The namespace.

    Attributes:
        digests: Of the large values that removed tasks held.
    """

    def __init__(self, session: Session, thread_id: str, thread: int, scope: int, ns: str) -> None:
        self.digests = set[bytes]()
        self._session = session
        self._thread_id = thread_id
        self._thread = thread
        self._scope = scope
        self._ns = ns

    async def remove(self, unwanted: Collection[int]) -> int:
        """Remove checkpoints by seq; return how many could go."""
        if not unwanted:
            return 0
        rows = await self._session.ask(
            "SELECT seq, id, parent FROM {checkpoints} WHERE scope = %(scope)s ORDER BY seq",
            scope=self._scope,
        )
        parents = {seq: parent for seq, _, parent in rows}
        for seq, parent in parents.items():
            if parent is not None and not (parent in parents and parent < seq):
                raise missing_ancestor(self._thread_id)
        plan = removal(parents, set(unwanted))
        if not plan.gone:
            return 0
        steps = {seq: step for seq, step, _ in rows}
        for heir, taken in plan.heirs.items():
            await self._inherit(steps[heir], [steps[seq] for seq in taken])
        moved = {seq: one for seq, one in plan.parents.items() if one != parents[seq]}
        place = {"scope": self._scope, "gone": list(plan.gone)}
        move = {"scope": self._scope, "seqs": list(moved), "parents": list(moved.values())}
        await self._session.send(
            (_MOVE, move),
            ("DELETE FROM {snapshots} WHERE seq = ANY(%(gone)s::int8[])", place),
            (
                "DELETE FROM {checkpoints} WHERE scope = %(scope)s AND seq = ANY(%(gone)s::int8[])",
                place,
            ),
        )
        with damage(f"a checkpoint of thread {self._thread_id!r}"):
            left = steps_left(
                (as_text(steps[seq]) for seq in plan.parents),
                {as_text(steps[seq]) for seq in plan.gone},
            )
        await self._delete_other_steps([as_bytes(step) for step in left])
        return len(plan.gone)

    async def _inherit(self, heir: bytes, taken: Sequence[bytes]) -> None:
        """Give the writes of removed steps to the step that follows them."""
        rows = await self._session.ask(
            f"SELECT t.step, t.task_id, t.idx, t.body, {DIGESTS} FROM {{tasks}} AS t"
            " WHERE t.scope = %(scope)s AND t.step = ANY(%(steps)s::bytea[])"
            " ORDER BY t.idx, t.task",
            scope=self._scope,
            steps=[*taken, heir],
        )
        bodies = await blobs(self._session, rows)
        size = sum(len(row[3]) for row in rows) + sum(map(len, bodies.values()))
        body, digests = await off_loop(size, lambda: self._merged(heir, taken, rows, bodies))
        before = min((row[2] for row in rows if row[0] == heir and row[1] != _MERGED), default=0)
        await self._delete_tasks("step = %(step)s AND task_id = %(merged)s", step=heir)
        ((number, _),) = await self._session.ask(NUMBERS, count=1)
        # Its large values are there: those that held them go in this very transaction.
        await self._session.send(
            *columns(
                TASKS,
                [(self._scope, heir, _MERGED, number, before - 1, bool(digests), body)],
            ),
            *columns(USES, [(number, *one) for one in enumerate(digests)]),
        )

    def _merged(
        self, heir: bytes, taken: Sequence[bytes], rows: Sequence[Row], bodies: dict[bytes, bytes]
    ) -> tuple[bytes, Sequence[bytes]]:
        by_step: dict[bytes, list[Row]] = {step: [] for step in (*taken, heir)}
        for row in rows:
            by_step[row[0]].append(row)
        own = [row for row in by_step[heir] if row[1] != _MERGED]
        sources = [row for step in taken for row in by_step[step]]
        sources += [row for row in by_step[heir] if row[1] == _MERGED]

        def unpacked(tasks: Iterable[Row]) -> list[StoredWrite]:
            return [one for *_, body, named in tasks for one in writes(body, named, bodies)]

        with damage(f"a task of thread {self._thread_id!r}"):
            values = dict(bodies)
            merged = packed(squeezed(unpacked(sources), unpacked(own)), values)
            if len(values) > len(bodies):
                raise ValueError("a shared value is not the one that its digest names")
            return merged

    async def _delete_other_steps(self, steps: list[bytes]) -> None:
        """Delete the tasks and interrupts of all steps but these."""
        await self._delete_tasks(_OTHERS.format("step"), steps=steps)
        await self._session.ask(
            "DELETE FROM {interrupts} WHERE thread = %(thread)s AND ns = %(ns)s AND "
            + _OTHERS.format("step_id"),
            thread=self._thread,
            ns=as_bytes(self._ns),
            steps=steps,
        )

    async def _delete_tasks(self, where: str, **parameters: object) -> None:
        self.digests |= await delete_tasks(
            self._session,
            f"scope = %(scope)s AND {where}",
            scope=self._scope,
            merged=_MERGED,
            **parameters,
        )


async def delete_tasks(session: Session, where: str, **parameters: object) -> set[bytes]:
    """Delete tasks, and return the digests of the large values they held."""
    rows, _ = await session.send(
        (
            "DELETE FROM {uses} WHERE task IN"
            f" (SELECT task FROM {{tasks}} WHERE shares AND {where}) RETURNING digest",
            parameters,
        ),
        (f"DELETE FROM {{tasks}} WHERE {where}", parameters),
    )
    return digests_of(rows)


def digests_of(rows: Iterable[Row]) -> set[bytes]:
    """Return the digests that stand alone in rows."""
    return {digest for (digest,) in rows if digest is not None}
