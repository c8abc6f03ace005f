"""Hot reload: applies saved skills, subagents, memory, policies and configuration within moments.

`watch` follows the files of any number of registries, lets each look at what changed in a worker
thread, and reports what became different. It runs until it is cancelled; errors are logged and
never end it. Directories may be missing at the start, vanish and come back: what exists is
watched in depth, and the nearest existing parent of each path is watched for its (re)appearance.

The system tells most changes, never all: links, network drives and full queues hide some. So all
files are looked at again from time to time; and where the system cannot watch, they are compared.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectSendStream

# Its signature names trio, which need not be installed.
from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType]

from ...harness._internal.records import record
from ...harness.definitions.confined_files import ConfinedFiles
from ...harness.definitions.registry import DefinitionRegistry
from . import Plan

__all__ = ["Kind", "OnChange", "Reloadable", "watch"]

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["skills", "agents", "memory", "policy", "profiles", "settings", "code"]

OnChange: TypeAlias = Callable[[Kind, frozenset[str]], Awaitable[None]]
"""Called with the kind, and the names of definitions, or paths of files, that are different now."""

_RECHECK_SECONDS = 2.0
"""How often paths are looked at again for what no event tells, such as a renamed ancestor."""

_FULL_SECONDS = 10.0
"""How often all files are looked at again, in case an event was lost."""

_BUSY_SECONDS = 30.0
"""How long after a change, or the start, the next one is expected."""

_QUIET_PAUSE = 0.08
"""Seconds that each step takes longer when no change is expected."""

_MANY = 1_000
"""Of more paths than this at once some may have been lost, so all files are looked at."""

_RETRY_SECONDS = 0.5
_FAILURES_BEFORE_POLLING = 3

_LIMITS = ("watch limit", "Too many open files")
"""What errors say when the system has no more watches to give; it will not have them soon."""

_ODD_NAME = "Unable to decode path"
"""What the error of a name says that is not UTF-8. The change itself was lost with it."""


class _Digests(Protocol):
    @property
    def digests(self) -> Mapping[str, str]: ...


class Reloadable(Protocol):
    """A registry that can be reloaded: of skills, subagents, memory files, rules or settings."""

    @property
    def roots(self) -> Sequence[Path]:
        """Directories and files it is made from now."""
        ...

    @property
    def snapshot(self) -> _Digests:
        """What it holds; an entry of `digests` changes when the thing it stands for changes."""
        ...

    def reload(self) -> bool:
        """Look at the files again. Blocks."""
        ...


async def watch(
    registries: Mapping[Kind, Reloadable],
    on_change: OnChange,
    *,
    debounce_ms: int = 50,
    step_ms: int = 20,
    force_polling: bool | None = None,
    untrusted: Sequence[Path] = (),
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Keep registries current until cancelled.

    Args:
        registries: What to reload, by kind.
        on_change: Told about each change, after the reload. Changes that arrive meanwhile are
            reported together in its next call; it holds up no reload.
        debounce_ms: Longest time for which changes that keep coming are gathered.
        step_ms: A pause this long ends the gathering. Less is quicker and costs more. When nothing
            has changed for a while, steps are longer.
        force_polling: Compare directories instead of asking the system; None decides by platform.
        untrusted: Directories that agents can write: links there lead to nothing that is watched
            outside of them.
        task_status: Started once every change from then on is noticed.
    """
    files = ConfinedFiles().also(untrusted)
    follower = _Follower(registries, on_change, debounce_ms, step_ms, files, task_status)
    failures = 0
    async with anyio.create_task_group() as group:
        group.start_soon(follower.tell)
        while True:
            try:
                await follower.follow(force_polling)
                failures = 0
            except Exception as error:
                cause = _cause(error)
                why = str(cause)
                if _ODD_NAME in why:
                    logger.debug("%s; checking all files", why)
                elif isinstance(cause, PermissionError) and not follower.lenient:
                    logger.warning("changes there are noticed late: %s", why)
                    follower.lenient = True
                elif not force_polling:
                    failures += 1
                    force_polling = _polling_after(error, why, failures) or force_polling
                else:
                    logger.exception("comparing files failed; trying again")
                await anyio.sleep(_RETRY_SECONDS)


