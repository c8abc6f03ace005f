"""Webhooks: tells other programs that a run has paused or ended, by signed requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup
from pydantic import SecretStr

from ...harness._internal.records import record
from ...harness.checkpoint.base import Run
from ...harness.errors import HarnessError
from ..runs.active_run import ActiveRun
from ..settings.agenda_settings import parse_secrets
from ..settings.settings import Settings
from ..version import NAME, version
from .addresses import Refused, target_of
from .outbox import Delivery, Outbox
from .signing import signed_headers

__all__ = ["Answer", "Webhooks", "send"]

LOOK_SECONDS: Final = 2.0
"""How soon a delivery is noticed whose time has come."""

SWEEP_SECONDS: Final = 30.0
REQUEST_SECONDS: Final = 15.0
_AT_ONCE: Final = 8
_GONE: Final = 410

logger = logging.getLogger(__name__)


@record
class Answer:
    """What a receiver has answered.

    Attributes:
        status: The HTTP status; 0 if none came.
        problem: Why it counts as not received; empty if it was.
        wait: Seconds after which it wants to be asked again.
    """

    status: int
    problem: str = ""
    wait: float | None = None


async def send(settings: Settings, url: str, id_: str, body: str) -> Answer:
    """Send a signed event to a URL; it is not followed anywhere else.

    Args:
        settings: The secret, and the hosts that may be called.
        url: The URL.
        id_: The event's id.
        body: The event.
    """
    assert isinstance(settings.webhook_secret, SecretStr)  # Settings has made sure of it
    data = body.encode()
    keys = parse_secrets(settings.webhook_secret.get_secret_value())
    try:
        target = await target_of(url, frozenset(settings.webhook_hosts))
        headers = {
            **signed_headers(id_, int(time.time()), data, keys),
            "content-type": "application/json",
            "user-agent": f"{NAME}/{version()}",
            "host": target.host,
        }
        extensions = {"sni_hostname": target.name}
        request = httpx2.Request(
            "POST", target.url, content=data, headers=headers, extensions=extensions
        )
        with anyio.fail_after(REQUEST_SECONDS):
            # A client would log the URL, which may be a secret.
            async with httpx2.AsyncHTTPTransport(trust_env=False) as transport:
                response = await transport.handle_async_request(request)
                await response.aclose()
        return _answer(response)
    except Refused as refused:
        return Answer(0, f"it was not called: {refused}")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError) as error:
        return Answer(0, f"{type(error).__name__}: {error}".rstrip(": "))


def _answer(response: httpx2.Response) -> Answer:
    status = response.status_code
    if response.is_success:
        return Answer(status)
    text = response.headers.get("retry-after", "")
    wait = float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
    moved = "; redirects are not followed" if response.is_redirect else ""
    return Answer(status, f"it answered {status}{moved}", wait)


class Webhooks:
    """Sends signed requests when runs pause or end.

    Args:
        outbox: What is still to be sent.
        settings: Returns the settings in force.
    """

    def __init__(self, outbox: Outbox, settings: Callable[[], Settings]) -> None:
        self._outbox = outbox
        self._settings = settings
        self._news: list[str | Run] = []
        self._wake = anyio.Event()
        self._under_way = 0

    def hear(self, live: ActiveRun) -> None:
        """Note that a run begins, or has stopped; see `RunFigures.heard`."""
        if live.brief:
            return
        self._news.append(live.run_id if live.result is None else live.result.run)
        self._wake.set()

    async def work(self) -> None:
        """Tell what there is to tell, until it is cancelled."""
        swept = float("-inf")
        async with anyio.create_task_group() as group:
            while True:
                try:
                    await self._store_news()
                    if anyio.current_time() - swept > SWEEP_SECONDS:
                        swept = anyio.current_time()
                        await self._outbox.look(self._settings().webhooks)
                    await self.deliver_due(group)
                except HarnessError as error:
                    logger.warning("webhooks wait, because the database cannot be used: %s", error)
                    await anyio.sleep(LOOK_SECONDS)
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._wake.wait()

    async def _store_news(self) -> None:
        self._wake = anyio.Event()
        while self._news:
            news = self._news[0]
            if isinstance(news, Run):
                await self._outbox.stopped(news, self._settings().webhooks)
            else:
                await self._outbox.watch(news)
            del self._news[0]

    async def deliver_due(self, group: TaskGroup) -> None:
        """Begin every delivery whose time has come, some of them at once; the others come later.

        Raises:
            HarnessError: The database cannot be used.
        """
        while self._under_way < _AT_ONCE and (one := await self._outbox.claim()) is not None:
            self._under_way += 1
            group.start_soon(self._deliver, one)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await self._try(delivery)
        except HarnessError as error:
            logger.warning("the result of a webhook cannot be stored: %s", error)
        finally:
            self._under_way -= 1
            self._wake.set()

    async def _try(self, delivery: Delivery) -> None:
        settings, outbox = self._settings(), self._outbox
        if delivery.url not in settings.webhooks:
            await outbox.delivered(delivery)  # its operator wants it no more
            return
        answer = await send(settings, delivery.url, delivery.id, delivery.body)
        host = urlsplit(delivery.url).hostname  # the rest may be a secret
        if not answer.problem:
            await outbox.delivered(delivery)
        elif answer.status == _GONE:
            logger.error("webhook at %s is gone (410); %s is given up", host, delivery.id)
            await outbox.delivered(delivery)
        elif await outbox.failed(delivery, answer.problem, answer.wait):
            logger.warning("webhook at %s, try %d: %s", host, delivery.attempts, answer.problem)
        else:
            logger.error("webhook at %s: %s is given up: %s", host, delivery.id, answer.problem)
