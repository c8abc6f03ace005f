"""Sessions of the handshake era on all replicas: each serves any session."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import anyio
from anyio.abc import TaskStatus
from mcp.server.auth.middleware.bearer_auth import (
    AuthenticatedUser,
    AuthorizationContext,
    authorization_context,
)
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....harness.databases.postgres import PostgresDatabase
from ....harness.errors import HarnessError
from .contracts import Peers, Repeats, SessionSignals
from .event_log import EventLog
from .exchange import SessionExchange
from .store import Seal, SessionStore, name_of
from .streams import SessionStreams
from .transport import SessionRefused, SharedTransport

__all__ = ["SharedSessions"]

RETRY_MS: Final = 500
"""How long a client shall wait before it connects again."""

logger = logging.getLogger(__name__)


class _NotNow(Exception):
    """A session cannot be served here just now; the text is for the client."""


class SharedSessions(StreamableHTTPSessionManager):
    """A session manager with sessions that every replica can serve.

    Enter `serving`; requests of 2026-07-28 have no session, and are served directly.

    Args:
        server: Serves the sessions.
        checks: Allowed hosts and origins.
        database: The replicas' tables.
        key: The encryption key of all replicas.
        signals: Wakes the other replicas.
        peers: The replicas.
        repeats: Decides which requests may be served again.
    """

    def __init__(
        self,
        server: Server[Any],
        checks: TransportSecuritySettings,
        database: PostgresDatabase,
        key: bytes,
        signals: SessionSignals,
        peers: Peers,
        repeats: Repeats,
    ) -> None:
        super().__init__(
            server,
            security_settings=checks,
            max_request_body_size=sys.maxsize,  # it has been limited already
            retry_interval=RETRY_MS,
        )
        seal = Seal(key)
        self._peers = peers
        self._signals = signals
        self._store = SessionStore(database, seal)
        self._log = EventLog(database, seal, lambda sessions: self._exchange.wrote(sessions))
        self._exchange = SessionExchange(
            self._store, self._log, signals, peers, self._end_here, repeats
        )
        self._coming: dict[str, anyio.Event] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serve requests during the block; the sessions remain on the other replicas."""
        async with self.run(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._exchange.work)
            try:
                yield
            finally:
                with anyio.move_on_after(1, shield=True):
                    await self._log.flush()
                tasks.cancel_scope.cancel()

    async def _handle_stateful_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; a session that another replica began is made here first."""
        request = Request(scope, receive)
        session_id = request.headers.get(MCP_SESSION_ID_HEADER)
        try:
            if session_id is not None:
                user = scope.get("user")
                known = isinstance(user, AuthenticatedUser)
                requestor = authorization_context(user) if known else None
                if request.method == "DELETE" and await self._delete(session_id, requestor):
                    await Response(status_code=200)(scope, receive, send)
                    return
                await self._have_here(session_id, requestor, request)
            await super()._handle_stateful_request(scope, receive, send)
        except (HarnessError, _NotNow) as error:  # raised before anything is sent
            await _unavailable(str(error))(scope, receive, send)

    # --- sessions that began here -------------------------------------------------------------

    def _admit_session(
        self, requestor: AuthorizationContext | None
    ) -> StreamableHTTPServerTransport | None:
        """Register a new session, or return None if there are too many."""
        return self._register(uuid4().hex, requestor)

    async def _serve_opening_request(
        self,
        http_transport: StreamableHTTPServerTransport,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Serve the handshake, and forget the session if it was refused."""
        await super()._serve_opening_request(http_transport, scope, receive, send)
        if isinstance(http_transport, SharedTransport) and not http_transport.is_open:
            await self._end_here(http_transport)

    def _register(
        self, session_id: str, requestor: AuthorizationContext | None
    ) -> SharedTransport | None:
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            return None
        name = name_of(session_id)
        transport = SharedTransport(
            session_id,
            SessionStreams(self._log, self._peers, name),
            self._exchange,
            self._peers.owner,
            _owner(requestor),
            checks=self.security_settings,
            retry_interval=self.retry_interval,
            idle_timeout=self.session_idle_timeout,
        )
        if requestor is not None:
            self._session_owners[session_id] = requestor
        self._server_instances[session_id] = transport
        self._exchange.here[name] = transport
        return transport

    # --- sessions that began elsewhere --------------------------------------------------------

    async def _have_here(
        self, session_id: str, requestor: AuthorizationContext | None, request: Request
    ) -> None:
        """Create a session here, unless it is here or the caller has no session with this id.

        Raises:
            HarnessError: The database cannot be used.
            _NotNow: This replica refuses it.
        """
        while (coming := self._coming.get(session_id)) is not None:
            await coming.wait()
        if (here := self._exchange.here.get(name_of(session_id))) is not None:
            here.was_used = True
            return
        made = self._coming[session_id] = anyio.Event()
        try:
            stored = await self._store.find(name_of(session_id))
            if stored is None or stored.owner != _owner(requestor):
                return
            transport = self._register(session_id, requestor)
            if transport is None:
                raise _NotNow("Too many open sessions")
            try:
                assert self._task_group is not None
                await self._task_group.start(self._serve, transport)
                await transport.restore(stored, request)
            except BaseException:
                await self._end_here(transport)
                raise
        except SessionRefused as error:
            raise _NotNow(str(error)) from error
        finally:
            del self._coming[session_id]
            made.set()

    async def _serve(
        self,
        transport: SharedTransport,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve a session that began elsewhere, like the SDK serves a new one."""
        async with transport.connect() as (read, write):
            task_status.started()
            try:
                with transport.idle_scope or anyio.CancelScope():
                    await serve_loop(
                        self.app,
                        read,
                        write,
                        lifespan_state=self._lifespan_state,
                        session_id=transport.session_id,
                    )
            except Exception:
                logger.exception("session %s crashed", transport.session_id)
            finally:
                await self._end_here(transport)

    # --- the end of sessions ------------------------------------------------------------------

    async def _delete(self, session_id: str, requestor: AuthorizationContext | None) -> bool:
        """End a session on all replicas; return False if the caller has no session with this id.

        Raises:
            HarnessError: The database cannot be used.
        """
        name = name_of(session_id)
        if not await self._store.end(name, _owner(requestor)):
            return False
        self._signals.tell("session", name)
        here = self._exchange.here.get(name)
        if here is not None:
            await self._end_here(here)
        return True

    async def _end_here(self, transport: SharedTransport) -> None:
        await self._discard_session(transport.session_id, transport)

    async def _discard_session(
        self, session_id: str, transport: StreamableHTTPServerTransport
    ) -> None:
        """Forget a session here, whatever ended it."""
        if self._server_instances.get(session_id) not in (None, transport):
            return  # it was created again
        await super()._discard_session(session_id, transport)
        if isinstance(transport, SharedTransport):
            transport.streams.end()
            if self._exchange.here.get(transport.streams.session) is transport:
                del self._exchange.here[transport.streams.session]


def _owner(requestor: AuthorizationContext | None) -> str:
    """Return a digest of a credential; empty without one."""
    return "" if requestor is None else name_of(json.dumps(requestor, sort_keys=True))


def _unavailable(message: str) -> Response:
    body = JSONRPCError(
        jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message=message)
    )
    return Response(
        body.model_dump_json(by_alias=True, exclude_unset=True),
        status_code=503,
        headers={"Retry-After": "1"},
        media_type="application/json",
    )
