"""A model of any vendor, as a `ChatModel`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import JsonValue

from ...errors import ModelError
from ...limits.prices import price_of, window_of
from ...messages.message import AIMessage
from ...tools.marks import is_repeated
from ..base import ChatRequest, Delta
from ..wire import LoopClients
from . import Options, Vendor

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["VendorModel", "has_module", "is_installed", "key_of"]

_LIBRARY = "pydantic_ai"

_clients: LoopClients[Connection] = LoopClients("vendor_clients")


def is_installed(vendor: Vendor) -> bool:
    """Whether what a vendor's models need is installed; nothing is imported."""
    return find_spec(_LIBRARY) is not None and has_module(vendor.sdk)


def has_module(module: str) -> bool:
    """Whether a module can be imported; nothing is, except the packages that it is in."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is not there
        return False


def key_of(vendor: Vendor) -> str | None:
    """Return the API key the environment has for a vendor."""
    return next((os.environ[name] for name in vendor.keys if os.environ.get(name)), None)


class VendorModel:
    """A model of OpenAI, Google, Amazon, Mistral and others, or of a server of one's own.

    Safe for concurrent calls, and usable from several event loops.

    Args:
        vendor: Whose model it is.
        model: The vendor's id of it.
        base_url: Of a server that speaks the vendor's protocol. It is sent the vendor's key.
            Default: the vendor's variable, else its own address.
        api_key: Default: the vendor's environment variable, looked up at each call.
        region: Where it runs, for vendors with regions.
        context_window: Input tokens it accepts, if the list of models does not know.
        timeout: Seconds the server may stay silent before the call fails.
        max_retries: How often the vendor's SDK repeats a call that was refused for load or never
            arrived. Where the agent repeats calls itself (`model_patience`), it repeats none.
        parameters: Sent with every request unless the request's settings say otherwise: the
            library's model settings (`temperature`, `thinking`, `openai_reasoning_effort` …), and
            whatever else the vendor's API takes.

    Raises:
        ModelError: The vendor's SDK is not installed.
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
        self._parameters = parameters

    def __repr__(self) -> str:
        return f"VendorModel({self.name!r})"

    @property
    def name(self) -> str:
        """`<vendor>:<model id>`."""
        return f"{self.vendor.name}:{self.model}"

    @property
    def context_window(self) -> int | None:
        """Input tokens the model accepts; None for a model that no list knows."""
        return self._window or window_of(self.name)

    @property
    def native_output(self) -> bool:
        """Whether the API holds this model's text to a schema; False for servers of one's own."""
        return self._base() is None and self.model.startswith(self.vendor.native_output)

    def unset_variables(self) -> tuple[str, ...]:
        """Return what must be set before a call: a key's variable, or the address's."""
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
        connection = await _clients.get(self, options, partial(self._open, options))
        retries = 0 if is_repeated() else self._max_retries
        async with aclosing(connection.stream(request, self._parameters, retries)) as parts:
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
        own = self.vendor.api in ("bedrock", "google-cloud")  # whose SDKs look for credentials
        return self._api_key or (None if own else key_of(self.vendor))

    def _lacks_key(self) -> bool:
        return self.vendor.key_required and self._key() is None and self._base() is None

    def _lacks_address(self) -> bool:
        known = self._base() or self.vendor.base_url
        return self.vendor.library_provider is None and known is None

    def _options(self) -> Options:
        """Return what a connection is made for, as the environment is now.

        Raises:
            ModelError: There is no key, or no address.
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
        """Import the library and make a connection. Blocks for a second or more the first time."""
        price_of(self.name)  # list prices take a while to load as well
        module = import_module(".connection", __package__)
        return module.Connection(self.vendor, self.model, options)
