"""The conformance kit: checks your checkpointer against the guarantees of the protocol.

    async def test_my_checkpointer(tmp_path):
        await verify(lambda: MyCheckpointer(tmp_path / f"{uuid4()}.db"))

Each law gets a new, empty journal. `LAWS` lists them, for a parametrised test.
"""

from __future__ import annotations

from . import commits, copies, maintenance, rewriting, run_ownership, runs, snapshots
from .kit import Law, MakeJournal

__all__ = ["LAWS", "Law", "MakeJournal", "NotConforming", "verify"]

LAWS: tuple[Law, ...] = (
    *commits.LAWS,
    *rewriting.ADMISSION_LAWS,
    *commits.UNFINISHED_LAWS,
    *snapshots.FORK_LAWS,
    *snapshots.LAWS,
    *snapshots.LISTING_LAWS,
    *runs.LAWS,
    *run_ownership.LAWS,
    *copies.LAWS,
    *maintenance.LAWS,
    *runs.EVENT_LAWS,
    *rewriting.LAWS,
)
"""All laws, ordered so that the first broken one is the most informative."""


class NotConforming(AssertionError):
    """A checkpointer breaks laws; the text names each and how."""


async def verify(make: MakeJournal) -> None:
    """Check every law against a checkpointer.

    Args:
        make: Opens a new, empty journal; leaving the context closes it.

    Raises:
        NotConforming: Some laws are broken; the text names all of them.
    """
    broken: list[str] = []
    for law in LAWS:
        try:
            await law.verify(make)
        except Exception as error:  # noqa: BLE001 - whatever it raises, the law is broken
            broken.append(f"- {law.group}: {law.name}: {type(error).__name__}: {error}")
    if broken:
        raise NotConforming(f"{len(broken)} of {len(LAWS)} laws are broken:\n" + "\n".join(broken))
