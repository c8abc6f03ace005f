"""The caller: who calls, with which scopes, and which threads and runs are theirs.

Ids carry their owner: `thr_<owner>_<random>`, where the owner is a digest of the principal, or
`thr_<random>` for the local user. So ownership needs no lookup and cannot be forgotten in one: what
does not belong to a caller does not exist for them.

The principal of a message is found before anything is done with it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, get_args

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST

from ...harness._internal.records import record
from ...harness.errors import HarnessError
from ...harness.messages.message import new_id

__all__ = [
    "AGENTS_CLAIM",
    "ALL_SCOPES",
    "KNOWN_SCOPES",
    "LOCAL",
    "RULES_PREFIX",
    "Caller",
    "Identify",
    "Principals",
    "Scope",
    "UnknownPrincipal",
    "current_caller",
    "current_client",
    "owner_of",
]

Scope: TypeAlias = Literal["drive", "delegate", "approve", "admin", "remember"]
"""`drive`: the file, todo and skill tools; `delegate`: `task` and what goes with it; `approve`:
decide what a run asks; `admin`: everybody's threads; `remember`: make decisions last by `reply`."""

AGENTS_CLAIM = "deep_agent_agents"
"""Where a token of ours names the agents that its bearer is bound to."""

KNOWN_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
"""What a token can have."""

ALL_SCOPES: frozenset[Scope] = KNOWN_SCOPES - {"remember"}
"""What the local user has, `admin` includes, and clients are told of. `remember` has to be given by
name, so that no model's client comes by it."""

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
        """Whether they have a scope; `admin` includes `ALL_SCOPES`."""
        return scope in self.scopes or (scope in ALL_SCOPES and "admin" in self.scopes)

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
        program = ctx.session.client_params
        name = "" if program is None else program.client_info.name[:100]
        token, client = current_caller.set(caller), current_client.set(name)
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
