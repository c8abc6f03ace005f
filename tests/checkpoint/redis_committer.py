"""A process that commits steps to a Redis journal; like `committer`, with a prefix as its path.

`python -m tests.checkpoint.redis_committer drive PREFIX` or `… race PREFIX NAME COUNT`.
"""

from __future__ import annotations

import sys
from typing import Any

import anyio

from deep_agent_mcp.harness.checkpoint.redis import RedisCheckpointer
from tests.checkpoint import committer
from tests.redis_server import SERVER


async def main(*argv: str) -> None:
    what, prefix, *args = argv
    journal: Any = RedisCheckpointer(SERVER, prefix=prefix)
    async with journal:
        if what == "drive":
            async with anyio.create_task_group() as group:
                for number in range(4):
                    group.start_soon(committer.drive, journal, f"t{number}")
        else:
            print("ready", flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)
            await committer.race(journal, args[0], int(args[1]))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
