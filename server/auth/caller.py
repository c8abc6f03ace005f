"""The caller: who they are, their scopes, and their threads and runs.

Ids carry their owner: `thr_<owner>_<random>`, where the owner is a digest of the principal, or
`thr_<random>` for the local user. So checking the owner needs no lookup, and no lookup can forget
it: threads and runs of others do not exist for a caller.

The principal of a message is determined before anything else happens.
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
"""`drive`: the file, todo and skill tools; `delegate`: `task` and related tools; `approve`: answer
questions of runs; `admin`: all users' threads; `remember`: make decisions last with `reply`."""

AGENTS_CLAIM = "deep_agent_agents"
"""The key in one of our tokens for the agents that its bearer is limited to."""

KNOWN_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
"""All scopes that a token can have."""

ALL_SCOPES: frozenset[Scope] = KNOWN_SCOPES - {"remember"}
"""The scopes of the local user, which `admin` includes and clients are shown. `remember` has to be
granted by name, so that no model's client gets it by accident."""

RULES_PREFIX = "rules_"
"""Prefix of remembered decisions in the journal; no thread or run has an id with it."""

_OWNED = re.compile(r"(?:thr|run)_([0-9a-f]{16})_[0-9a-f]{16}")
"""The beginning of an id with an owner; ids of subagents' threads are longer."""


@lru_cache(maxsize=1_024)
def _digest(principal: str) -> str:
    return blake2b(principal.encode(), digest_size=8).hexdigest() if principal else ""


def owner_of(id_: str) -> str:
    """Return the owner in the id of a thread or run; empty for the local user's."""
    found = _OWNED.match(id_)
    return found[1] if found is not None else ""


@record
class Caller:
    """The sender of a request.

    Attributes:
        principal: Their name; empty for the local user of a server without authentication.
        scopes: What they may do.
        agents: The agents that their token limits them to; None for all.
    """

    principal: str
    scopes: frozenset[str]
    agents: frozenset[str] | None = None

    @property
    def owner(self) -> str:
        """Their owner part in the ids of threads and runs."""
        return _digest(self.principal)

    def may(self, scope: Scope) -> bool:
        """Tell whether they have a scope; `admin` includes `ALL_SCOPES`."""
        return scope in self.scopes or (scope in ALL_SCOPES and "admin" in self.scopes)

    def owns(self, id_: str) -> bool:
        """Tell whether they may see a thread or run."""
        if id_.startswith(RULES_PREFIX):
            return False
        if self.principal and "admin" in self.scopes:
            return True
        return owner_of(id_) == _digest(self.principal)

    def new_id(self, kind: Literal["thr", "run"], thread_id: str | None = None) -> str:
        """Return a new id that they own; the id of a run belongs to the owner of its thread."""
        owner = self.owner if thread_id is None else owner_of(thread_id)
        return new_id(f"{kind}_{owner}") if owner else new_id(kind)

    def fixed_thread(self, said: str, shown: str = "") -> str:
        """Return the thread id that is always the same for this caller and text.

        Args:
            said: The text; anyone who knows it can compute the id.
            shown: A readable end of the id: letters, digits, '-' and '_'.
        """
        digest = blake2b(said.encode(), digest_size=8).hexdigest()
        owner = f"{self.owner}_" if self.owner else ""
        return f"thr_{owner}{digest}" + (f"-{shown}" if shown else "")

    def prefix(self, kind: Literal["thr", "run"]) -> str:
        """Return the prefix of the ids that they may see; empty if there is none.

        It is empty for an admin, and for the local user, whose imported threads can have any id.
        """
        if not self.owner or "admin" in self.scopes:
            return ""
        return f"{kind}_{self.owner}_"

    def key(self, key: str | None) -> str | None:
        """Return the stored form of an idempotency key, which is separate for each principal."""
        if key is None:
            return None
        if self.owner:
            return f"{self.owner}:{key}"
        return f":{key}" if ":" in key else key  # so that it cannot equal a principal's


LOCAL = Caller("", ALL_SCOPES)
"""The only user of a server that needs no authentication, or is not on a network."""

current_caller: ContextVar[Caller] = ContextVar("caller", default=LOCAL)
"""The caller of the current request; tasks that it starts inherit it."""


current_client: ContextVar[str] = ContextVar("client", default="")
"""The client program of the current request, by its own account."""


class UnknownPrincipal(HarnessError):
    """The principal of a thread or run is unknown."""


class Principals(Protocol):
    """The principals that have called this server or another server of its journal."""

    def knows(self, caller: Caller) -> bool:
        """Whether the caller is already stored."""
        ...

    async def note(self, caller: Caller) -> None:
        """Store a caller; writes once for each principal, before anything is done for them.

        Raises:
            HarnessError: It cannot be stored.
        """
        ...

    async def find(self, id_: str) -> str:
        """Return the principal a thread or run belongs to; empty for the local user.

        If this server does not know them, it reads the store of all servers.

        Raises:
            UnknownPrincipal: They are not stored, so it is unknown which rules apply to the run.
            HarnessError: It cannot be read.
        """
        ...

    def of(self, id_: str) -> str:
        """Return the principal if this server already knows them, without reading the store.

        Raises:
            UnknownPrincipal: This server does not know them.
        """
        ...


class Identify:
    """Server middleware: sets `current_caller` for each message.

    Args:
        principals: Stores the callers.
        prepare: Creates the caller's own directory or the like; None if callers have none.
        needs_token: Whether to refuse an HTTP message without an authenticated user. The guard
            in front of the transports lets none through, so this only catches mistakes.
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
        """Serve a message on behalf of its sender."""
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
