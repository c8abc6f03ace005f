"""The caller: who calls, with which scopes, and which threads and runs are theirs.

Ids carry their owner: `thr_<owner>_<random>`, where the owner is a digest of the principal, or
`thr_<random>` for the local user. So ownership needs no lookup and cannot be forgotten in one: what
does not belong to a caller does not exist for them.

The principal of a message is found before anything is done with it. The journal that a caller reads
shows their own threads and runs only.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, get_args

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST

from ...harness._internal.records import record
from ...harness.checkpoint.base import (
    Checkpoint,
    Checkpointer,
    FileChange,
    Interrupt,
    Run,
    RunEvent,
    RunStatus,
    ThreadInfo,
    ThreadSlice,
)
from ...harness.errors import HarnessError
from ...harness.messages.message import new_id

__all__ = [
    "AGENTS_CLAIM",
    "ALL_SCOPES",
    "LOCAL",
    "RULES_PREFIX",
    "Caller",
    "Identify",
    "JournalReader",
    "OwnedJournal",
    "Principals",
    "Scope",
    "UnknownPrincipal",
    "current_caller",
    "current_client",
    "owner_of",
]


Scope: TypeAlias = Literal["drive", "delegate", "approve", "admin"]
"""`drive`: the file, todo and skill tools; `delegate`: `task` and what goes with it; `approve`:
decide what a run asks; `admin`: everybody's threads."""

AGENTS_CLAIM = "deep_agent_agents"
"""Where a token of ours names the agents that its bearer is bound to."""

ALL_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))

RULES_PREFIX = "rules_"
"""Begins the places of remembered decisions in the journal; threads and runs have no such ids."""

_OWNED = re.compile(r"(?:thr|run)_([0-9a-f]{16})_[0-9a-f]{16}")
"""What begins an id with an owner; ids of subagents' threads go on after it."""


@lru_cache(maxsize=1_024)
def _digest(principal: str) -> str:
    return blake2b(principal.encode(), digest_size=8).hexdigest() if principal else ""


def owner_of(id_: str) -> str:
    """Return the owner in the id of a thread or run; empty for the local user's."""
    found = _OWNED.match(id_)
    return found[1] if found is not None else ""


@record
class Caller:
    """Whoever a request comes from.

    Attributes:
        principal: Their name; empty for the local user of a server without authentication.
        scopes: What they may do.
        agents: The agents their token binds them to; None for all.
    """

    principal: str
    scopes: frozenset[str]
    agents: frozenset[str] | None = None

    @property
    def owner(self) -> str:
        """What stands in the ids of what is theirs."""
        return _digest(self.principal)

    def may(self, scope: Scope) -> bool:
        """Whether they have a scope; `admin` has all."""
        return scope in self.scopes or "admin" in self.scopes

    def owns(self, id_: str) -> bool:
        """Whether a thread or run is theirs to see."""
        if id_.startswith(RULES_PREFIX):
            return False
        if self.principal and "admin" in self.scopes:
            return True
        return owner_of(id_) == _digest(self.principal)

    def new_id(self, kind: Literal["thr", "run"], thread_id: str | None = None) -> str:
        """Return a new id of something of theirs; of a run, of whoever the thread belongs to."""
        owner = self.owner if thread_id is None else owner_of(thread_id)
        return new_id(f"{kind}_{owner}") if owner else new_id(kind)

    def fixed_thread(self, said: str, shown: str = "") -> str:
        """Return the id that something of theirs always gives a thread.

        Args:
            said: What it is; who knows it can compute the id.
            shown: What the id ends with, for people: letters, digits, '-' and '_'.
        """
        digest = blake2b(said.encode(), digest_size=8).hexdigest()
        owner = f"{self.owner}_" if self.owner else ""
        return f"thr_{owner}{digest}" + (f"-{shown}" if shown else "")

    def prefix(self, kind: Literal["thr", "run"]) -> str:
        """Return what the ids of what they may see begin with; empty where that is anything.

        So it is for an admin, and for the local user, whose imported threads have any name.
        """
        if not self.owner or "admin" in self.scopes:
            return ""
        return f"{kind}_{self.owner}_"

    def key(self, key: str | None) -> str | None:
        """Return an idempotency key as it is stored: everybody has their own."""
        if key is None:
            return None
        if self.owner:
            return f"{self.owner}:{key}"
        return f":{key}" if ":" in key else key  # not to be taken for a principal's


