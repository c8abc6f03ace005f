"""A connection to a vendor's model through the library, with its own HTTP client per event loop.

Importing this module imports the library, which takes a second. A thread does so at the first call.

Malformed events of a stream are errors, although a vendor's SDK would ignore them. Otherwise an
answer with an unreadable middle would look complete.
"""

# The library is an optional extra, so its types may be missing.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider

from ...errors import ModelError
from ...messages.message import AIMessage
from ..base import ChatRequest, Delta
from ..wire import NOTHING_ELSE, bounded, nothing_else
from . import Options, Vendor
from .answers import Deltas, answer_of, model_error
from .messages import Transcript, media_of
from .request import names_of, parameters_of, settings_of

__all__ = ["Connection", "check_events"]


_END = b"[DONE]"


def check_events(response: httpx2.Response) -> None:
    """Make a response fail at a server-sent event whose data is not a JSON object, or is empty.

    Other types of responses, and compressed ones, are not checked. Only the start and the end of
    the data are checked here; the SDK parses the JSON.
    """
    headers = response.headers
    plain = headers.get("content-encoding", "identity") == "identity"
    if plain and headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _CheckedStream(cast("httpx2.AsyncByteStream", response.stream))


class _CheckedStream(httpx2.AsyncByteStream):
    """A byte stream of events that raises an error at the first malformed event."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._line = bytearray()
        self._data = bytearray()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._read(piece)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _read(self, piece: bytes) -> None:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            self._line += line
            self._end_line(bytes(self._line).rstrip(b"\r"))
            self._line.clear()
        self._line += rest

    def _end_line(self, line: bytes) -> None:
        if not line:
            self._end_event()
        elif line.startswith(b"data:"):
            self._data += line[5:]

    def _end_event(self) -> None:
        data = bytes(self._data).strip()
        self._data.clear()
        if data in (b"", _END):
            return
        if not data.startswith(b"{") or not data[1:-1].strip():
            raise httpx2.RemoteProtocolError(
                "the stream contains an event that is not a JSON object with data: "
                f"{data[:80].decode(errors='replace')}"
            )


_NO_KEY = "none-needed"
_CONNECT_SECONDS = 15.0
_CLOSE_SECONDS = 5.0


@dataclass(slots=True)
class _Exchange:
    """The HTTP responses of one call, and the limit of the wait for its first event.

    The wait begins with a response, because requests and their repetitions have limits of their
    own.
    """

    silence: float
    responses: list[Any] = field(default_factory=list[Any])
    first: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def answering(self) -> bool:
        """Whether the vendor accepted the request."""
        return any(response.is_success for response in self.responses)

    def note(self, response: Any) -> None:
        """Add a response."""
        self.responses.append(response)
        if response.is_success:
            self.first.deadline = anyio.current_time() + self.silence

    async def close(self) -> None:
        """Close all responses."""
        for response in self.responses:
            await response.aclose()


_EXCHANGE: ContextVar[_Exchange | None] = ContextVar("exchange", default=None)
"""The current call."""

_Close = Callable[[], Awaitable[None]]


class Connection:
    """A vendor's model and its HTTP connections.

    Args:
        vendor: The model's vendor.
        model: The model's id.
        options: Credentials and address.

    Raises:
        ModelError: The SDK is missing, or refuses the credentials.
    """

    def __init__(self, vendor: Vendor, model: str, options: Options) -> None:
        self._vendor = vendor
        self._id = model
        self._silence = NOTHING_ELSE * options.timeout
        try:
            provider, self._close = _provider(vendor, options)
            module, name = vendor.library_model
            make = getattr(import_module(f"pydantic_ai.models.{module}"), name)
            # An answer without a finish reason was cut off.
            complete = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
            self._model: Model[Any] = make(model, provider=provider, profile=complete)
            self._media = media_of(self._model.profile, vendor.api)
        except ImportError as error:
            raise ModelError(
                f"Models of {vendor.name} need the extra {vendor.extra!r}: pip install "
                f"'deep-agent-mcp[{vendor.extra}]' ({error}). Nothing was sent.",
                kind="invalid_request",
            ) from error
        except Exception as error:  # the SDKs raise many types for credentials, regions and names
            kind = "invalid_request" if isinstance(error, UserError | ValueError) else "auth"
            raise ModelError(
                f"No connection to {vendor.name} can be made: {str(error).rstrip('.')}. Nothing "
                f"was sent. {_advice(vendor, str(error))}",
                kind=kind,
            ) from error

    async def stream(
        self, request: ChatRequest, parameters: Mapping[str, Any], retries: int
    ) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield deltas and, last, the answer.

        Args:
            request: The call.
            parameters: The model's own settings.
            retries: How often the SDK may retry the call.

        Raises:
            ModelError: The call failed.
        """
        vendor, names = self._vendor, names_of(request)
        deltas = Deltas(names)
        exchange = _Exchange(self._silence)
        try:
            transcript = Transcript(vendor, self._model.system, names, self._media)
            asked = model_request_stream(
                self._model,
                transcript.render(request.messages),
                model_settings=settings_of(request, parameters, vendor, names, retries),
                model_request_parameters=parameters_of(request, vendor, names),
                instrument=False,
            )
            async with _closed_for_sure(asked, exchange) as events:
                async for event in bounded(aiter(events), self._silence, lambda _: True):
                    delta = deltas.feed(event)
                    if delta is not None:
                        yield delta
                response = events.get()
        except ModelError:
            raise
        except Exception as error:
            raise model_error(error, vendor, self._id, answering=exchange.answering) from error
        yield answer_of(response, vendor, self._id, names, request.agent or None)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._close()


