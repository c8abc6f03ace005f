"""One session with a server, from its opening to its end. Imports the SDK.

It lives on the worker's loop, in a separate task: the SDK's client has task groups that must be
left by the task that entered them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import anyio
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, IncomingMessage
from mcp.types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, ValidationError

from ..errors import AgentBuildError, ToolError
from ..tools.tool import ToolResult
from .config import MCPServer, StdioServer
from .elicitation import Answer, CallChannel, Floor, NotSent, Question, Round, Unavailable
from .oauth_tokens import LoginNeeded, TokensUnusable
from .tools import tool_result, usable_schema
from .transports import FORGOTTEN, LOST, UNSENT, transport

__all__ = ["ServerSession"]

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0
_MAX_PAGES = 100
_MAX_ROUNDS = 30
_POLL_SECONDS = 0.25


class ServerSession:
    """A session.

    Args:
        name: The server's name, for errors.
        server: How to reach it.
        floor: Finds the call of a question, on old connections.
        on_change: Called when the server's list of tools has changed.
    """

    def __init__(
        self, name: str, server: MCPServer, floor: Floor, on_change: Callable[[], None]
    ) -> None:
        self._name = name
        self._server = server
        self._floor = floor
        self._on_change = on_change
        self._client: Client | None = None
        self._settled = anyio.Event()
        self._closing = anyio.Event()
        self._problem = ""
        self._requests = 0
        self.alive = True
        self.ended = anyio.Event()

    async def live(self) -> None:
        """Open the session, wait until it ends or is closed, and leave it."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._bound_opening, group.cancel_scope)
                async with self._open() as client:
                    self._client = client
                    self._settled.set()
                    await self._keep(client)
                    group.cancel_scope.deadline = anyio.current_time() + _CLOSE_SECONDS
        except Exception as error:
            self._fail(_reason(error, self._server))
            logger.debug("MCP server %s: session ended", self._name, exc_info=error)
        finally:
            self._fail("the connection is closed")
            self.ended.set()

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Client]:
        """Yield the client for a request once the session can be used, and keep it until then.

        Raises:
            Unavailable: It cannot.
        """
        self._requests += 1
        try:
            await self._settled.wait()
            if self._client is None or self._closing.is_set():
                raise Unavailable(self._problem)
            yield self._client
        finally:
            self._requests -= 1
            self._close_if_unused()

    def close(self) -> None:
        """End the session; `ended` is set once it is left."""
        self._fail("the connection is closed")

    def retire(self) -> None:
        """Mark the session as replaced, and end it once the requests on their way are answered."""
        self.alive = False
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if not self.alive and not self._requests:
            self.close()

    def _cut(self) -> None:
        # While it is being opened, the SDK's error is more informative.
        if self._client is not None:
            self._fail("the server closed the connection")

    def _fail(self, problem: str) -> None:
        self._problem = self._problem or problem
        self.alive = False
        self._closing.set()
        self._settled.set()

    def _open(self) -> Client:
        return Client(
            transport(self._name, self._server, self._cut),
            client_info=Implementation(name="deep-agent-mcp", version=_version()),
            elicitation_callback=self._elicited,
            message_handler=self._heard,
            cache=None,
        )

    async def _bound_opening(self, scope: anyio.CancelScope) -> None:
        with anyio.move_on_after(self._server.connect_timeout):
            await self._settled.wait()
            return
        self._fail(f"it did not answer within {self._server.connect_timeout:g} s")
        scope.cancel()

    async def _keep(self, client: Client) -> None:
        tools = client.server_capabilities.tools
        async with anyio.create_task_group() as group:
            if self._modern and tools is not None and tools.list_changed:
                group.start_soon(self._watch_list, client)
            await self._closing.wait()
            group.cancel_scope.cancel()

    @property
    def _modern(self) -> bool:
        client = self._client
        return client is not None and client.protocol_version in MODERN_PROTOCOL_VERSIONS

    # --- unsolicited messages of the server --------------------------------------------------

    async def _watch_list(self, client: Client) -> None:
        """Keep a subscription to changes of the list, and catch up on missed changes."""
        pause = 1.0
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    self._on_change()
                    async for _ in changes:
                        self._on_change()
                        pause = 1.0
            except Exception as error:
                logger.debug("MCP server %s: subscription lost", self._name, exc_info=error)
            await anyio.sleep(pause)
            pause = min(pause * 2, 60.0)

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._on_change()

    async def _elicited(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult:
        line = await self._floor.asking()
        answers = None if line is None else await line.ask(Round((_question(params),)))
        return ElicitResult(action="cancel") if answers is None else _answer(answers[0])

    # --- requests ----------------------------------------------------------------------------

    async def tools(self) -> Sequence[Tool]:
        """Return the server's list.

        Raises:
            Unavailable: It does not answer properly.
            NotSent: It was not reached.
        """
        found: list[Tool] = []
        cursor: str | None = None
        try:
            async with self._opened() as client:
                with anyio.fail_after(self._server.connect_timeout):
                    for _ in range(_MAX_PAGES):
                        page = await client.list_tools(cursor=cursor)
                        found += page.tools
                        cursor = page.next_cursor
                        if cursor is None:
                            break
        except TimeoutError as error:
            seconds = f"{self._server.connect_timeout:g} s"
            raise Unavailable(f"it did not list its tools within {seconds}") from error
        except MCPError as error:
            _check_sent(error)
            raise Unavailable(f"it did not list its tools: {error}") from error
        except ValidationError as error:
            raise Unavailable("its list of tools does not follow the protocol") from error
        return found

    async def call(
        self, tool: str, args: Mapping[str, JsonValue], line: CallChannel, resume: Round | None
    ) -> ToolResult:
        """Return the result of a tool.

        Raises:
            ToolError: There is no result; the text explains why.
            Unavailable: The session cannot be used; nothing was sent.
            NotSent: The request did not reach the server.
        """
        try:
            async with self._opened() as client:
                turn: AbstractAsyncContextManager[None]
                turn = nullcontext() if self._modern else self._floor.turn(line)
                with anyio.move_on_after(self._server.timeout), line.scope:
                    async with turn:
                        line.began = True
                        result = await self._rounds(client, tool, dict(args), line, resume)
                        return tool_result(result)
        except MCPError as error:
            _check_sent(error)
            raise ToolError(self._refusal(tool, error)) from error
        except ValidationError as error:
            text = "the tool may have run, but its result does not follow the protocol"
            raise ToolError(f"{self._about(tool)}: {text}.") from error
        except RuntimeError as error:
            # The SDK's check of the result against the tool's output schema.
            text = f"the tool ran, but its result does not match its output schema: {error}"
            raise ToolError(f"{self._about(tool)}: {text}") from error
        finally:
            line.hang_up()
        raise ToolError(f"{self._about(tool)}: {line.failure or self._late(line)}")

    async def _rounds(
        self,
        client: Client,
        tool: str,
        args: dict[str, Any],
        line: CallChannel,
        resume: Round | None,
    ) -> CallToolResult:
        """Call, answer the questions, and call again with the answers (protocol 2026-07-28)."""
        asked = resume
        for _ in range(_MAX_ROUNDS):
            responses: dict[str, Any] | None = None
            if asked is not None and asked.keys:
                answers = await line.ask(asked) or [Answer(action="cancel")] * len(asked.keys)
                responses = dict(zip(asked.keys, map(_answer, answers), strict=True))
            try:
                result = await client.session.call_tool(
                    tool,
                    args,
                    progress_callback=line.report,
                    input_responses=responses,
                    request_state=None if asked is None else asked.state,
                    allow_input_required=True,
                )
            except MCPError as error:
                if asked is None or asked is not resume or error.code != INVALID_PARAMS:
                    raise
                # The sealed state has expired, so the call starts from its beginning.
                line.restart()
                asked = resume = None
                continue
            if isinstance(result, CallToolResult):
                return result
            asked = _round(result)
            if not asked.keys:
                await anyio.sleep(_POLL_SECONDS)
        raise ToolError(
            f"{self._about(tool)}: it asked for input {_MAX_ROUNDS} times without a result, so "
            "the call was given up; it may have acted partly."
        )

    def _about(self, tool: str) -> str:
        return f"tool {tool!r} of MCP server {self._name!r}"

    def _refusal(self, tool: str, error: MCPError) -> str:
        if self._closing.is_set() or error.data == LOST:
            return (
                f"{self._about(tool)}: the connection was lost during the call ({error}). Whether "
                "the tool acted is unknown: check before you call it again."
            )
        return (
            f"{self._about(tool)} gave no result but an error: {error} (code {error.code}). "
            "Unless the error says so, it is unknown whether the tool acted."
        )

    def _late(self, line: CallChannel) -> str:
        seconds = f"{self._server.timeout:g} s"
        if not line.began:
            return f"its turn did not come within {seconds}, so it was not run. Try again later."
        return (
            f"it gave no result within {seconds} and was asked to stop. It may have acted: check "
            "before you call it again."
        )


def _check_sent(error: MCPError) -> None:
    """Raise `NotSent` if the server did not process the request."""
    if error.data in (UNSENT, FORGOTTEN):
        raise NotSent(str(error), reopen=error.data == FORGOTTEN) from error
    if error.code == HEADER_MISMATCH:
        raise NotSent("the server refused the request's headers") from error


def _question(params: ElicitRequestParams) -> Question:
    if isinstance(params, ElicitRequestURLParams):
        return Question(params.message, url=params.url)
    form = cast(dict[str, JsonValue], params.requested_schema)
    try:
        usable_schema("question", form)
        return Question(params.message, form)  # unchanged: its titles are for the person
    except AgentBuildError:
        return Question(params.message, {"type": "object"})


def _round(result: InputRequiredResult) -> Round:
    """Return the server's question.

    Raises:
        ToolError: It does not ask for a person's answer.
    """
    requests = result.input_requests or {}
    questions: list[Question] = []
    for request in requests.values():
        if not isinstance(request, ElicitRequest):
            raise ToolError(
                f"the tool was stopped: its server asked for {request.method}, which is not "
                "offered to it."
            )
        questions.append(_question(request.params))
    return Round(tuple(questions), tuple(requests), result.request_state)


def _answer(answer: Answer) -> ElicitResult:
    try:
        return ElicitResult.model_validate(
            {"action": answer["action"], "content": answer.get("content")}
        )
    except ValidationError:
        # The protocol only supports flat forms; other values cannot be sent to the server.
        return ElicitResult(action="cancel")


def _reason(error: BaseException, server: MCPServer) -> str:
    """Return the first cause in a group of errors, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    if isinstance(server, StdioServer) and isinstance(error, OSError):
        return _not_started(server, error)
    if isinstance(server, StdioServer) and str(error) == "Connection closed":
        return f"Connection closed: {server.command!r} ended. Run it in a terminal to see why"
    if isinstance(error, MCPError | LoginNeeded | TokensUnusable):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _not_started(server: StdioServer, error: OSError) -> str:
    if server.cwd is not None and not Path(server.cwd).is_dir():
        return f"there is no directory {str(server.cwd)!r}; correct cwd"
    if isinstance(error, FileNotFoundError):
        return f"there is no command {server.command!r}; install it, or name its full path"
    return f"the command {server.command!r} cannot be started: {error.strerror or error}"


def _version() -> str:
    try:
        return metadata.version("deep-agent-mcp")
    except metadata.PackageNotFoundError:
        return "0+source"