LOCAL = Caller("", ALL_SCOPES)
"""The one user of a server that is not reached over a network, or needs no authentication."""

current_caller: ContextVar[Caller] = ContextVar("caller", default=LOCAL)
"""Who the request being served comes from; what it starts inherits it."""


current_client: ContextVar[str] = ContextVar("client", default="")
"""What program the request being served comes from, as it says itself."""


class UnknownPrincipal(HarnessError):
    """It is not known on whose behalf a run was."""


class Principals(Protocol):
    """The principals that have called a server, also those that others of it have met."""

    def knows(self, caller: Caller) -> bool:
        """Whether there is nothing to note."""
        ...

    async def note(self, caller: Caller) -> None:
        """Store a caller. Writes once per principal, before anything is done for it.

        Raises:
            HarnessError: It cannot be stored.
        """
        ...

    async def find(self, id_: str) -> str:
        """Return the principal a thread or run belongs to; empty for the local user.

        Looks where all servers store the principals that they meet, unless this one knows it.

        Raises:
            UnknownPrincipal: It is not stored: nobody knows which rules hold for the run.
            HarnessError: It cannot be read.
        """
        ...

    def of(self, id_: str) -> str:
        """Return the same without looking any further: of a principal that was noted or found.

        Raises:
            UnknownPrincipal: It was neither.
        """
        ...


class Identify:
    """Server middleware: sets `current_caller` for each message.

    Args:
        principals: Told who has called.
        prepare: Makes what is the caller's own, such as a directory; None where nobody has that.
        needs_token: Whether a message over HTTP without an authenticated user is refused; the
            guard in front of the transports lets none through, so that would be a mistake.
    """

    def __init__(
        self,
        principals: Principals,
        prepare: Callable[[], Awaitable[None]] | None,
        *,
        needs_token: bool,
    ) -> None:
        self._principals = principals
        self._prepare = prepare
        self._needs_token = needs_token

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Serve a message on behalf of whoever it comes from."""
        caller = self._caller(ctx)
        if caller is not LOCAL and not self._principals.knows(caller):
            try:
                await self._principals.note(caller)
            except HarnessError as error:
                raise MCPError(INTERNAL_ERROR, str(error)) from error
        token, client = current_caller.set(caller), current_client.set(_client(ctx))
        try:
            if self._prepare is not None:
                try:
                    await self._prepare()
                except HarnessError as error:
                    raise MCPError(INVALID_REQUEST, str(error)) from error
            return await call_next(ctx)
        finally:
            current_client.reset(client)
            current_caller.reset(token)

    def _caller(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        scope: dict[str, Any] = getattr(ctx.request, "scope", {})
        user = scope.get("user")
        if isinstance(user, AuthenticatedUser):
            bearer = user.access_token
            agents = (bearer.claims or {}).get(AGENTS_CLAIM)
            caller = Caller(
                bearer.subject or bearer.client_id,
                frozenset(bearer.scopes),
                None if agents is None else frozenset(agents),
            )
            if not any(map(caller.may, ALL_SCOPES)):
                raise MCPError(
                    INVALID_REQUEST,
                    "Your token has none of this server's scopes ("
                    + ", ".join(sorted(ALL_SCOPES))
                    + "); nothing was done. Use one that has.",
                )
            return caller
        if self._needs_token:
            raise MCPError(
                INVALID_REQUEST, "This message does not say who calls; nothing was done."
            )
        return LOCAL


def _client(ctx: ServerRequestContext[Any, Any]) -> str:
    client = ctx.session.client_params
    return "" if client is None else client.client_info.name[:100]


_PAGE = 200
_MOST_RUNS = 10_000
"""How many of the newest runs are looked through at most, where their ids have no prefix."""


class JournalReader(Protocol):
    """Read access of requests to a journal; see `Checkpointer`."""

    async def threads(
        self, *, limit: int = 50, before: float | None = None
    ) -> Sequence[ThreadInfo]:
        """Return threads, last changed first."""
        ...

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first."""
        ...

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint of a thread, by default its head."""
        ...

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread, in order of their first checkpoint."""
        ...

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes of files after a checkpoint, newest first."""
        ...

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        ...

    async def find_runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, last begun first."""
        ...

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all questions of a run."""
        ...

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run, oldest first."""
        ...


