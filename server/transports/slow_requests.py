"""Bounds how long one HTTP request may take to arrive, which uvicorn does not.

A client that sends a byte a second, or nothing, holds nobody up, but its connection, and the task
that waits for its body, would stay for as long as it likes. Here it has some seconds for head and
body together, and more for each piece of a large body; then it is told `408` and dropped. How long
an answer takes has no bound here.
"""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ARRIVAL_SECONDS", "LEAST_BYTES_PER_SECOND", "TimedProtocol"]

ARRIVAL_SECONDS: Final = 15.0
"""How long a request may take to arrive, counted from the connection or the end of the last one."""

LEAST_BYTES_PER_SECOND: Final = 4_096
"""Each so many bytes give a request another second."""

_TOO_SLOW = b"The request took too long to arrive. Nothing was done; send it again."


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with a deadline on the arrival of each request."""

    _timer: asyncio.TimerHandle | None = None
    _due = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock for the first request."""
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Start the clock with a request's first bytes and stop it with its last."""
        super().data_received(data)
        # What is read ahead of a request that is being answered has not begun yet.
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            if self._timer is None:
                self._begin()
            self._due += len(data) / LEAST_BYTES_PER_SECOND
        else:
            self._end()

    def on_response_complete(self) -> None:
        """Start the clock for a request whose first part had been read ahead."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._timer is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clock."""
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._due = self.loop.time() + ARRIVAL_SECONDS
        self._timer = self.loop.call_at(self._due, self._look)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.loop.time() < self._due:  # bytes that came have moved it
            self._timer = self.loop.call_at(self._due, self._look)
            return
        began = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if began and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse()
        self.transport.close()

    def _refuse(self) -> None:
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(_TOO_SLOW)).encode()),
            (b"connection", b"close"),
        ]
        events = (
            h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
            h11.Data(data=_TOO_SLOW),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
