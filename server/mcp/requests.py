"""Requests: services for their handlers, limits of their texts, tasks, and cancellation.

The server distinguishes a cancellation by the user from a lost connection, although a handler is
cancelled in both cases. `notifications/cancelled` means that the client wanted it. Its text says
why, because clients also send it when a call takes longer than they wait. A lost connection sends
nothing. Over HTTP in 2026-07-28, a client cancels by closing its connection.

The length of each text in a request is checked before the text is used. The content of a file may
nearly fill a message. Goals and answers go to a model, so they are much shorter. All other texts
are names, ids, paths, patterns or addresses. Handling one costs many times its size in time and
memory, for example to find similar names, to split a path, or to repeat it in an error.

Task negotiation decides whether a client supports tasks, and for which calls.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY, CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...harness._internal.concurrency import LazyEvent
from ...harness.skills import SkillRegistry
from ...harness.subagents.registry import SubAgentRegistry
from ..agents.workplaces import Workplaces
from ..auth.caller import Principals, current_caller, current_client
from ..auth.owned_journal import NEW, JournalReader, id_of_thread
from ..runs.runs import RunManager
from ..sampling.client_model import OpenRequests
from ..settings.reloadable_settings import ReloadableSettings
from ..settings.settings import Settings
from .conversations import Conversations, ThreadPlace
from .sessions import Announcements

if TYPE_CHECKING:
    from ..agenda.schedules import ScheduleBook

__all__ = [
    "MAX_FILE_BYTES",
    "MAX_NAME_BYTES",
    "MAX_SAID_BYTES",
    "TASKS_EXTENSION",
    "TASK_VERSION",
    "CancelledRequests",
    "Context",
    "RequestsInFlight",
    "ServedRequest",
    "Services",
    "has_extension",
    "require_extension",
    "require_short_texts",
    "require_tasks",
    "takes_tasks",
    "too_long",
    "wait_budget",
    "wait_seconds",
]


Context: TypeAlias = ServerRequestContext[Any, Any]

REASON_SECONDS = 1.0
"""Seconds to wait for the reason, which arrives right after the cancellation."""

_TIMED_OUT = re.compile(r"timed?[ -]?out|deadline", re.IGNORECASE)
"""Texts with which the SDKs for Python, TypeScript and Rust report a timeout."""


@dataclass(slots=True)
class ServedRequest:
    """A request that is being served.

    Attributes:
        cancelled: Set by the SDK once the client has cancelled it.
        reason: The client's reason.
        told: Set once the reason is known.
    """

    cancelled: anyio.Event
    reason: str = ""
    told: anyio.Event = field(default_factory=anyio.Event)

    async def is_cancelled_by_user(self) -> bool:
        """Whether the user stopped it on purpose; await this once the handler is cancelled."""
        if not self.cancelled.is_set():
            return False
        with anyio.move_on_after(REASON_SECONDS):
            await self.told.wait()
        return _TIMED_OUT.search(self.reason) is None


class CancelledRequests:
    """The requests that are watched for cancellation."""

    def __init__(self) -> None:
        self._served: dict[tuple[int, str], ServedRequest] = {}

    def note(self, ctx: Context) -> None:
        """Store why a client cancels a request; call it with `notifications/cancelled`."""
        params = ctx.params or {}
        served = self._served.get(_key(ctx, params.get("requestId")))
        if served is not None:
            served.reason = str(params.get("reason") or "")
            served.told.set()

    @contextmanager
    def serving(self, ctx: Context) -> Generator[ServedRequest]:
        """Watch for the cancellation of a request until the end of the block."""
        # The SDK gives handlers no public name for the channel a request came on.
        channel = ctx.session._request_outbound  # pyright: ignore[reportPrivateUsage]
        key = _key(ctx, ctx.request_id)
        served = self._served[key] = ServedRequest(channel.cancel_requested)
        try:
            yield served
        finally:
            if self._served.get(key) is served:
                del self._served[key]


def _key(ctx: Context, request_id: object) -> tuple[int, str]:
    # In 2026-07-28 each message has a new connection, but all share one outgoing stream.
    connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
    return id(connection.outbound), str(request_id)


class RequestsInFlight:
    """The requests that are being answered. Its `middleware` must come first.

    Attributes:
        calls: How many there are, without listen streams.
        streams: How many listen streams there are.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.streams = 0
        self._none = LazyEvent()

    async def middleware(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Count a request while it is being answered."""
        is_stream = ctx.method == "subscriptions/listen"
        self.streams += is_stream
        self.calls += not is_stream
        try:
            return await call_next(ctx)
        finally:
            self.streams -= is_stream
            self.calls -= not is_stream
            if not self.calls + self.streams:
                self._none.wake()

    async def answered(self) -> None:
        """Wait until none is left."""
        while self.calls + self.streams:
            await self._none.wait()


CLIENT_WAIT_SECONDS = {"claude-code": 110.0, "codex": 280.0, "gemini-cli": 280.0}
"""Seconds that known clients wait for a call, by the beginning of their name."""


@dataclass(frozen=True)
class Services:
    """Services that the handlers of all requests share.

    Attributes:
        live: The operator's settings, with later changes.
        places: The agents with their files; call it for an agent, which is built at the first
            call and again when it is out of date.
        journal: The checkpoints, runs and questions of the caller's threads.
        runs: The runs.
        announcements: Notifies clients of changes.
        principals: The known callers.
        schedules: The schedules that this server fires; None if it fires none.
        requests: The questions that clients are being asked.
        conversations: Chooses the thread of calls that name none.
        cancelled: The requests that clients have cancelled.
        in_flight: The requests that are being answered.
    """

    live: ReloadableSettings
    places: Workplaces
    journal: JournalReader
    runs: RunManager
    announcements: Announcements
    principals: Principals
    schedules: ScheduleBook | None = None
    requests: OpenRequests = field(default_factory=OpenRequests)
    conversations: Conversations = field(default_factory=Conversations)
    cancelled: CancelledRequests = field(default_factory=CancelledRequests)
    in_flight: RequestsInFlight = field(default_factory=RequestsInFlight)

    async def place(self, ctx: Context, said: str | None) -> ThreadPlace:
        """Return the thread for a call; `said` is the thread that its caller names."""
        if said == NEW:
            return ThreadPlace()
        if said:
            thread_id = await id_of_thread(self.journal, said)
            return ThreadPlace(thread_id, begins=thread_id != said)
        shares = self.settings.thread_per != "call"
        conversation = self.conversations.of(ctx) if shares else None
        if conversation is None:
            return ThreadPlace()
        fixed = current_caller.get().fixed_thread(f"conversation {conversation}")
        return ThreadPlace(fixed, begins=True, is_default=True)

    async def thread(self, said: str) -> str:
        """Return the id of a thread that a caller gives by its id or its name."""
        return await id_of_thread(self.journal, said)

    @property
    def skills(self) -> SkillRegistry:
        """The caller's skills."""
        return self.places.of().parts.skills

    @property
    def subagents(self) -> SubAgentRegistry:
        """The caller's subagents."""
        return self.places.of().parts.subagents

    @property
    def settings(self) -> Settings:
        """The operator's current settings."""
        return self.live.snapshot.settings


def wait_seconds(settings: Settings, asked: float | None = None) -> float:
    """Return how long this call may block: the client's limit, or less if the caller says so."""
    budget = wait_budget(settings, current_client.get())
    return budget if asked is None else min(budget, max(0.0, asked))


def wait_budget(settings: Settings, client: str) -> float:
    """Return how many seconds a call of a client with this name may wait.

    Precedence: the operator's entry for the client, then the one for all, then the built-in value.
    """
    name = client.lower()
    for table in (settings.wait_budgets, CLIENT_WAIT_SECONDS):
        starts = [start for start in table if name.startswith(start)]
        if starts:
            return table[max(starts, key=len)]
        if "wait_budget" in settings.model_fields_set:
            break
    return settings.wait_budget


MAX_FILE_BYTES: Final = 8 << 20
"""The most UTF-8 bytes of a file's text in one argument."""

MAX_NAME_BYTES: Final = 10_000
"""The most bytes of a name, path, pattern, address or any other text."""

MAX_SAID_BYTES: Final = 400_000
"""The most bytes of a text for a model, or of a list of todos."""

_SHORT_CHARS: Final = MAX_NAME_BYTES // 4
"""The most characters that are below every limit, whatever their UTF-8 length."""

_BOUNDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("content", "old_string", "new_string"), MAX_FILE_BYTES),
    **dict.fromkeys(("goal", "message", "todos", "answers"), MAX_SAID_BYTES),
    **dict.fromkeys(("inputResponses", "requestState", "notifications"), MAX_SAID_BYTES),
    "files": 12 << 20,  # as text; the decoded bytes have their own limit
    "output_schema": 64_000,  # its own limit has a more helpful error
    "command": 100_000,
}


