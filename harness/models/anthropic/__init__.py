"""Claude, and every server with the Messages API, through the official SDK.

The SDK is imported at the first call, in a worker thread, because the import is slow. All calls of
a model share one HTTP pool per event loop. An answer is only returned if its stream is complete: a
stream that breaks off is an error, and its answer is discarded.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from pydantic import JsonValue

from ...errors import ModelError
from ...limits.prices import price_of
from ...messages.message import AIMessage
from ...tools.marks import is_repeated
from ..base import ChatRequest, Delta
from ..refused_media import RefusedMedia
from ..settings import claude_settings, settings_of_call
from ..wire import NOTHING_ELSE, LoopClients, bounded
from .messages import continued
from .request import (
    MISSING_KEY,
    auth_error,
    body_of,
    connection_error,
    from_http,
    from_sdk,
    retry_after_of,
)
from .stream import AnswerBuilder

if TYPE_CHECKING:
    from anthropic import APIRequest, AsyncAnthropic
    from anthropic import AsyncAPIResponse as Response

__all__ = ["MISSING_KEY", "AnthropicModel", "bound_retry_wait"]


_CONTEXT_WINDOWS = {
    "claude-fable-5": 1_000_000,
    "claude-mythos-5": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "claude-haiku-5": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-6": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-opus-4-5": 200_000,
    "claude-sonnet-4-5": 200_000,
    "claude-haiku-4-5": 200_000,
}
"""Maximum input tokens by prefix of the model's id, as published by the provider."""

_NATIVE_OUTPUT = tuple(_CONTEXT_WINDOWS)
"""Prefixes of ids of models with structured outputs: all models since 4.5 have them."""

_COUNTED = ("system", "tools", "tool_choice", "thinking")
"""Optional fields of a request for a token count."""

_MAX_CONTINUATIONS = 8
"""How often one answer is continued after the provider paused it."""

_READ_OUT_SECONDS = 0.5
"""Time limit for reading the end of a stream after its last event."""

_MAX_RETRY_WAIT = 60.0
"""Seconds. A longer `retry-after` is an error, because the SDK would wait even for days."""

_clients: LoopClients[AsyncAnthropic] = LoopClients("anthropic_clients")
_trying_once: LoopClients[AsyncAnthropic] = LoopClients("anthropic_clients_trying_once")
"""Copies of these clients that share their connections and never retry."""


