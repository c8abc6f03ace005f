"""Our server with measurements of event loop stalls and memory growth, on request.

`python -m benchmarks.watched_server FD serve …`: a line on the socket FD starts a measurement; the
next line ends it, and is answered with a line of JSON. Stalls are measured in processor time, so
that other processes on the machine do not matter:

- of the loop's thread between two of its callbacks, and
- of the whole process while another thread waits for the GIL, which C code can hold. Time that this
  thread waits for a processor, for example on a busy machine, does not count.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from deep_agent_mcp.server.cli.main import main

PULSE_SECONDS = 0.005

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Watch:
    """The worst values since the start of the measurement."""

    def __init__(self) -> None:
        self.loop_seconds = 0.0
        self.loop_wall = 0.0
        self.where = ""
        self.held_seconds = 0.0
        self._before = 0.0

    def begin(self) -> None:
        """Reset all values, release free memory, and measure memory from now on."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        _CLEAR.write_text("5")  # resets the high-water mark
        self._before = _status("VmRSS")
        self.loop_seconds = self.loop_wall = self.held_seconds = 0.0
        self.where = ""

    def end(self) -> dict[str, Any]:
        """Return the worst stalls in milliseconds, and the growth of memory in MiB."""
        peak = _status("VmHWM")
        return {
            "loop_ms": 1_000 * self.loop_seconds,
            "loop_wall_ms": 1_000 * self.loop_wall,
            "held_ms": 1_000 * self.held_seconds,
            "peak_mib": peak - self._before,
            "kept_mib": _status("VmRSS") - self._before,
            "where": self.where,
        }

    def measure_callbacks(self) -> None:
        """Time every callback of every event loop from now on."""
        run = asyncio.Handle._run  # pyright: ignore[reportPrivateUsage]

        def timed(handle: asyncio.Handle) -> None:
            wall, began = time.perf_counter(), time.thread_time()
            run(handle)
            spent = time.thread_time() - began
            self.loop_wall = max(self.loop_wall, time.perf_counter() - wall)
            if spent > self.loop_seconds:
                self.loop_seconds = spent
                self.where = _name_of(handle)

        asyncio.Handle._run = timed  # pyright: ignore[reportPrivateUsage]

    def pulse(self) -> None:
        """Wake up repeatedly, and record how long the GIL was not available."""
        with Path("/proc/thread-self/schedstat").open("rb", buffering=0) as queue:
            waited = _queued(queue)
            while True:
                wall, used, before = time.perf_counter(), time.process_time(), waited
                time.sleep(PULSE_SECONDS)
                waited = _queued(queue)
                late = time.perf_counter() - wall - PULSE_SECONDS - (waited - before)
                self.held_seconds = max(self.held_seconds, min(late, time.process_time() - used))

    def serve(self, control: socket.socket) -> None:
        """Answer measurement requests on the control socket."""
        begun = False
        with control, control.makefile("rw") as lines:
            for _ in lines:
                if begun:
                    lines.write(json.dumps(self.end()) + "\n")
                else:
                    self.begin()
                    lines.write("{}\n")
                begun = not begun
                lines.flush()


def _name_of(handle: asyncio.Handle) -> str:
    """Return the name of a callback. Its `repr` may contain megabytes of a result."""
    callback: Any = handle._callback  # pyright: ignore[reportPrivateUsage]
    owner = getattr(callback, "__self__", None)
    task = owner.get_name() if isinstance(owner, asyncio.Task) else type(owner).__name__
    return f"{getattr(callback, '__qualname__', callback.__class__.__name__)} of {task}"


def _queued(file: IO[bytes]) -> float:
    """Return the seconds that a thread was ready to run but had no processor."""
    file.seek(0)
    return int(file.read(100).split()[1]) / 1e9


def _status(name: str) -> float:
    line = next(one for one in _STATUS.read_text().splitlines() if one.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    watch = Watch()
    watch.measure_callbacks()
    control = socket.socket(fileno=int(sys.argv.pop(1)))
    threading.Thread(target=watch.pulse, daemon=True).start()
    threading.Thread(target=watch.serve, args=(control,), daemon=True).start()
    main()