def too_long(given: Mapping[str, Any]) -> str | None:
    """Return an error that names the argument that is too long; None if none is."""
    for name, value in given.items():
        if len(name) > MAX_NAME_BYTES:
            return f"an argument's name has {len(name):,} characters. Use one that exists."
        if type(value) is str and len(value) <= _SHORT_CHARS:
            continue
        most = _BOUNDS.get(name, MAX_NAME_BYTES)
        size = _size(value)
        if size > most:
            return (
                f"{name} has {size:,} bytes of text, and at most {most:,} are accepted. Send "
                "less, or in several calls; name a file instead of sending its content."
            )
    return None


def _size(value: object) -> int:
    """Return the bytes of all texts in JSON data, including keys."""
    size, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            size += len(one) if one.isascii() else len(one.encode(errors="surrogatepass"))
        elif isinstance(one, list):
            left += cast("list[object]", one)
        elif isinstance(one, dict):
            members = cast("dict[str, object]", one)
            left += members
            left += members.values()
    return size


def require_short_texts(ctx: Context) -> None:
    """Refuse a message with a text that is too long; tools check their own arguments.

    Raises:
        MCPError: There is one.
    """
    given = dict(ctx.params or {})
    if ctx.method == "tools/call":
        given.pop("arguments", None)
    elif isinstance(given.get("arguments"), dict):
        given |= given.pop("arguments")
    problem = too_long(given)
    if problem is not None:
        raise MCPError(INVALID_PARAMS, f"Nothing was done: {problem}")


