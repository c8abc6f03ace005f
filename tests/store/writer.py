"""A process that writes to a store: `python -m tests.store.writer KIND PLACE NAME COUNT`.

It prints `ready`, waits for a line, then puts pairs of items, each pair in a batch, and prints the
number of each batch once it is stored. With a count of 0, it writes until it is killed. With the
name `forget`, it puts one pair and ends without closing the store.
"""

import sys
from itertools import count

import anyio
import anyio.to_thread

from deep_agent_mcp.harness.store import Put, SqliteStore, Store

PAIR = ("pair",)


def made(kind: str, place: str) -> Store:
    if kind == "sqlite":
        return SqliteStore(place)
    if kind == "redis":
        from deep_agent_mcp.harness.store import RedisStore
        from tests.redis_server import SERVER

        return RedisStore(SERVER, prefix=place)
    from deep_agent_mcp.harness.store import PostgresStore

    return PostgresStore(place, schema="processes")


async def write(store: Store, name: str, number: int) -> None:
    text = f"{name} {number}"
    await store.batch(
        [
            Put(PAIR, "left", {"text": text}),
            Put((name,), f"{number:05}", {"text": text}),
            Put(PAIR, "right", {"text": text}),
        ]
    )
    print(number, flush=True)


async def main(kind: str, place: str, name: str, total: int) -> None:
    store = made(kind, place)
    print("ready", flush=True)
    if name == "forget":
        await write(store, name, 0)
        return
    await anyio.to_thread.run_sync(sys.stdin.readline)
    for number in range(total) if total else count():
        await write(store, name, number)
    await store.close()
    print("done", flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
