"""Removes checkpoints from a namespace of the Postgres journal; what stays is whole.

All of it runs in a transaction that has locked the thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..admission import off_loop
from ..base import TaskWrites
from ..maintenance import MERGED, merged, parents_of, removal, steps_left
from .commits import TASKS, USES
from .encoded_batch import TaskRow, packed
from .queries import DIGESTS, blobs
from .records import as_bytes, as_text, damage, writes
from .session import Row, Session, columns
from .stored_state import NUMBERS

__all__ = ["Namespace", "delete_tasks", "digests_of"]

_MERGED = as_bytes(MERGED)

_MOVE = """
UPDATE {checkpoints} AS c SET parent = new.parent
FROM unnest(%(seqs)s::int8[], %(parents)s::int8[]) AS new (seq, parent)
WHERE c.scope = %(scope)s AND c.seq = new.seq
"""
_DELETE = (
    "DELETE FROM {snapshots} WHERE seq = ANY(%(gone)s::int8[])",
    "DELETE FROM {checkpoints} WHERE scope = %(scope)s AND seq = ANY(%(gone)s::int8[])",
)

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

    async def remove(self, unwanted: Collection[str]) -> int:
        """Remove checkpoints by id; return how many could go."""
        if not unwanted:
            return 0
        found = await self._session.ask(
            "SELECT seq, id, parent FROM {checkpoints} WHERE scope = %(scope)s ORDER BY seq",
            scope=self._scope,
        )
        with damage(f"a checkpoint of thread {self._thread_id!r}"):
            rows = [(seq, as_text(step), parent) for seq, step, parent in found]
        parents = parents_of(self._thread_id, rows)
        plan = removal(parents, unwanted)
        if not plan.gone:
            return 0
        for heir, taken in plan.heirs.items():
            await self._inherit(heir, taken)
        seqs: dict[str | None, int | None] = {None: None, **{step: seq for seq, step, _ in rows}}
        moved = [one for one, parent in plan.parents.items() if parent != parents[one]]
        changes = {
            "scope": self._scope,
            "seqs": [seqs[one] for one in moved],
            "parents": [seqs[plan.parents[one]] for one in moved],
            "gone": [seqs[one] for one in plan.gone],
        }
        await self._session.send(*((text, changes) for text in (_MOVE, *_DELETE)))
        await self._delete_other_steps(map(as_bytes, steps_left(plan.parents, plan.gone)))
        return len(plan.gone)

    async def _inherit(self, heir: str, taken: Sequence[str]) -> None:
        """Give the writes of removed steps to the step that follows them."""
        step = as_bytes(heir)
        rows = await self._session.ask(
            f"SELECT t.step, t.task_id, t.idx, t.body, {DIGESTS} FROM {{tasks}} AS t"
            " WHERE t.scope = %(scope)s AND t.step = ANY(%(steps)s::bytea[])"
            " ORDER BY t.idx, t.task",
            scope=self._scope,
            steps=[*map(as_bytes, taken), step],
        )
        bodies = await blobs(self._session, rows)
        size = sum(len(row[3]) for row in rows) + sum(map(len, bodies.values()))
        task = await off_loop(size, lambda: self._merged(heir, taken, rows, bodies))
        await self._delete_tasks("step = %(step)s AND task_id = %(merged)s", step=step)
        ((number, _),) = await self._session.ask(NUMBERS, count=1)
        # Its large values are there: those that held them go in this very transaction.
        shares, uses = bool(task.digests), [(number, *one) for one in enumerate(task.digests)]
        row = (self._scope, step, _MERGED, number, task.index, shares, task.body)
        await self._session.send(*columns(TASKS, [row]), *columns(USES, uses))

    def _merged(
        self, heir: str, taken: Sequence[str], rows: Sequence[Row], bodies: dict[bytes, bytes]
    ) -> TaskRow:
        tasks: dict[str, list[TaskWrites]] = {}
        with damage(f"a task of thread {self._thread_id!r}"):
            for key, name, index, body, named in rows:
                step, values = as_text(key), tuple(writes(body, named, bodies))
                tasks.setdefault(step, []).append(TaskWrites(step, as_text(name), index, values))
            task, known = merged(heir, taken, tasks), dict(bodies)
            made = TaskRow(as_bytes(heir), _MERGED, task.index, *packed(task.writes, known))
            if len(known) > len(bodies):
                raise ValueError("a shared value is not the one that its digest names")
            return made

    async def _delete_other_steps(self, stay: Iterable[bytes]) -> None:
        """Delete the tasks and interrupts of all steps but these."""
        steps = [*stay]
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