TASKS_EXTENSION = "io.modelcontextprotocol/tasks"

TASK_VERSION = "2025-11-25"
"""The protocol version of the handshake era that has tasks, in another form."""


def takes_tasks(ctx: Context, params: CallToolRequestParams) -> bool:
    """Whether this call may be answered with a task: its client says so each time.

    In 2026-07-28 it declares the extension (SEP-2663); in 2025-11-25 it sends `params.task`
    (SEP-1686).
    """
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return has_extension(ctx)
    return ctx.protocol_version == TASK_VERSION and params.task is not None


def has_extension(ctx: Context, extension: str = TASKS_EXTENSION) -> bool:
    """Whether the client of this request declares an extension."""
    capabilities = ctx.session.client_capabilities
    extensions = (capabilities.extensions if capabilities else None) or {}
    return extension in extensions


def require_extension(ctx: Context, extension: str) -> None:
    """Refuse a request whose client has not declared an extension.

    Raises:
        MCPError: It has not.
    """
    if not has_extension(ctx, extension):
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This needs the extension {extension}; declare it in the request's "
            "clientCapabilities.",
            {"requiredCapabilities": {"extensions": {extension: {}}}},
        )


def require_tasks(ctx: Context) -> None:
    """Refuse a request whose client has not declared the tasks extension.

    Raises:
        MCPError: It has not.
    """
    require_extension(ctx, TASKS_EXTENSION)