class OwnedJournal:
    """A `JournalReader` in which what is not the caller's does not exist.

    Args:
        journal: With everybody's threads.
    """

    def __init__(self, journal: Checkpointer) -> None:
        self._journal = journal

    async def threads(
        self, *, limit: int = 50, before: float | None = None
    ) -> Sequence[ThreadInfo]:
        """Return threads, last changed first; reads on past those of others.

        The journal passes over most of them; what only looks like the caller's is left out here.
        """
        found: list[ThreadInfo] = []
        prefix = current_caller.get().prefix("thr")
        page = limit
        while True:
            rows = await self._journal.threads(limit=page, before=before, prefix=prefix)
            found += [row for row in rows if _owns(row.thread_id)]
            if len(found) >= limit or len(rows) < page:
                return found[:limit]
            before = rows[-1].updated_at
            page = max(limit, _PAGE)

    async def history(
        self, thread_id: str, ns: str = "", *, before: str | None = None, limit: int = 50
    ) -> Sequence[Checkpoint]:
        """Return checkpoints, newest first."""
        if not _owns(thread_id):
            return []
        return await self._journal.history(thread_id, ns, before=before, limit=limit)

    async def load(
        self,
        thread_id: str,
        ns: str = "",
        checkpoint_id: str | None = None,
        *,
        cached: str | None = None,
    ) -> ThreadSlice | None:
        """Return a checkpoint of a thread, by default its head."""
        if not _owns(thread_id):
            return None
        return await self._journal.load(thread_id, ns, checkpoint_id, cached=cached)

    async def namespaces(self, thread_id: str) -> Sequence[str]:
        """Return the namespaces of a thread, in order of their first checkpoint."""
        return await self._journal.namespaces(thread_id) if _owns(thread_id) else []

    async def file_changes(self, thread_id: str, since_seq: int) -> Sequence[FileChange]:
        """Return the changes of files after a checkpoint, newest first."""
        if not _owns(thread_id):
            return []
        return await self._journal.file_changes(thread_id, since_seq)

    async def run(self, run_id: str) -> Run | None:
        """Return a run by id."""
        return await self._journal.run(run_id) if _owns(run_id) else None

    async def find_runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, last begun first.

        Without a thread, the local user's are sought among the newest 10,000 of everybody.
        """
        find = self._journal.find_runs
        if thread_id is not None:
            if not _owns(thread_id):
                return []
            return await find(thread_id=thread_id, status=status, limit=limit)
        prefix = current_caller.get().prefix("run")
        page = limit
        while True:
            runs = await find(prefix=prefix, status=status, limit=page)
            found = [run for run in runs if _owns(run.id)]
            if len(found) >= limit or len(runs) < page or page >= _MOST_RUNS:
                return found[:limit]
            page = min(max(_PAGE, 4 * page), max(limit, _MOST_RUNS))  # no place to go on from

    async def interrupts(self, run_id: str) -> Sequence[Interrupt]:
        """Return all questions of a run; not what its caller has told it."""
        asked = await self._journal.interrupts(run_id) if _owns(run_id) else ()
        return [one for one in asked if one.kind != "message"]

    async def events(self, run_id: str, *, after: int = 0, limit: int = 200) -> Sequence[RunEvent]:
        """Return events of a run, oldest first."""
        return await self._journal.events(run_id, after=after, limit=limit) if _owns(run_id) else []


def _owns(id_: str) -> bool:
    return current_caller.get().owns(id_)