class AnthropicModel:
    """A Claude model.

    Safe for concurrent calls, and usable from several event loops.

    Args:
        model: The model's id, such as `claude-sonnet-5-5`.
        base_url: Address of a server with the Messages API. Default: `ANTHROPIC_BASE_URL`, else
            Anthropic's.
        api_key: Default: `ANTHROPIC_API_KEY`, else `ANTHROPIC_AUTH_TOKEN`, read at each call.
        region: Region, for clouds with regions.
        context_window: Maximum input tokens. Default: the published value.
        effort: How much the model thinks, such as `low` or `high`. Default: the provider's.
        max_tokens: Maximum tokens of one answer, including thinking; the API requires a limit.
        timeout: Seconds without data from the server until the call fails. A server that only
            sends pings or comments, for example while the model thinks, may do so for six times as
            long.
        max_retries: How often the SDK retries a call that was refused because of load or never
            arrived. It waits as long as the provider asks (`retry-after`), up to a minute. If the
            agent retries calls itself (`model_patience`), the SDK does not retry.
        parameters: Defaults for the settings of every request, as JSON data in the provider's
            format. `thinking` may also be true, false or an effort. `betas` (a name or a list) and
            `cache_ttl` (`5m`, `1h`) are supported too. The API refuses `thinking` in a request
            that forces a tool call, so it is left out there. Models that do not accept forced calls
            choose freely.

    Raises:
        UnknownEffort: The model does not support this effort, or this kind of thinking.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        context_window: int | None = None,
        effort: str | None = None,
        max_tokens: int = 32_000,
        timeout: float = 600.0,
        max_retries: int = 2,
        **parameters: JsonValue,
    ) -> None:
        self.model = model
        self._base_url = base_url
        self._api_key = api_key
        self._region = region
        self._window = context_window
        self._max_tokens = max_tokens
        self._timeout = timeout
        self._max_retries = max_retries
        self._refused = RefusedMedia()
        self._parameters = claude_settings(self.name, {"effort": effort, **parameters})

    def __repr__(self) -> str:
        return f"AnthropicModel({self.model!r})"

    @property
    def name(self) -> str:
        """`anthropic:<model id>`."""
        return f"anthropic:{self.model}"

    @property
    def family(self) -> str:
        """The model's id in Anthropic's own API."""
        return self.model

    @property
    def context_window(self) -> int | None:
        """Maximum input tokens; None for a model that this version does not know."""
        if self._window is not None:
            return self._window
        known = [prefix for prefix in _CONTEXT_WINDOWS if self.family.startswith(prefix)]
        return _CONTEXT_WINDOWS[max(known, key=len)] if known else None

    @property
    def native_output(self) -> bool:
        """Whether the API enforces output schemas for this model; False for unknown models."""
        return self.family.startswith(_NATIVE_OUTPUT)

    def unset_variables(self) -> tuple[str, ...]:
        """Return variables that must be set before a call; none if the SDK may find credentials."""
        key, token, _ = self._credentials()
        return () if key or token or _may_have_login() else ("ANTHROPIC_API_KEY",)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield deltas and, last, the answer. Closing the iterator closes the HTTP stream.

        The provider may pause an answer while it runs its own tools. The answer is then continued
        here, so that the caller sees one answer.

        Raises:
            ModelError: The call failed; `kind`, `retryable` and `retry_after` say how.
        """
        async with aclosing(self._refused.answered(self._ask, request)) as parts:
            async for part in parts:
                yield part

    async def _ask(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        sdk = await self._client()
        if is_repeated():
            # Cached, because each new copy starts a thread to detect the platform.
            sdk = await _trying_once.get(self, sdk, partial(sdk.with_options, max_retries=0))
        body, betas = self._body(request)
        answer = AnswerBuilder()
        for left in reversed(range(1 + _MAX_CONTINUATIONS)):
            async with aclosing(
                self._events(sdk, continued(body, answer.content), betas)
            ) as events:
                async for event in events:
                    delta = answer.feed(event)
                    if delta is not None:
                        yield delta
                    if answer.complete:
                        await _read_out(events)
                        break
            if not answer.complete:
                raise connection_error("it ended in the middle of the answer")
            if not answer.paused or not left:
                break
            answer.resume()
        yield answer.message(self.model, request.agent or None)

    async def count_tokens(self, request: ChatRequest) -> int:
        """Return the provider's count of a request's input tokens: one call, not billed.

        Raises:
            ModelError: The tokens cannot be counted; other servers may not support it.
        """
        import anthropic

        sdk = await self._client()
        body, betas = self._body(self._refused.without(request))
        try:
            count = await sdk.messages.count_tokens(
                model=body["model"],
                messages=body["messages"],
                extra_body={name: body[name] for name in _COUNTED if name in body},
                extra_headers=_beta_headers(betas),
            )
        except anthropic.AnthropicError as error:
            raise from_sdk(error) from error
        except UnicodeEncodeError as error:
            raise _not_unicode() from error
        return count.input_tokens

    def _body(self, request: ChatRequest) -> tuple[Mapping[str, Any], object]:
        """Return the body of a request, and its `betas`."""
        settings = {**self._parameters, **settings_of_call(claude_settings, self.name, request)}
        ids = {"model": self.model, "family": self.family}
        body = body_of(request, settings, **ids, max_tokens=self._max_tokens)
        return body, settings.get("betas")

    async def _events(
        self, sdk: AsyncAnthropic, body: Mapping[str, Any], betas: object
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send the request and yield the raw events of its answer."""
        import anthropic
        import httpx2

        named = ("model", "max_tokens", "messages")
        sent = False
        try:
            async with sdk.messages.with_streaming_response.create(
                model=body["model"],
                max_tokens=body["max_tokens"],
                messages=body["messages"],
                stream=True,
                extra_body={key: value for key, value in body.items() if key not in named},
                extra_headers=_beta_headers(betas),
            ) as response:
                sent = True
                raw = anthropic.AsyncStream.raw_events(response.http_response)
                decoded = (_decoded(event.data) async for event in raw if event.data)
                seconds = NOTHING_ELSE * self._timeout
                async for event in bounded(decoded, seconds, _is_no_ping):
                    yield event
        except TimeoutError as error:
            raise connection_error(str(error)) from error
        except anthropic.AnthropicError as error:
            raise from_sdk(error) from error
        except httpx2.HTTPError as error:
            raise from_http(error) from error
        except UnicodeEncodeError as error:
            raise _not_unicode() from error
        except (ValueError, RecursionError) as error:
            if not sent:
                raise _not_json(error) from error
            raise connection_error(f"the stream is garbled ({error})") from error

    async def _client(self) -> AsyncAnthropic:
        """Return this event loop's client for the current credentials.

        Raises:
            ModelError: There are no credentials (kind `auth`).
        """
        credentials = self._credentials()
        return await _clients.get(self, credentials, partial(self._make_client, credentials))

    def _credentials(self) -> tuple[str | None, str | None, str | None]:
        """Return key, token and base URL; arguments take precedence over the environment."""
        environment = os.environ.get
        base_url = self._base_url or environment("ANTHROPIC_BASE_URL") or None
        key = self._api_key or environment("ANTHROPIC_API_KEY") or None
        token = None if key else environment("ANTHROPIC_AUTH_TOKEN") or None
        return key, token, base_url

    def _make_client(
        self, credentials: tuple[str | None, str | None, str | None]
    ) -> AsyncAnthropic:
        """Import the SDK and create a client. Blocks for a second or more the first time."""
        import anthropic
        import httpx2

        price_of(self.name)  # loads the list prices here, because that is slow, too
        key, token, base_url = credentials
        try:
            sdk = anthropic.AsyncAnthropic(
                api_key=key,
                auth_token=token,
                base_url=base_url,
                timeout=self._timeout,
                max_retries=self._max_retries,
                middleware=[bound_retry_wait],
            )
        except httpx2.InvalidURL as error:
            raise ModelError(
                f"base_url (or ANTHROPIC_BASE_URL) {base_url!r} is not a URL: {error}. Nothing was "
                "sent. Correct it, or leave it out to use Anthropic's own.",
                kind="invalid_request",
            ) from error
        except anthropic.AnthropicError as error:
            raise auth_error(f"The Anthropic credentials cannot be used: {error}.") from error
        if sdk.api_key is None and sdk.auth_token is None and sdk.credentials is None:
            raise ModelError(MISSING_KEY, kind="auth")
        _ = (
            sdk.messages.with_streaming_response
        )  # triggers lazy imports here, not on the event loop
        return sdk

    async def aclose(self) -> None:
        """Close this event loop's connections. The model can be used again afterwards."""
        _trying_once.pop(self)
        client = _clients.pop(self)
        if client is not None:
            await client.close()


_LOGINS = ("ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR", "ANTHROPIC_FEDERATION_RULE_ID")
"""Environment variables that lead the SDK to credentials other than keys."""


def _may_have_login() -> bool:
    """Whether the SDK may find credentials in its own files, or through workload identity."""
    home = Path(os.path.expanduser("~"))
    roaming = os.environ.get("APPDATA") or home / "AppData" / "Roaming"
    folders = (home / ".config" / "anthropic", Path(roaming, "Anthropic"))
    return any(map(os.environ.get, _LOGINS)) or any(one.exists() for one in folders)


def _beta_headers(betas: object) -> dict[str, str] | None:
    if isinstance(betas, str):
        betas = [betas]
    names = cast(list[str], betas) if isinstance(betas, list | tuple) else []
    return {"anthropic-beta": ",".join(names)} if names else None


def _not_unicode() -> ModelError:
    return ModelError(
        "The request holds text that is not valid Unicode (a lone surrogate). Nothing was "
        "sent. Remove the message or tool call that holds it.",
        kind="invalid_request",
    )


def _not_json(error: Exception) -> ModelError:
    return ModelError(
        f"The request cannot be written as JSON ({error}). Nothing was sent. Correct the settings "
        "or the message that holds this.",
        kind="invalid_request",
    )


def _decoded(data: str) -> Mapping[str, Any]:
    event = json.loads(data)
    if not isinstance(event, dict):
        raise ValueError("an event is not a JSON object")
    return cast(Mapping[str, Any], event)


def _is_no_ping(event: Mapping[str, Any]) -> bool:
    return event.get("type") != "ping"


async def bound_retry_wait(
    request: APIRequest, call_next: Callable[[APIRequest], Awaitable[Response[Any]]]
) -> Response[Any]:
    """SDK middleware that prevents a retry if the provider asks for a very long wait."""
    response = await call_next(request)
    wait = retry_after_of(response.headers)
    if wait is not None and wait > _MAX_RETRY_WAIT:
        response.headers["x-should-retry"] = "false"
    return response


async def _read_out(events: AsyncGenerator[object, None]) -> None:
    """Read the stream to its end after a complete answer, so that its connection can be reused."""
    with anyio.move_on_after(_READ_OUT_SECONDS), suppress(ModelError):
        async for _ in events:
            pass
