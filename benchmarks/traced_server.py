"""Our server with a recorder of its function calls.

`python -m benchmarks.traced_server FILE serve …`: SIGUSR1 starts a recording. SIGUSR2 ends it and
writes JSON to FILE: the functions in order of their first call, and the maximum depth. Each
function has `file:line:name`, the depth of its first call, and the number of calls and resumptions.
Only functions in `harness/` and `server/` count, in all threads. Comprehensions and lambdas count
for their function. The depth only counts such frames on one stack.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

from deep_agent_mcp.server.cli.main import main

ROOT = str(Path(__file__).resolve().parent.parent)
FOLDERS = tuple(os.path.join(ROOT, name) + os.sep for name in ("harness", "server"))


def _counts(code: CodeType) -> bool:
    return code.co_filename.startswith(FOLDERS) and not code.co_name.startswith("<")


class Notes:
    """Calls since the start of the recording. Any thread may add, because it only grows."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.on = False
        self.called: dict[CodeType, list[int]] = {}
        self.deepest = 0

    def look(self, frame: FrameType, event: str, _: object) -> None:
        if not self.on or event != "call" or not _counts(frame.f_code):
            return
        depth, above = 0, frame
        while above is not None:
            depth += _counts(above.f_code)
            above = above.f_back  # type: ignore[assignment]
        self.called.setdefault(frame.f_code, [depth, 0])[1] += 1
        self.deepest = max(self.deepest, depth)

    def begin(self, *_: object) -> None:
        self.called.clear()
        self.deepest = 0
        self.on = True

    def end(self, *_: object) -> None:
        self.on = False
        functions = [
            (f"{os.path.relpath(one.co_filename, ROOT)}:{one.co_firstlineno}", one.co_qualname, *at)
            for one, at in self.called.items()
        ]
        note = {"functions": functions, "deepest": self.deepest}
        Path(self.file + ".part").write_text(json.dumps(note))
        os.replace(self.file + ".part", self.file)


if __name__ == "__main__":
    notes = Notes(sys.argv.pop(1))
    signal.signal(signal.SIGUSR1, notes.begin)
    signal.signal(signal.SIGUSR2, notes.end)
    threading.setprofile(notes.look)
    sys.setprofile(notes.look)
    main()