def _polling_after(error: Exception, why: str, failures: int) -> bool:
    """Log why events failed, and return whether files must be compared from now on."""
    if any(limit in why for limit in _LIMITS):
        logger.warning(
            "the system has no file watches left for the files of skills, agents, memory, policy "
            "and "
            "settings (%s). They are compared several times a second instead, which costs more. "
            "Raise its limit (Linux: sysctl fs.inotify.max_user_watches and max_user_instances) "
            "and start the server again.",
            why,
        )
        return True
    polling = failures >= _FAILURES_BEFORE_POLLING
    logger.error(
        "watching files failed (time %d in a row): %s; %s",
        failures,
        why,
        "comparing them from now on" if polling else f"trying again in {_RETRY_SECONDS} s",
        exc_info=error,
    )
    return polling


def _cause(error: Exception) -> Exception:
    """Return the error inside a task group's."""
    cause = error
    while isinstance(cause, ExceptionGroup):
        cause = cast("ExceptionGroup[Exception]", cause).exceptions[0]
    return cause


@record
class _News:
    """News of a watching task.

    Attributes:
        paths: What changed.
        added: Those of them that appeared.
        rebuild: Whether a watched directory is gone, and with it its watch, even if another of
            its name is there already.
    """

    paths: frozenset[str]
    added: frozenset[str]
    rebuild: bool


