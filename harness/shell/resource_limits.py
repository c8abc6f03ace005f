"""Resource limits of a whole shell: number of processes, and memory.

Limits of the system apply to each process, or to each user except root. So the supervisor checks
all processes many times a second. If control groups are writable, the kernel also enforces slightly
higher limits, so processes that are faster than the supervisor stay small, too.

It is part of the supervisor, and must not import the rest of the package.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence

__all__ = ["Bounds", "ControlGroups", "descendants"]

LOOK_SECONDS = 0.05
_ROOM_PROCESSES = 128
_ROOM_BYTES = 64 << 20
_TRIES = 40
_NAME = "deep-agent-"


class Bounds:
    """Limits of all processes of a session together.

    Args:
        processes: How many there may be, and how many threads they may have; 0 for any number.
        memory: Bytes that they may have; 0 for any amount.

    Attributes:
        seconds: How often they are looked at.
    """

    def __init__(self, processes: int, memory: int) -> None:
        self._processes = processes
        self._memory = memory
        self._lists = os.path.exists("/proc/thread-self/children")
        bounded = sys.platform == "linux" and bool(processes or memory)
        self._look_again = 0.0 if bounded else float("inf")
        self.seconds = LOOK_SECONDS if bounded else float("inf")

    def passed(self) -> str | None:
        """Return the exceeded limit, or None."""
        now = time.monotonic()
        if now < self._look_again:
            return None
        found = self._found()
        # Looking takes longer where there is more to see; most of the time is for the shell.
        took = time.monotonic() - now
        self._look_again = now + max(LOOK_SECONDS, 4 * took)
        return found

    def _found(self) -> str | None:
        most = self._processes or sys.maxsize
        root = os.getpid()
        pids = _listed(root, most) if self._lists else descendants(root)
        if len(pids) > most:
            return f"more than {most} processes"
        sizes = [_size(pid) for pid in pids]
        if sum(threads for threads, _ in sizes) > most:  # as control groups count them
            return f"more than {most} processes and threads"
        # The first sum is quick, but pages that processes share are in it for each of them.
        if not self._memory or sum(memory for _, memory in sizes) <= self._memory:
            return None
        if sum(map(_share_of_memory, pids)) <= self._memory:
            return None
        return f"more than {self._memory >> 20} MiB of memory"


def descendants(root: int) -> Sequence[int]:
    """Return the descendants of a process, if the system lists processes; children come later."""
    if os.path.exists("/proc/thread-self/children"):
        return _listed(root, sys.maxsize)
    below: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                below.setdefault(_parent(int(name)), []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name is in parentheses and may contain anything.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _listed(root: int, most: int) -> Sequence[int]:
    """Return the processes below one, by the kernel's lists of children; a few more than `most`."""
    found: list[int] = []
    todo = [root]
    while todo and len(found) <= most:
        for children in _children(todo.pop()):
            found += children
            todo += children
    return found


def _children(pid: int) -> Iterator[Sequence[int]]:
    """Yield the children of each thread of a process."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                yield [int(one) for one in file.read().split()]
        except OSError:
            continue


def _size(pid: int) -> tuple[int, int]:
    """Return a process's threads, and its bytes without files; shared bytes count in full.

    Shared memory without a file is included.
    """
    found = {b"Threads:": 1, b"RssAnon:": 0, b"RssShmem:": 0}
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                words = line.split()
                if words and words[0] in found:
                    found[words[0]] = int(words[1])
    except (OSError, ValueError, IndexError):
        return 1, 0
    return found[b"Threads:"], (found[b"RssAnon:"] + found[b"RssShmem:"]) << 10


def _share_of_memory(pid: int) -> int:
    """Return the bytes of a process, with its part of shared bytes."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return _size(pid)[1]


class ControlGroups:
    """Control groups of a session, if they can be created: version 2, or version 1.

    Args:
        processes: How many processes there may be; 0 for any number.
        memory: Bytes that they may have together; 0 for any amount.
    """

    def __init__(self, processes: int, memory: int) -> None:
        self._made: list[str] = []
        if sys.platform != "linux" or not (processes or memory):
            return
        name = f"{_NAME}{os.getpid()}-{secrets.token_hex(6)}"
        limits = {
            "pids": {"pids.max": processes and processes + _ROOM_PROCESSES},
            "memory": {
                "memory.max": memory and memory + _ROOM_BYTES,
                "memory.limit_in_bytes": memory and memory + _ROOM_BYTES,
            },
        }
        for controllers, parent in _groups():
            wanted = {
                file: value
                for controller in controllers
                for file, value in limits.get(controller, {}).items()
                if value
            }
            if wanted:
                _sweep(parent)
                self._make(os.path.join(parent, name), wanted)

    def _make(self, path: str, limits: dict[str, int]) -> None:
        try:
            os.mkdir(path)
        except OSError:
            return
        self._made.append(path)
        held = [_written(os.path.join(path, file), str(value)) for file, value in limits.items()]
        if not any(held):
            self._remove(path)

    def enter(self) -> None:
        """Move this process, and all processes that it starts from now on, into the groups."""
        for path in self._made:
            _written(os.path.join(path, "cgroup.procs"), "0")

    def remove(self) -> None:
        """Remove the groups, once they are empty."""
        for path in [*self._made]:
            _written(os.path.join(path, "cgroup.kill"), "1")
            self._remove(path)

    def _remove(self, path: str) -> None:
        self._made.remove(path)
        for _ in range(_TRIES):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                return
            except OSError:  # killed processes take a moment to disappear
                time.sleep(0.005)
            else:
                return


def _sweep(parent: str) -> None:
    """Remove groups whose supervisor was killed, but not groups that are still in use."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            pid = name.removeprefix(_NAME).partition("-")[0]
            if name.startswith(_NAME) and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(parent, name))


def _written(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _groups() -> Iterator[tuple[Sequence[str], str]]:
    """Yield this process's control groups that may have groups below: controllers and path."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0":
            parent = f"/sys/fs/cgroup{path}".rstrip("/")
            with contextlib.suppress(OSError), open(f"{parent}/cgroup.controllers") as file:
                controllers = file.read().split()
                for one in {"pids", "memory"}.intersection(controllers):
                    _written(f"{parent}/cgroup.subtree_control", f"+{one}")
                yield controllers, parent
        else:
            yield names.split(","), f"/sys/fs/cgroup/{names}{path}".rstrip("/")
