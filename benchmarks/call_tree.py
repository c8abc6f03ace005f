"""Call tree of one driven `write_file`: all functions of this project, in call order.

    python -m benchmarks.call_tree [legacy|modern]

It shows the sixth call of a thread on a stdio server; see `traced_server` for details. Each line
has the depth of a function's first call, the number of its calls and resumptions, its name and its
position in the source.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.client import Era, ServerProcess

__all__ = ["driven_write"]


def driven_write(era: Era = "legacy") -> dict[str, Any]:
    """Return the recording of `traced_server` for one driven call."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "note.json"
        command = (sys.executable, "-m", "benchmarks.traced_server", str(file), "serve")
        with ServerProcess((*command, "--state-dir", folder), era) as server:
            server.open()
            arguments: dict[str, Any] = {"path": "/f.txt", "content": "0"}
            first = server.call("write_file", arguments)
            arguments["thread_id"] = first["structuredContent"]["thread_id"]
            for number in range(1, 5):
                server.call("write_file", {**arguments, "content": str(number)})
            server.signal(signal.SIGUSR1)
            server.call("write_file", {**arguments, "content": "last"})
            server.signal(signal.SIGUSR2)
            until = time.monotonic() + 30
            while not file.exists() and time.monotonic() < until:
                time.sleep(0.01)
            return json.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    note = driven_write("modern" if sys.argv[1:] == ["modern"] else "legacy")
    for place, name, depth, calls in note["functions"]:
        print(f"{depth:2} {calls:2} {'  ' * depth}{name}  {place}")