class _Follower:
    """Watches files and lets registries look at them.

    Attributes:
        lenient: Whether directories that may not be read are left out. The watch then leaves out
            those for which the system has no more watches, too, and says nothing.
    """

    def __init__(
        self,
        registries: Mapping[Kind, Reloadable],
        on_change: OnChange,
        debounce_ms: int,
        step_ms: int,
        files: ConfinedFiles,
        task_status: TaskStatus[None],
    ) -> None:
        self._registries = registries
        self._files = files
        self._on_change = on_change
        self._awatch = partial(
            awatch,
            debounce=debounce_ms,
            step=step_ms,
            rust_timeout=0,
        )
        self._task_status: TaskStatus[None] | None = task_status
        self.lenient = False
        self._known = {kind: registry.snapshot.digests for kind, registry in registries.items()}
        self._untold: dict[Kind, set[str]] = {}
        self._news = anyio.Event()
        self._fresh: frozenset[str] = frozenset()
        self._fresh_since = 0.0
        self._all_at = 0.0

    async def tell(self) -> None:
        """Report what became different; never returns."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            untold, self._untold = self._untold, {}
            for kind, changed in untold.items():
                try:
                    await self._on_change(kind, frozenset(changed))
                except Exception:
                    logger.exception("the change of %s was not announced to everybody", kind)

    async def follow(self, polling: bool | None) -> None:
        """Watch what exists now; return when something else must be watched."""
        plan = await self._plan()
        stop = _Pace()
        send, receive = anyio.create_memory_object_stream[_News](1)
        async with anyio.create_task_group() as group, send, receive:
            group.start_soon(_set_when_cancelled, stop)
            for paths, recursive in ((plan.trees, True), (plan.anchors, False)):
                if paths:
                    source = self._awatch(
                        *paths,
                        watch_filter=lambda _, path: plan.matters(path),
                        recursive=recursive,
                        force_polling=polling,
                        ignore_permission_denied=self.lenient,
                        stop_event=cast("anyio.Event", stop),
                    )
                    await group.start(_events, source, plan, send, stop)
            await self._reload(None)
            if self._task_status is not None:
                self._task_status.started()
                self._task_status = None
            with ExitStack() as watching:
                for registry in self._registries.values():
                    if isinstance(registry, DefinitionRegistry):
                        watching.enter_context(registry.watched())
                rebuild = False
                while not rebuild and await self._plan() == plan:
                    news = None
                    with anyio.move_on_after(_RECHECK_SECONDS):
                        news = await receive.receive()
                    rebuild = await self._heed(news)
            group.cancel_scope.cancel()

    async def _plan(self) -> Plan:
        return await anyio.to_thread.run_sync(
            lambda: Plan.of(
                [root for registry in self._registries.values() for root in registry.roots],
                self._files,
            )
        )

    async def _heed(self, news: _News | None) -> bool:
        """Look at what changed, or what may have; return whether the watch must be made again."""
        now = time.monotonic()
        if news is not None:
            if news.rebuild:
                return True
            if not self._fresh:
                self._fresh_since = now
            self._fresh |= news.added
            await self._reload(news.paths if len(news.paths) <= _MANY else None)
        if self._fresh and now - self._fresh_since >= _RECHECK_SECONDS:
            # Nobody reported files that were made in a new directory before it was watched.
            fresh, self._fresh = self._fresh, frozenset()
            await self._reload(fresh)
        if now - self._all_at < _FULL_SECONDS:
            return False
        return await self._reload(())

    async def _reload(self, paths: Collection[str] | None) -> bool:
        """Look at what these paths belong to, note what is different, return whether any is.

        Args:
            paths: What changed; None for all. Empty for all that was not looked at lately.
        """
        found = await anyio.to_thread.run_sync(self._look, paths)
        for kind, changed in found.items():
            self._untold.setdefault(kind, set()).update(changed)
            self._news.set()
        return bool(found)

    def _look(self, paths: Collection[str] | None) -> Mapping[Kind, set[str]]:
        """As `_reload`. Blocks.

        All registries are asked, so that no event has to be traced to its owner, links and case
        included: it costs little.
        """
        found: dict[Kind, set[str]] = {}
        for kind, registry in self._registries.items():
            try:
                _look_at(registry, paths)
            except Exception:
                logger.exception("reloading %s failed; the last good state stays in use", kind)
            before, now = self._known[kind], registry.snapshot.digests
            self._known[kind] = now
            changed = {key for key in {*before, *now} if before.get(key) != now.get(key)}
            if changed:
                found[kind] = changed
        if not paths:
            self._all_at = time.monotonic()
        return found


def _look_at(registry: Reloadable, paths: Collection[str] | None) -> None:
    if paths is None or not isinstance(registry, DefinitionRegistry):
        registry.reload()
    elif paths:
        registry.look_at(paths)
    else:
        registry.refresh()


async def _events(
    source: AsyncGenerator[set[tuple[Change, str]], None],
    plan: Plan,
    send: MemoryObjectSendStream[_News],
    pace: _Pace,
    *,
    task_status: TaskStatus[None],
) -> None:
    async with anyio.create_task_group() as group, aclosing(source):
        # awatch sets up its watches before it first waits, and this task runs when it waits.
        group.start_soon(_started, task_status)
        async for changes in source:
            pace.hurry()
            gone = any(change is Change.deleted and plan.watches(path) for change, path in changes)
            await send.send(
                _News(
                    frozenset(path for _, path in changes),
                    frozenset(path for change, path in changes if change is Change.added),
                    gone,
                )
            )


async def _started(task_status: TaskStatus[None]) -> None:
    task_status.started()


class _Pace:
    """Event that ends the watching threads, and makes each step wait while nothing changes."""

    def __init__(self) -> None:
        self._running = threading.Lock()  # held until they shall end
        self._running.acquire()
        self._ends = False
        self.hurry()

    def hurry(self) -> None:
        """Note a change: more are likely to follow."""
        self._busy_until = time.monotonic() + _BUSY_SECONDS

    def set(self) -> None:
        """End the threads."""
        if not self._ends:
            self._ends = True
            self._running.release()

    def is_set(self) -> bool:
        """Whether they shall end. May block for a moment."""
        is_quiet = time.monotonic() > self._busy_until
        ends = self._running.acquire(timeout=_QUIET_PAUSE if is_quiet else 0)
        if ends:
            self._running.release()  # for the other threads
        return ends


async def _set_when_cancelled(stop: _Pace) -> None:
    """End the watching threads at once on cancellation; they look at the event at every step."""
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()
