"""Session exchange: synchronises the sessions of this replica with those of other replicas."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from ....harness.errors import HarnessError
from .contracts import Peers, Repeats, SessionSignals
from .event_log import EventLog
from .questions import Answer, asker_of
from .store import SessionStore, message_text
from .transport import SessionRefused, SharedTransport

__all__ = ["SessionExchange"]

LOOK_SECONDS: Final = 5.0
"""How often a replica polls without a signal, because signals can be lost."""

SWEEP_SECONDS: Final = 60.0
"""How often a replica removes old data, and records which sessions are in use."""

OWED_SECONDS: Final = 120.0
"""How long storing is retried."""

RETRY_SECONDS: Final = 1.0

ANSWERED: Final = "answered"
"""A message between replicas: the client has answered a question of a dead replica."""

logger = logging.getLogger(__name__)


class SessionExchange:
    """Keeps the sessions that have a transport here in sync with the other replicas.

    Args:
        store: The sessions of all replicas.
        log: The events of their streams.
        signals: Wakes the others.
        peers: The replicas.
        discard: Ends a session's transport here.
        repeats: Knows which requests may be served again.

    Attributes:
        here: The transports of this replica, by the names of their sessions in the tables.
    """

    def __init__(
        self,
        store: SessionStore,
        log: EventLog,
        signals: SessionSignals,
        peers: Peers,
        discard: Callable[[SharedTransport], Awaitable[None]],
        repeats: Repeats,
    ) -> None:
        self.here: dict[str, SharedTransport] = {}
        self._store = store
        self._log = log
        self._signals = signals
        self._peers = peers
        self._discard = discard
        self._repeats = repeats
        self._changed: set[str] = set()
        self._has_mail = False
        self._wake = anyio.Event()
        self._tasks: TaskGroup | None = None
        signals.on("session", self._hear_session)
        signals.on("stream", self._hear_stream)
        signals.on("message", self._hear_message)

    async def work(self) -> None:
        """Send and receive changes; never returns."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._log.run)
            self._tasks.start_soon(self._look_again)
            self._tasks.start_soon(self._tidy)
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                try:
                    await self._hear()
                except HarnessError as error:  # `_look_again` tries again
                    logger.warning("sessions cannot be synchronised now: %s", error)

    # --- changes from transports --------------------------------------------------------------

    async def began(self, transport: SharedTransport, hello: JSONRPCRequest) -> None:
        """Announce a new session to all replicas; see `Exchange`."""
        store = partial(self._store.begin, transport.streams.session, transport.owner, hello)
        await self._do(store, transport)

    async def watches(self, transport: SharedTransport, uri: str, *, watched: bool) -> None:
        """Announce a session's subscriptions; see `Exchange`."""
        store = self._store.watch if watched else self._store.unwatch
        await self._do(partial(store, transport.streams.session, uri), transport)
        self._signals.tell("session", transport.streams.session)

    async def takes_standing_stream(self, transport: SharedTransport) -> bool:
        """Have the standing stream here; see `Exchange`."""
        session = transport.streams.session
        try:
            async with transport.standing_lock:
                transport.standing = self._peers.owner
                before = await self._store.take_standing_stream(session, self._peers.owner)
            has_moved = before not in ("", self._peers.owner)
            may_have_missed = has_moved and not await self._peers.is_alive(before)
        except HarnessError as error:
            logger.warning("another replica may send a session's notices too: %s", error)
            return True
        if has_moved:
            self._signals.tell("session", session)
        return may_have_missed

    def prepared(self, request: JSONRPCRequest) -> JSONRPCRequest:
        """Return a request in the form to serve; see `Exchange`."""
        return self._repeats.prepared(request)

    def can_repeat(self, request: JSONRPCRequest) -> bool:
        """Whether a request may be served again; see `Exchange`."""
        return self._repeats.can_repeat(request)

    async def forward(self, transport: SharedTransport, message: JSONRPCMessage) -> None:
        """Forward a client's message to the replica that it concerns; see `Exchange`."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            await self._do(partial(self._send_to_others, transport, message), transport)
            return
        asker = asker_of(message)
        if await self._peers.is_alive(asker):
            await self._do(partial(self._send, transport, message, [asker]), transport)
        else:
            await self._answer_for_the_dead(transport.streams.session, message, asker)

    async def _send_to_others(self, transport: SharedTransport, message: JSONRPCMessage) -> None:
        await self._send(transport, message, await self._peers.others())

    async def _send(
        self, transport: SharedTransport, message: JSONRPCMessage, replicas: Sequence[str]
    ) -> None:
        if replicas:
            await self._store.send(transport.streams.session, replicas, message)
            self._tell_of_messages(replicas)

    def _tell_of_messages(self, replicas: Sequence[str]) -> None:
        for replica in replicas:
            self._signals.tell("message", replica)

    async def _answer_for_the_dead(self, session: str, answer: Answer, asker: str) -> None:
        """Forward an answer to the replica that continues the work of the one that asked."""
        try:
            question = await self._log.question(session, asker, str(answer.id))
            if question is None:
                logger.info("a client has answered a question that no replica has asked")
                return
            params = {"question": _plain(question), "answer": _plain(answer)}
            note = JSONRPCNotification(jsonrpc="2.0", method=ANSWERED, params=params)
            others = await self._peers.others()
            await self._store.send(session, others, note)
        except HarnessError as error:
            logger.warning("an answer of a client was lost: %s", error)
            return
        self._tell_of_messages(others)
        transport = self.here.get(session)
        if transport is not None and transport.is_open:
            await transport.answered_for_the_dead(question, answer)

    async def _do(self, store: Callable[[], Awaitable[object]], transport: SharedTransport) -> None:
        """Store data; if the database is unavailable, retry in the background."""
        try:
            await store()
        except HarnessError as error:
            logger.warning("a session may not be known to other replicas yet: %s", error)
            if self._tasks is not None:
                self._tasks.start_soon(self._do_later, store, transport)

    async def _do_later(
        self, store: Callable[[], Awaitable[object]], transport: SharedTransport
    ) -> None:
        with anyio.move_on_after(OWED_SECONDS):
            while not transport.is_terminated:
                await anyio.sleep(RETRY_SECONDS)
                try:
                    await store()
                except HarnessError as error:
                    logger.debug("a session is not stored yet: %s", error)
                else:
                    self._signals.tell("session", transport.streams.session)
                    return
            return
        logger.error("a session was not stored; only this replica can serve it")

    # --- changes from other replicas ----------------------------------------------------------

    def wrote(self, sessions: Iterable[str]) -> None:
        """Tell the other replicas that streams of these sessions have new events."""
        for session in sessions:
            self._signals.tell("stream", session)

    def _hear_session(self, session: str, _: str) -> None:
        if session in self.here:
            self._changed.add(session)
            self._wake.set()

    def _hear_stream(self, session: str, _: str) -> None:
        transport = self.here.get(session)
        if transport is not None:
            transport.streams.wake()

    def _hear_message(self, replica: str, _: str) -> None:
        if replica == self._peers.owner:
            self._has_mail = True
            self._wake.set()

    async def _hear(self) -> None:
        if self._has_mail:
            self._has_mail = False
            await self._fetch_mail()
        while self._changed:
            transport = self.here.get(self._changed.pop())
            if transport is not None:
                await self._follow(transport)

    async def _fetch_mail(self) -> None:
        for letter in await self._store.fetch(self._peers.owner):
            transport = self.here.get(letter.session)
            if transport is not None and transport.is_open:
                await self._deliver(transport, letter.message)

    async def _deliver(self, transport: SharedTransport, message: JSONRPCMessage) -> None:
        if not isinstance(message, JSONRPCNotification) or message.method != ANSWERED:
            await transport.deliver(message)
            return
        params = message.params or {}
        question = JSONRPCRequest.model_validate(params["question"], by_name=False)
        answer = jsonrpc_message_adapter.validate_python(params["answer"], by_name=False)
        if isinstance(answer, JSONRPCResponse | JSONRPCError):
            await transport.answered_for_the_dead(question, answer)

    async def _follow(self, transport: SharedTransport) -> None:
        """Load changes to a session that other replicas have stored."""
        async with transport.standing_lock:
            stored = await self._store.find(transport.streams.session)
            if stored is not None:
                transport.standing = stored.replica
        if stored is None:
            await self._discard(transport)
            return
        if transport.standing != self._peers.owner:
            transport.streams.leave_standing_stream()
        if transport.is_open:
            try:
                await transport.follow_watched(stored.watched)
            except SessionRefused as error:
                logger.warning(
                    "a session misses notices of some resources that it watches: %s", error
                )

    async def _look_again(self) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            self._has_mail = True
            self._wake.set()
            waiting = {name: one for name, one in self.here.items() if one.streams.has_readers}
            try:
                await self._take_mail_of_the_dead()
                if not waiting:
                    continue
                standing = await self._store.standing_streams(waiting)
                recent = await self._log.recent(waiting, 3 * LOOK_SECONDS)
            except HarnessError as error:
                logger.debug("streams cannot be read now: %s", error)
                continue
            for name, one in waiting.items():
                if standing.get(name) != one.standing:
                    self._hear_session(name, "")
                if name in recent:
                    one.streams.wake()

    async def _take_mail_of_the_dead(self) -> None:
        """Handle answers for a replica that was not known to be dead when they arrived."""
        for replica in await self._store.awaited_replicas():
            if await self._peers.is_alive(replica):
                continue
            for letter in await self._store.fetch(replica):
                if isinstance(letter.message, JSONRPCResponse | JSONRPCError):
                    await self._answer_for_the_dead(letter.session, letter.message, replica)

    async def _tidy(self) -> None:
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            open_here = {name: one for name, one in self.here.items() if one.is_open}
            used = [name for name, one in open_here.items() if one.is_busy or one.was_used]
            for one in open_here.values():
                one.was_used = False
            try:
                exist = await self._store.keep(used, open_here)
                await self._store.sweep()
                await self._log.sweep()
            except HarnessError as error:
                for name in used:
                    open_here[name].was_used = True
                logger.warning("old sessions cannot be removed now: %s", error)
                continue
            for name, one in open_here.items():
                if name not in exist and not one.is_terminated:
                    await self._discard(one)


def _plain(message: JSONRPCMessage) -> Any:
    return json.loads(message_text(message))
