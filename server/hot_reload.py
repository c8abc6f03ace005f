"""Hot reload: a saved skill, subagent, memory or policy file reaches its registry in moments.

`watch` follows the files of any number of registries, reloads the ones a change belongs to in a
worker thread and reports what became different. It runs until it is cancelled; errors are logged
and never end it. Directories may be missing at the start, vanish and come back: what exists is
watched in depth, and the nearest existing parent of each path is watched for its (re)appearance.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectSendStream

# Its signature names trio, which need not be installed.
from watchfiles import Change, awatch  # pyright: ignore[reportUnknownVariableType]

from harness.definition_files import DefinitionRegistry

__all__ = ["Kind", "OnChange", "Reloadable", "watch"]

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["skills", "agents", "memory", "policy"]

OnChange: TypeAlias = Callable[[Kind, frozenset[str]], Awaitable[None]]
"""Called with the kind, and the names of definitions, or paths of files, that are different now."""

_RECHECK_MS = 2_000
"""How often paths are looked at again for what no event tells, such as a renamed ancestor."""

_RETRY_SECONDS = 0.5
_FAILURES_BEFORE_POLLING = 3

_Signal: TypeAlias = Literal["changed", "look", "rebuild"]
"""What a watching task tells: something changed; time to look at the plan again; a watched
directory is gone, and with it its watch, even if another of its name is there already."""


class _Digests(Protocol):
    @property
    def digests(self) -> Mapping[str, str]: ...


class Reloadable(Protocol):
    """A registry that can be reloaded: of skills, subagents, memory files or rules."""

    @property
    def roots(self) -> Sequence[Path]:
        """Directories and files it is made from."""
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
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Keep registries current until cancelled.

    Args:
        registries: What to reload, by kind.
        on_change: Told about each change, after the reload. Changes that arrive meanwhile are
            reported together in its next call.
        debounce_ms: Longest time for which changes that keep coming are gathered.
        step_ms: A pause this long ends the gathering. Less is quicker and costs more when idle.
        force_polling: Compare directories instead of asking the system; None decides by platform.
        task_status: Started once every change from then on is noticed.
    """
    follower = _Follower(registries, on_change, debounce_ms, step_ms, task_status)
    failures = 0
    while True:
        polling = force_polling if failures < _FAILURES_BEFORE_POLLING else True
        try:
            await follower.follow(polling)
        except Exception:
            failures += 1
            logger.exception(
                "watching files failed (time %d in a row, by %s); trying again in %s s",
                failures,
                "polling" if polling else "events",
                _RETRY_SECONDS,
            )
            await anyio.sleep(_RETRY_SECONDS)
        else:
            failures = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to watch, given what exists: compare two of them to see whether to start over.

    Attributes:
        trees: Existing directories to watch in depth.
        anchors: Directories to watch for entries that lead to a root.
        wanted: Paths whose events in an anchor matter.
        identities: Device and inode of all that is watched; a directory that was replaced
            between two looks has a new one.
    """

    trees: frozenset[str]
    anchors: frozenset[str]
    wanted: frozenset[str]
    identities: frozenset[tuple[str, int, int]]

    @classmethod
    def of(cls, roots: Sequence[Path]) -> _Plan:
        """Look at the file system. Blocks."""
        trees: set[str] = set()
        anchors: set[str] = set()
        wanted: set[str] = set()
        for root in roots:
            real = os.path.realpath(root)
            if os.path.isdir(real):
                trees.add(real)
            for path in {str(root), real}:
                anchor, step = _anchor(path)
                anchors.add(anchor)
                wanted.add(step)
        return cls(
            frozenset(trees), frozenset(anchors), frozenset(wanted), _identities(trees | anchors)
        )

    def watches(self, path: str) -> bool:
        """Whether a directory is itself watched."""
        return path in self.trees or path in self.anchors

    def matters(self, path: str) -> bool:
        """Whether an event concerns a root: hidden files and caches inside trees do not."""
        if path in self.wanted or path in self.anchors:
            return True
        for tree in self.trees:
            if path.startswith(tree + os.sep):
                inner = path[len(tree) + 1 :].split(os.sep)
                return not any(part.startswith(".") or part == "__pycache__" for part in inner)
        return False


def _anchor(path: str) -> tuple[str, str]:
    """Return the nearest existing directory above a path, and its entry that leads there."""
    step = path
    while True:
        parent = os.path.dirname(step)
        if parent == step or os.path.isdir(parent):
            real = os.path.realpath(parent)
            return real, os.path.join(real, os.path.basename(step))
        step = parent


def _identities(paths: set[str]) -> frozenset[tuple[str, int, int]]:
    found: set[tuple[str, int, int]] = set()
    for path in paths:
        with suppress(OSError):
            status = os.stat(path)
            found.add((path, status.st_dev, status.st_ino))
    return frozenset(found)


class _Follower:
    def __init__(
        self,
        registries: Mapping[Kind, Reloadable],
        on_change: OnChange,
        debounce_ms: int,
        step_ms: int,
        task_status: TaskStatus[None],
    ) -> None:
        self._registries = registries
        self._on_change = on_change
        self._awatch = partial(
            awatch,
            debounce=debounce_ms,
            step=step_ms,
            rust_timeout=_RECHECK_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        self._task_status: TaskStatus[None] | None = task_status
        self._told = {kind: registry.snapshot.digests for kind, registry in registries.items()}
        self._roots = [root for registry in registries.values() for root in registry.roots]

    async def follow(self, polling: bool | None) -> None:
        """Watch what exists now; return when something else must be watched."""
        plan = await self._look()
        stop = anyio.Event()
        send, receive = anyio.create_memory_object_stream[_Signal](1)
        async with anyio.create_task_group() as group, send, receive:
            group.start_soon(_set_when_cancelled, stop)
            for paths, recursive in ((plan.trees, True), (plan.anchors, False)):
                if paths:
                    source = self._awatch(
                        *paths,
                        watch_filter=lambda _, path: plan.matters(path),
                        recursive=recursive,
                        force_polling=polling,
                        stop_event=stop,
                    )
                    await group.start(_events, source, plan, send)
            await self._reload()
            if self._task_status is not None:
                self._task_status.started()
                self._task_status = None
            with ExitStack() as watching:
                for registry in self._registries.values():
                    if isinstance(registry, DefinitionRegistry):
                        watching.enter_context(registry.watched())
                while await self._look() == plan:
                    signal = await receive.receive()
                    if signal == "rebuild":
                        break
                    if signal == "changed":
                        await self._reload()
            group.cancel_scope.cancel()

    async def _look(self) -> _Plan:
        return await anyio.to_thread.run_sync(_Plan.of, self._roots)

    async def _reload(self) -> None:
        """Reload all registries and report the differences.

        Registries look only at files whose stat changed, so asking all of them costs little and
        no event has to be traced to its owner, links and case included.
        """
        for kind, registry in self._registries.items():
            try:
                await anyio.to_thread.run_sync(registry.reload)
                before, now = self._told[kind], registry.snapshot.digests
                if before == now:
                    continue
                self._told[kind] = now
                changed = {key for key in {*before, *now} if before.get(key) != now.get(key)}
                await self._on_change(kind, frozenset(changed))
            except Exception:
                logger.exception("reloading %s failed; the last good state stays in use", kind)


async def _events(
    source: AsyncGenerator[set[tuple[Change, str]], None],
    plan: _Plan,
    send: MemoryObjectSendStream[_Signal],
    *,
    task_status: TaskStatus[None],
) -> None:
    async with anyio.create_task_group() as group, aclosing(source):
        # awatch sets up its watches before it first waits, and this task runs when it waits.
        group.start_soon(_started, task_status)
        async for changes in source:
            if any(change is Change.deleted and plan.watches(path) for change, path in changes):
                await send.send("rebuild")
            else:
                await send.send("changed" if changes else "look")


async def _started(task_status: TaskStatus[None]) -> None:
    task_status.started()


async def _set_when_cancelled(stop: anyio.Event) -> None:
    """End the watching threads at once on cancellation; they look at the event at every step."""
    try:
        await anyio.sleep_forever()
    finally:
        stop.set()