def _advice(vendor: Vendor, error: str) -> str:
    if "region" in error:  # the SDK's own message only helps programmers
        return "Set AWS_DEFAULT_REGION, or region beside the model's name."
    return f"Check the model's name, base_url and {' or '.join(vendor.keys)}."


@asynccontextmanager
async def _closed_for_sure(
    asked: AbstractAsyncContextManager[StreamedResponse], exchange: _Exchange
) -> AsyncGenerator[StreamedResponse]:
    """Open a stream, and always close its connection at the end.

    Some SDKs leave the connection open if the stream is not read to its end. The vendor would then
    continue, and charge for it.

    Raises:
        TimeoutError: There was a response, and no event in time.
    """
    events: StreamedResponse | None = None
    async with AsyncExitStack() as stack:
        token = _EXCHANGE.set(exchange)
        try:
            with exchange.first:
                events = await stack.enter_async_context(asked)
        finally:
            _EXCHANGE.reset(token)
        try:
            if events is None:
                raise nothing_else(exchange.silence)
            yield events
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                if events is not None:
                    await events.cancel()
                await exchange.close()


async def _note(response: Any) -> None:
    if (exchange := _EXCHANGE.get()) is not None:
        exchange.note(response)
    if isinstance(response, httpx2.Response):  # Groq's SDK has its own client, and checks events
        check_events(response)


def _provider(vendor: Vendor, options: Options) -> tuple[Provider[Any], _Close]:
    """Return the library's provider for a vendor, and a function that closes its connections."""
    match vendor.api:
        case "chat" | "responses":
            return _openai(vendor, options)
        case "groq":
            return _groq(vendor, options)
        case "bedrock":
            return _bedrock(vendor, options)
        case _:
            http = _http(options)
            known: dict[str, Any] = {"api_key": options.api_key, "base_url": options.base_url}
            if vendor.api == "google-cloud":
                known = _cloud(options)
            return _named(vendor)(**known, http_client=http), http.aclose


def _http(options: Options) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(options.timeout, connect=_CONNECT_SECONDS)
    return httpx2.AsyncClient(
        timeout=timeout,
        limits=httpx2.Limits(max_connections=1_000),
        event_hooks={"response": [_note]},
    )


def _named(vendor: Vendor) -> Any:
    module, name = vendor.library_provider or ("openai_compatible", "OpenAICompatibleProvider")
    return getattr(import_module(f"pydantic_ai.providers.{module}"), name)


def _openai(vendor: Vendor, options: Options) -> tuple[Provider[Any], _Close]:
    from openai import AsyncOpenAI
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    http = _http(options)
    client = AsyncOpenAI(
        api_key=options.api_key or _NO_KEY,
        base_url=options.base_url,
        http_client=http,
        timeout=http.timeout,
    )
    # Other servers with OpenAI's protocol do not support all features of its own API.
    guest = vendor.name == "openai" and options.elsewhere
    if guest or vendor.library_provider is None:
        return OpenAICompatibleProvider(vendor.name, openai_client=client), client.close
    return _named(vendor)(openai_client=client), client.close


def _groq(vendor: Vendor, options: Options) -> tuple[Provider[Any], _Close]:
    from groq import AsyncGroq, DefaultAsyncHttpxClient

    client = AsyncGroq(
        api_key=options.api_key or _NO_KEY,
        base_url=options.base_url,
        timeout=options.timeout,
        http_client=DefaultAsyncHttpxClient(event_hooks={"response": [_note]}),
    )
    return _named(vendor)(groq_client=client), client.close


def _bedrock(vendor: Vendor, options: Options) -> tuple[Provider[Any], _Close]:
    provider = _named(vendor)(
        api_key=options.api_key,
        base_url=options.base_url,
        region_name=options.region,
        aws_read_timeout=options.timeout,
        aws_connect_timeout=_CONNECT_SECONDS,
    )
    for name in ("retry-config-bedrock-runtime", "retry-config-bedrock"):  # the agent retries calls
        provider.client.meta.events.unregister("needs-retry.bedrock-runtime", unique_id=name)

    async def close() -> None:
        await anyio.to_thread.run_sync(provider.client.close)

    return provider, close


def _cloud(options: Options) -> dict[str, Any]:
    return {"api_key": options.api_key, "location": options.region, "base_url": options.base_url}
