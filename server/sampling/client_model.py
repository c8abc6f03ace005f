"""The client's model as a `ChatModel`, and the sampling requests to the client.

There are three ways to call the client's model; the client's protocol version decides:

- `live`: a client that uses sessions receives requests while its own call is open.
- `retry`: a client of 2026-07-28 gets `input_required`, calls its model, and repeats its call.
- `none`: the client provides no model, or not for this run.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, TypeAlias, cast

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import CONNECTION_CLOSED, CreateMessageResultWithTools, RequestParamsMeta
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ...harness._internal.concurrency import raising_one
from ...harness.errors import ModelError
from ...harness.messages.message import AIMessage
from ...harness.models.base import ChatRequest, Delta, is_overflow
from ...harness.models.registry import UnknownModel
from ..auth.caller import current_caller, owner_of
from .messages import MAX_TOKENS, answer_of, params_of
from .queue import LEASE_SECONDS, Offer, SampledRun, SamplingQueue, current_run
from .sampled_call import SampledCall

__all__ = [
    "RELATED_TASK",
    "LiveSampler",
    "OpenRequests",
    "SamplingModel",
    "SamplingWay",
    "declared",
    "live_sampling",
    "offer_of",
    "related_task",
    "sampling_model",
    "way_to_sample",
]


Context: TypeAlias = ServerRequestContext[Any, Any]
SamplingWay: TypeAlias = Literal["live", "retry", "none"]

_GONE = (CONNECTION_CLOSED, "Connection closed")
"""The SDK's error for a lost client. The message is compared, because clients use the same code
for refusals."""

_MAX_REFUSAL = 500

RELATED_TASK = "io.modelcontextprotocol/related-task"
"""Key in `_meta` that names the task of a message, in protocol 2025-11-25."""


def related_task(ctx: Context) -> RequestParamsMeta | None:
    """Return the `_meta` of messages to a client that waits for a task's result, or None.

    Only the client of `tasks/result` waits for a task; it has to know which task asks.
    """
    if ctx.method != "tasks/result":
        return None
    return cast("RequestParamsMeta", {RELATED_TASK: {"taskId": (ctx.params or {}).get("taskId")}})


def offer_of(ctx: Context) -> Offer:
    """Return which sampling features the client of this request declares."""
    capabilities = ctx.session.client_capabilities
    sampling = capabilities.sampling if capabilities else None
    if sampling is None:
        return "none"
    return "plain" if sampling.tools is None else "tools"


def way_to_sample(ctx: Context, run_id: str) -> SamplingWay:
    """Return the way to call the model of this request's client for a run.

    The result is `none` for runs of other principals: an admin may read them, but the admin's model
    must not receive them.
    """
    caller = current_caller.get()
    if offer_of(ctx) != "tools" or owner_of(run_id) != caller.owner or not caller.may("delegate"):
        return "none"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return "retry"
    return "live" if ctx.session.can_send_request else "none"


class LiveSampler:
    """Sends sampling requests over the client's open call: each model call once, concurrently."""

    def __init__(
        self,
        ctx: Context,
        queue: SamplingQueue,
        requests: OpenRequests,
        thread_id: str,
        group: TaskGroup,
    ) -> None:
        self._ctx = ctx
        self._queue = queue
        self._requests = requests
        self._thread_id = thread_id
        self._group = group
        self._begun: set[str] = set()
        self._open = 0
        self._idle = anyio.Event()
        self._ended = False

    def look(self) -> None:
        """Send all model calls that were not yet sent over this request."""
        for run in self._queue.runs(self._thread_id):
            for key, call in run.calls.items():
                if not self._ended and key not in self._begun:
                    self._begun.add(key)
                    self._open += 1
                    self._group.start_soon(self._ask, run, call)

    async def finish(self) -> bool:
        """Send no more calls, and wait for open ones; return whether there were any."""
        was_at_work = self._open > 0
        self._ended = True
        while self._open:
            await self._idle.wait()
            self._idle = anyio.Event()
        return was_at_work

    async def _ask(self, run: SampledRun, call: SampledCall) -> None:
        answer: CreateMessageResultWithTools | ModelError | None = None
        try:
            with (
                self._requests.asking(LEASE_SECONDS) as scope,
                call.taking_back(scope.cancel),
            ):
                await anyio.lowlevel.checkpoint_if_cancelled()
                answer = await self._answer(call)
            if answer is not None:
                run.close(call.key, answer)
        finally:
            self._open -= 1
            self._idle.set()

    async def _answer(self, call: SampledCall) -> CreateMessageResultWithTools | ModelError | None:
        """Return the client's answer; None if the client is gone and the call waits for another."""
        about = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        session = self._ctx.session
        try:
            request = call.hand_out(related_task(self._ctx))
            return await session.send_request(request, CreateMessageResultWithTools, metadata=about)
        except NoBackChannelError:
            self._ended = True
        except MCPError as error:
            if (error.code, error.message) != _GONE:
                return _refused(error)
            self._ended = True
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended = True
        except ValidationError as error:
            return ModelError(
                "The client's model gave an answer that does not fit the protocol "
                f"({error.errors()[0]['msg']}); it was not kept. Continue the run to ask again."
            )
        return None


