"""`VendorModel`: a `ChatModel` for every vendor in the table."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import JsonValue

from ..._internal.records import changed
from ...errors import ModelError
from ...limits.prices import price_of, window_of
from ...messages.message import AIMessage
from ...tools.marks import is_repeated
from ..base import ChatRequest, Delta
from ..refused_media import RefusedMedia
from ..settings import settings_of_call, with_effort
from ..wire import LoopClients
from . import Options, Vendor

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["VendorModel", "has_module", "is_installed", "key_of"]

_LIBRARY = "pydantic_ai"

_clients: LoopClients[Connection] = LoopClients("vendor_clients")


def is_installed(vendor: Vendor) -> bool:
    """Whether the library and the vendor's SDK are installed; nothing is imported."""
    return find_spec(_LIBRARY) is not None and has_module(vendor.sdk)


def has_module(module: str) -> bool:
    """Whether a module can be imported; only its parent packages are imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def key_of(vendor: Vendor) -> str | None:
    """Return the vendor's API key from the environment, or None."""
    return next((os.environ[name] for name in vendor.keys if os.environ.get(name)), None)


class VendorModel:
    """A model of OpenAI, Google, Amazon, Mistral and others, or of a self-hosted server.

    Safe for concurrent calls, and usable from several event loops.

    Args:
        vendor: The model's vendor.
        model: The vendor's id of the model.
        base_url: Address of a server with the vendor's protocol. The vendor's key is sent to it.
            Default: the vendor's environment variable, else its own address.
        api_key: Default: the vendor's environment variable, read at each call.
        region: Region, for vendors with regions.
        context_window: Maximum input tokens. Default: the value in the list of models.
        effort: How much the model thinks, such as `low` or `high`. Default: the vendor's. Models
            that do not reason ignore it.
        timeout: Seconds without data from the server until the call fails. A server that only
            sends comments, for example while the model thinks, may do so for six times as long.
        max_retries: How often the vendor's SDK retries a call that was refused because of load or
            never arrived. If the agent retries calls itself (`model_patience`), the SDK does not.
        parameters: Defaults for the settings of every request: the library's model settings
            (`temperature`, `thinking`, `openai_reasoning_effort` …), and other parameters of the
            vendor's API.

    Raises:
        ModelError: The vendor's SDK is not installed.
        UnknownEffort: `effort` or `thinking` is no effort.
    """

    def __init__(
        self,
        vendor: Vendor,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        region: str | None = None,
        context_window: int | None = None,
        effort: str | None = None,
        timeout: float = 600.0,
        max_retries: int = 2,
        **parameters: JsonValue,
    ) -> None:
        if not is_installed(vendor):
            raise ModelError(
                f"Models of {vendor.name} need the extra {vendor.extra!r}: pip install "
                f"'deep-agent-mcp[{vendor.extra}]'. Nothing was sent.",
                kind="invalid_request",
            )
        self.vendor = vendor
        self.model = model
        self._base_url = base_url
        self._api_key = api_key
        self._region = region
        self._window = context_window
        self._timeout = timeout
        self._max_retries = max_retries
        self._refused = RefusedMedia()
        self._parameters = with_effort(self.name, {"effort": effort, **parameters})

    def __repr__(self) -> str:
        return f"VendorModel({self.name!r})"

    @property
    def name(self) -> str:
        """`<vendor>:<model id>`."""
        return f"{self.vendor.name}:{self.model}"

    @property
    def context_window(self) -> int | None:
        """Maximum input tokens; None for a model that is not in the list of models."""
        return self._window or window_of(self.name)

    @property
    def native_output(self) -> bool:
        """Whether the API enforces output schemas for this model; False with a `base_url`."""
        return self._base() is None and self.model.startswith(self.vendor.native_output)

    def unset_variables(self) -> tuple[str, ...]:
        """Return variables that must be set before a call, for the key or the address."""
        vendor = self.vendor
        if self._lacks_key():
            return vendor.keys
        return (vendor.url_variable or "",) if self._lacks_address() else ()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield deltas and, last, the answer. Closing the iterator closes the HTTP stream.

        Raises:
            ModelError: The call failed; `kind`, `retryable` and `retry_after` say how.
        """
        options = self._options()
        settings = settings_of_call(with_effort, self.name, request)
        request = changed(request, settings=settings)
        connection = await _clients.get(self, options, partial(self._open, options))
        retries = 0 if is_repeated() else self._max_retries

        def ask(request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
            return connection.stream(request, self._parameters, retries)

        async with aclosing(self._refused.answered(ask, request)) as parts:
            async for part in parts:
                yield part

    async def aclose(self) -> None:
        """Close this event loop's connections. The model can be used again afterwards."""
        connection = _clients.pop(self)
        if connection is not None:
            await connection.aclose()

    def _base(self) -> str | None:
        variable = self.vendor.url_variable
        return self._base_url or (os.environ.get(variable) if variable else None) or None

    def _key(self) -> str | None:
        own = self.vendor.api in ("bedrock", "google-cloud")  # their SDKs find credentials
        return self._api_key or (None if own else key_of(self.vendor))

    def _lacks_key(self) -> bool:
        return self.vendor.key_required and self._key() is None and self._base() is None

    def _lacks_address(self) -> bool:
        known = self._base() or self.vendor.base_url
        return self.vendor.library_provider is None and known is None

    def _options(self) -> Options:
        """Return credentials and address, from the arguments and the current environment.

        Raises:
            ModelError: The key or the address is missing.
        """
        vendor = self.vendor
        if self._lacks_key():
            raise ModelError(
                f"No API key for {vendor.name}: set {' or '.join(vendor.keys)}, or choose another "
                "model; everything else works without it. Nothing was sent.",
                kind="auth",
            )
        if self._lacks_address():
            raise ModelError(
                f"{self.name} has no address: give base_url, or set {vendor.url_variable}. Nothing "
                "was sent.",
                kind="invalid_request",
            )
        base_url = self._base() or vendor.base_url
        elsewhere = self._base() is not None
        return Options(self._key(), base_url, elsewhere, self._region, self._timeout)

    def _open(self, options: Options) -> Connection:
        """Import the library and connect. Blocks for a second or more the first time."""
        price_of(self.name)  # loads the list prices here, because that is slow, too
        module = import_module(".connection", __package__)
        return module.Connection(self.vendor, self.model, options)
