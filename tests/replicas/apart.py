"""The agent of replicas whose clocks, or versions of the queue's format, differ.

`CLOCK_AHEAD` sets by how many seconds the clock of this process is ahead, and `LEGS` the version of
legs (queued parts of runs) that it writes and reads.
"""

from __future__ import annotations

import os
import time

from benchmarks.replica_work import agent
from deep_agent_mcp.server.engine import dbos_runs

__all__ = ["agent"]

if "CLOCK_AHEAD" in os.environ:
    _time, _ahead = time.time, float(os.environ["CLOCK_AHEAD"])
    time.time = lambda: _time() + _ahead
    time.time_ns = lambda: int((_time() + _ahead) * 1e9)

if "LEGS" in os.environ:
    dbos_runs._VERSION = os.environ["LEGS"]
    dbos_runs._OTHERS_SECONDS = 1.0
