"""No call keeps the event loop for long or takes much memory, whatever it is given.

The bars of `python -m benchmarks hostile` are 100 ms and 64 MiB. Here each is three times as high,
and stalls are counted in processor time, so that a busy machine changes nothing.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.hostile import MEMORY_MIB, STALL_MS, WatchedServer
from benchmarks.hostile_calls import HostileCall, calls_of, calls_on_files, hostile_files
from tests.e2e.hostile import needs_proc, posix

pytestmark = [posix, needs_proc]

CALLS = 45
SIZE = 2 << 20
SEED = 20_261_123


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    with WatchedServer(tmp_path_factory.mktemp("hostile")) as made:
        yield made


def chosen(calls: Sequence[HostileCall], count: int) -> list[HostileCall]:
    """Return so many calls, of every tool and of every kind some."""
    chance = random.Random(SEED)
    shuffled = chance.sample(list(calls), len(calls))
    firsts = {one.tool: one for one in shuffled} | {one.kind: one for one in shuffled}
    return list(dict.fromkeys([*firsts.values(), *shuffled]))[:count]


def test_no_call_stalls_the_server_or_fills_its_memory(server: WatchedServer) -> None:
    paths = hostile_files(server.root, files=2_000, largest=SIZE)
    tools = server.tools()
    made = chosen([*calls_of(tools, SIZE)], CALLS)
    assert {one.tool for one in made} == {one["name"] for one in tools}
    made += chosen([*calls_on_files(paths, os.fspath(server.root))], 7)
    beyond: list[str] = []
    for call in made:
        cost = server.cost(call)
        if cost.stall_ms > 3 * STALL_MS or cost.memory_mib > 3 * MEMORY_MIB:
            beyond.append(
                f"{call.name}: {cost.stall_ms:.0f} ms, {cost.memory_mib:.0f} MiB, {cost.where}"
            )
        assert "error" in cost.answer or cost.answer["result"]["content"], call.name
    assert not beyond, "\n".join(beyond)


def test_the_largest_files_are_read_and_edited_within_the_bars(server: WatchedServer) -> None:
    wanted = re.compile(r"read_file\(path: \w+\)|edit_file\(path: editable_\w+, its end.*\)")
    place = server.root / "largest"
    place.mkdir()
    paths = hostile_files(place, files=0, kinds=("wide", "ends"))
    made = [*calls_on_files(paths, os.fspath(place))]
    costs = {one.name: server.cost(one) for one in made if wanted.fullmatch(one.name)}
    assert len(costs) == 9 and "Edited" in str(costs["edit_file(path: editable_wide, its end)"])
    beyond = [f"{name}: {one.memory_mib:.0f}" for name, one in costs.items()
              if one.memory_mib > 1.25 * MEMORY_MIB or one.stall_ms > 3 * STALL_MS]  # fmt: skip
    assert not beyond, "\n".join(beyond)


def test_a_file_of_eight_megabytes_is_written(server: WatchedServer) -> None:
    path = os.fspath(server.root / "large.txt")
    text = b"0123456789" * 800_000
    call = HostileCall(
        "write_file",
        "content",
        "eight megabytes",
        lambda: b'"path":"' + path.encode() + b'","content":"' + text + b'"',
    )
    cost = server.cost(call)
    assert "8000000 bytes, a new file" in str(cost.answer), cost.answer
    assert Path(path).read_bytes() == text
    assert cost.memory_mib < 3 * MEMORY_MIB
