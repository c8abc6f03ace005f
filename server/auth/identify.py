"""Identification: finds the principal of a message before anything is done with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_REQUEST

from ...harness.errors import HarnessError
from .caller import AGENTS_CLAIM, ALL_SCOPES, LOCAL, Caller, Principals, current_caller

__all__ = ["Identify"]


class Identify:
    """Server middleware: sets `current_caller` for each message.

    Args:
        principals: Told who has called.
        prepare: Makes what is the caller's own, such as a directory.
        needs_token: Whether a message over HTTP without an authenticated user is refused; the
            guard in front of the transports lets none through, so that would be a mistake.
    """

    def __init__(
        self,
        principals: Principals,
        prepare: Callable[[], Awaitable[None]],
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
        if not self._principals.knows(caller):
            await anyio.to_thread.run_sync(self._principals.note, caller)
        token = current_caller.set(caller)
        try:
            try:
                await self._prepare()
            except HarnessError as error:
                raise MCPError(INVALID_REQUEST, str(error)) from error
            return await call_next(ctx)
        finally:
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
            raise MCPError(INVALID_REQUEST, "This message names no caller; nothing was done.")
        return LOCAL
