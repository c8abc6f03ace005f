"""Concurrent edits: prevents agents that run side by side from overwriting each other's files.

Subagents called in one answer run side by side, each on the files as they were when it began:
where files are part of the state, the later of two changes would undo the earlier one. What is
known here is lost with the process, and with it no more than this warning.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

__all__ = ["CLAIMS", "Claim", "ConcurrentEdits"]


@dataclass(slots=True)
class Claim:
    """A change. It is settled once its agent went on: agents it calls later know of it."""

    ns: str
    settled: bool = False


@dataclass(slots=True)
class ConcurrentEdits:
    """Changes of paths by run.

    Attributes:
        max_runs: How many runs are remembered; those used last are kept.
    """

    max_runs: int = 1_024
    _runs: OrderedDict[str, dict[str, Claim]] = field(
        default_factory=OrderedDict[str, dict[str, Claim]]
    )

    def taken(self, run_id: str, ns: str, path: str) -> bool:
        """Whether another agent changed a path that the agent of `ns` knows in its old state."""
        claim = self._runs.get(run_id, {}).get(path)
        if claim is None or claim.ns == ns:
            return False
        return not (claim.settled and _is_below(ns, claim.ns))

    def take(self, run_id: str, ns: str, path: str) -> Claim | None:
        """Note that the agent of `ns` changes a path; return what was known of it."""
        claims = self._runs.setdefault(run_id, {})
        before = claims.get(path)
        claims[path] = Claim(ns)
        self._runs.move_to_end(run_id)
        while len(self._runs) > self.max_runs:
            self._runs.popitem(last=False)
        return before

    def put_back(self, run_id: str, path: str, claim: Claim | None) -> None:
        """Make what is known of a path what it was."""
        claims = self._runs.get(run_id, {})
        claims.pop(path, None)
        if claim is not None:
            claims[path] = claim

    def settle(self, run_id: str, ns: str) -> None:
        """Note that the agent of `ns` goes on: what agents below it changed is in its state."""
        for claim in self._runs.get(run_id, {}).values():
            if claim.ns == ns or _is_below(claim.ns, ns):
                claim.ns, claim.settled = ns, True

    def drop(self, run_id: str) -> None:
        """Forget a run that ended."""
        self._runs.pop(run_id, None)


def _is_below(ns: str, other: str) -> bool:
    return ns != other and (not other or ns.startswith(f"{other}/"))


CLAIMS = ConcurrentEdits()
"""Those of this process."""
