"""`asgi_app`: the server as an ASGI app, to be mounted beside others.

What runs are carried by has to begin and end with the program around it. Starlette and FastAPI pass
no lifespan on to what is mounted, so the app begins with the first of these: a lifespan event, the
block of `lifespan`, a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

import anyio

from ...harness._internal.concurrency import raising_one
from ...harness.errors import HarnessError
from ..python_agents.source import AgentSource
from ..settings.settings import Settings, SettingsError
from ..settings.sources import keyword_settings
from ..settings.state_dir import StateDirError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ...harness.agent import Agent

__all__ = ["MountedServer", "asgi_app"]

REFUSALS = (HarnessError, SettingsError, StateDirError)

logger = logging.getLogger(__name__)


def asgi_app(
    agent: Agent | Callable[..., Any] | str, *, reload: bool = False, **settings: Any
) -> MountedServer:
    """Return an ASGI app that serves an agent at `/mcp`, `/sse`, `/healthz`, `/ui` and so on.

    Args:
        agent: An `Agent`; a function that returns one, given a `ServeContext` or nothing; or a name
            such as `module:attribute` for either.
        reload: Whether to reload a named agent when its files change.
        **settings: See `docs/settings.md`, such as `state_dir=` or `auth=["token"]`. Nothing is
            read from the environment or a file. `allow_hosts` names the hosts clients use besides
            localhost.

    Raises:
        SettingsError: A setting is refused. Nothing was started.
        HarnessError: `agent` is not an agent.
    """
    chosen = keyword_settings({"transport": "http", **settings})
    if chosen.transport == "stdio":
        raise SettingsError(
            "argument transport = stdio is refused: an ASGI app is served over HTTP"
        )
    return MountedServer(AgentSource(agent, reload=reload), chosen)


class MountedServer:
    """An ASGI app that begins by itself; `lifespan` and `aclose` end it before its loop ends.

    Args:
        source: The agent.
        settings: What was chosen.
    """

    def __init__(self, source: AgentSource, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._serving: _Serving | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or begin and end with a lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        try:
            app = await self._started()
        except REFUSALS as error:
            await _refuse(error, scope, receive, send)
            return
        await app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncGenerator[None]:
        """Serve inside the block; for the `lifespan=` of the app around it.

        Raises:
            HarnessError, SettingsError, StateDirError: It cannot begin; nothing was started.
        """
        await self._started()
        try:
            yield
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End it: runs finish their step, and the next server continues them."""
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.end()

    async def _started(self) -> ASGIApp:
        serving = self._serving
        if serving is None or not serving.is_here:
            serving = self._serving = _Serving(self._source, self._settings)
        try:
            return await serving.app()
        except REFUSALS:
            if self._serving is serving:
                self._serving = None  # the next request tries again
            raise

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._started()
        except REFUSALS as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})


class _Serving:
    """A task that has the server open, whoever began it.

    It is no task of a request's, because it outlives requests; when its event loop ends, so does
    it.
    """

    def __init__(self, source: AgentSource, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._ready = anyio.Event()
        self._stop = anyio.Event()
        self._app: ASGIApp | None = None
        self._error: BaseException | None = None
        # Not in a task group: nothing that surrounds a request lives as long. Nor does it belong
        # to the request that happens to begin it.
        self._task = self._loop.create_task(self._serve(), name="deep-agent-mcp", context=Context())

    @property
    def is_here(self) -> bool:
        """Whether it is of the running event loop, and has not ended."""
        return self._loop is asyncio.get_running_loop() and not self._task.done()

    async def app(self) -> ASGIApp:
        """Return the app that serves requests, once it is ready; raise the error if it failed."""
        await self._ready.wait()
        if self._app is None:
            raise self._error or HarnessError("the server has ended; nothing was done")
        return self._app

    async def end(self) -> None:
        """End it, and wait until it has."""
        self._stop.set()
        if self._loop is asyncio.get_running_loop():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._task)

    async def _serve(self) -> None:
        from ..app import create_app
        from ..transports.transports import http_app

        try:
            async with raising_one(), create_app(self._settings, source=self._source) as app:
                web = http_app(
                    app.server,
                    self._settings,
                    app.health(),
                    app.face.scopes_of,
                    app.shared.tokens,
                    app.sessions_of,
                )
                async with web.router.lifespan_context(web):
                    self._app = web
                    self._ready.set()
                    await self._stop.wait()
                    await app.drain(anyio.Event())
        except REFUSALS as error:
            self._error = error
        finally:
            self._app = None
            self._ready.set()
            if self._error is not None:
                logger.error("the agent is not served: %s", self._error)


async def _refuse(error: BaseException, scope: Scope, receive: Receive, send: Send) -> None:
    from starlette.responses import JSONResponse

    if scope["type"] == "http":
        logger.debug("a request arrived, but the agent cannot be served: %s", error)
        answer = {"error": "The agent at this address cannot be served; the server's log says why."}
        await JSONResponse(answer, 503)(scope, receive, send)
        return
    await send({"type": "websocket.close", "code": 1011})
