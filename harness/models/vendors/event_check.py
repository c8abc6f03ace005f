"""Malformed events of a stream are errors, where a vendor's SDK would pass over them.

An answer whose middle could not be read would else look whole: its end is there.
"""

# The library is an extra: its types are checked where it is installed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2

__all__ = ["check_events"]

_END = b"[DONE]"


def check_events(response: httpx2.Response) -> None:
    """Let reading a response fail at a server-sent event whose data is no JSON object, or empty.

    Responses of other types are left alone, and compressed ones, whose bytes say nothing yet. That
    the data is JSON throughout is for the SDK to find, which parses it.
    """
    headers = response.headers
    plain = headers.get("content-encoding", "identity") == "identity"
    if plain and headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _CheckedStream(cast("httpx2.AsyncByteStream", response.stream))


class _CheckedStream(httpx2.AsyncByteStream):
    """The bytes of a stream of events, as long as each event is one."""

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
                f"an event of the stream is no answer's: {data[:80].decode(errors='replace')}"
            )