def _refused(error: MCPError) -> ModelError:
    return ModelError(
        f"The client refused to ask its model, or failed: {error.message[:_MAX_REFUSAL]} (code "
        f"{error.code}). Continue the run to ask again.",
        kind="overflow" if is_overflow(error.message) else "unknown",
    )


@asynccontextmanager
async def live_sampling(
    ctx: Context, queue: SamplingQueue, requests: OpenRequests, thread_id: str, way: SamplingWay
) -> AsyncGenerator[LiveSampler | None]:
    """Let the client's model answer calls of a thread's runs during the block.

    Yields the `LiveSampler` if the way is `live`, else None. At the end of the block, open requests
    are cancelled.
    """
    if way == "none":
        yield None
        return
    with queue.attending(thread_id):
        if way == "retry":
            yield None
            return
        async with raising_one(), anyio.create_task_group() as group:
            sampler = LiveSampler(ctx, queue, requests, thread_id, group)
            with queue.watching(thread_id, sampler.look):
                yield sampler
            group.cancel_scope.cancel()


class OpenRequests:
    """Open requests to clients, which are cancelled when the server shuts down."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._closed = False

    @contextmanager
    def asking(self, seconds: float) -> Generator[anyio.CancelScope]:
        """Run a block that waits for a client, with a time limit.

        The block is cancelled after `seconds`, if the yielded scope is cancelled, or if the server
        shuts down. After a shutdown, a new block is cancelled at its first wait.
        """
        scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._scopes.add(scope)
        try:
            with scope:
                if self._closed:
                    scope.cancel()
                yield scope
        finally:
            self._scopes.discard(scope)

    def close(self) -> None:
        """Cancel open requests while clients can still be notified, and refuse new ones."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()


def sampling_model(name: str, **settings: Any) -> SamplingModel:
    """Create the model for `sampling` or `sampling:<hint>`; a hint is part of a model's name.

    Raises:
        UnknownModel: A setting is not accepted.
    """
    bound = settings.pop("max_tokens", MAX_TOKENS)
    window = settings.pop("context_window", None)
    wrong = [*sorted(settings)]
    wrong += [] if _is_count(bound) else [f"max_tokens={bound!r}"]
    wrong += [] if window is None or _is_count(window) else [f"context_window={window!r}"]
    if wrong:
        raise UnknownModel(
            "the client's model takes only the settings max_tokens and context_window, whole "
            f"numbers, at least 1; got {', '.join(wrong)}."
        )
    return SamplingModel(name.partition(":")[2], max_tokens=bound, context_window=window)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def declared(offer: Offer | None) -> str:
    """Describe a client's sampling support for an error message."""
    if offer == "plain":
        return "this client declares sampling, but not with tools (`sampling.tools`)"
    return "this client declares no sampling"


class SamplingModel:
    """The model of the MCP client that waits for the run.

    It reports no usage, so limits on tokens and cost cannot be enforced. Answers are not streamed.

    Args:
        hint: Part of a model's name as a hint for the client; empty for none.
        max_tokens: Maximum tokens of one answer.
        context_window: Maximum input tokens of the smallest model that may answer, if known.
    """

    def __init__(
        self, hint: str = "", *, max_tokens: int = MAX_TOKENS, context_window: int | None = None
    ) -> None:
        self._hint = hint
        self._max_tokens = max_tokens
        self._context_window = context_window

    @property
    def name(self) -> str:
        """`sampling`, or `sampling:<hint>`."""
        return f"sampling:{self._hint}" if self._hint else "sampling"

    @property
    def context_window(self) -> int | None:
        """The value that was set, or None: a client only names its model with an answer."""
        return self._context_window

    @property
    def native_output(self) -> bool:
        """False: sampling requests cannot contain an output schema."""
        return False

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield the answer.

        Raises:
            ModelError: The client offers no model, refuses, or gives an unusable answer.
        """
        params = params_of(request, hint=self._hint, max_tokens=self._max_tokens)
        call = SampledCall(params, request.agent)
        try:
            answer = await _willing_run().ask(call)
        finally:
            if not call.was_asked:
                request.unasked()
        yield answer_of(answer, request)

    async def aclose(self) -> None:
        """Do nothing: it has no connections."""


def _willing_run() -> SampledRun:
    """Return the current run.

    Raises:
        ModelError: There is no run, or its client does not support sampling with tools.
    """
    run = current_run.get()
    if run is None:
        raise ModelError(
            "The client's model can be used only in runs of a server; nothing was sent. "
            "Name another model."
        )
    if run.offer in ("plain", "none"):
        raise ModelError(
            f"--model sampling uses the client's own model, but {declared(run.offer)}. Nothing "
            "was sent. Use a client that offers its model, or set ANTHROPIC_API_KEY and leave "
            "--model out; everything else works without it.",
            kind="auth",
        )
    return run
