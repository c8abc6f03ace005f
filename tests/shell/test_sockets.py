"""Which sockets commands in a sandbox can make: one program tries them all, in one sandbox."""

import errno
import json
import os
import socket
from functools import cache

import anyio
import pytest

from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.policies import Layout
from deep_agent_mcp.harness.shell.session import open_session
from tests.shell.support import need_bubblewrap, text_of

MACHINE = os.uname().machine if hasattr(os, "uname") else ""
CALLS = {"x86_64": (41, 53), "aarch64": (198, 199)}.get(MACHINE, (0, 0))
FAMILIES = (*range(51), 255, 2**31 - 1)
KINDS = (1, 2, 3, 4, 5, 1 | socket.SOCK_CLOEXEC if hasattr(socket, "SOCK_CLOEXEC") else 1)
WAYS = ("socket", "socketpair", "with high bits", "x32", "i386 socket", "i386 socketcall")

TRY = """
import ctypes, errno, json, mmap, os, socket, struct, sys
single, pair, families, kinds = json.loads(sys.argv[1])
libc, found = ctypes.CDLL(None, use_errno=True), {}
libc.syscall.argtypes = [ctypes.c_long] * 5
ends = (ctypes.c_int * 2)()

def tried(number, *arguments):
    got = libc.syscall(number, *arguments)
    if got < 0:
        return ctypes.get_errno()
    for end in [got] if got else ends:
        os.close(end)
    return 0

for family in families:
    for kind in kinds:
        high = family | 1 << 32
        found[f"socket {family} {kind}"] = tried(single, family, kind, 0, 0)
        found[f"socketpair {family} {kind}"] = tried(pair, family, kind, 0, ctypes.addressof(ends))
        found[f"with high bits {family} {kind}"] = tried(single, high, kind, 0, 0)
        if os.uname().machine == "x86_64":
            found[f"x32 {family} {kind}"] = tried(single | 0x40000000, family, kind, 0, 0)

def by_32_bits():
    low = mmap.mmap(-1, 4096, 0x62, 7)  # private, anonymous, below 2 GiB
    low.write(bytes.fromhex("5389f889f387d1cd805bc3"))
    place = ctypes.addressof(ctypes.c_char.from_buffer(low))
    call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint] * 4)(place)
    for family in families:
        for kind in kinds:
            got = call(359, family, kind, 0)
            found[f"i386 socket {family} {kind}"] = max(0, -got)
            struct.pack_into("III", low, 64, family, kind, 0)
            got = call(102, 1, place + 64, 0)
            found[f"i386 socketcall {family} {kind}"] = max(0, -got)

if os.uname().machine == "x86_64":
    out, into = os.pipe()
    if not os.fork():  # a kernel without 32 bits ends a process that tries them
        found.clear()
        by_32_bits()
        os.write(into, json.dumps(found).encode())
        os._exit(0)
    os.close(into)
    with open(out) as answer:
        found.update(json.loads(answer.read() or "{}"))
found["io_uring"] = tried(425, 1, 0, 0, 0)
try:
    found["resolved"] = socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)[0][4][0]
    found["by name"] = socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)[0][4][0]
    found["connected"] = socket.create_server(("127.0.0.1", 0)).getsockname()[0]
except OSError as error:
    found["connected"] = error.errno
print(json.dumps(found))
"""


@cache
def attempts(network: bool) -> dict[str, int | str]:
    """Return the error of each attempt in a sandbox, 0 for none."""
    need_bubblewrap()
    execution = BubblewrapExecutionPolicy(network_enabled=network)
    given = json.dumps([*CALLS, FAMILIES, KINDS])

    async def tried() -> dict[str, int | str]:
        session = await open_session(execution.launch_in(Layout("/tmp"), None, {}), execution)
        try:
            await session.run(f"cat >try.py <<'END'\n{TRY}\nEND", 60)
            return json.loads(text_of(await session.run(f"python3 try.py '{given}'", 60)))
        finally:
            await session.close()

    return anyio.run(tried)


pytestmark = pytest.mark.skipif(not CALLS[0], reason="there is no filter for this machine")


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_sockets_are_of_unix_or_of_an_enabled_network(way: str, network: bool) -> None:
    for family in FAMILIES:
        errors = [attempts(network).get(f"{way} {family} {kind}") for kind in KINDS]
        if errors[0] is None:
            pytest.skip("this machine has no such calls")
        allowed = (
            (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6) if network else (socket.AF_UNIX,)
        )
        if way in ("x32", "i386 socketcall"):
            assert set(errors) == {errno.ENOSYS}, family
        elif family not in allowed:
            assert set(errors) == {errno.EAFNOSUPPORT}, family
        elif way == "socketpair" and family != socket.AF_UNIX:
            assert errno.EAFNOSUPPORT not in errors, family  # the network has no pairs
        else:
            assert (errors[0], errors[1], errors[5]) == (0, 0, 0), family
            assert errno.EAFNOSUPPORT not in errors, family


def test_names_are_resolved_and_ports_opened_with_an_enabled_network() -> None:
    found = attempts(True)
    assert (found["resolved"], found["connected"]) == ("127.0.0.1", "127.0.0.1")
    assert found["by name"] in ("127.0.0.1", "::1")
    assert attempts(False)["connected"] == errno.EAFNOSUPPORT


@pytest.mark.parametrize("network", [False, True])
def test_no_ring_makes_sockets_out_of_the_filters_sight(network: bool) -> None:
    assert attempts(network)["io_uring"] == errno.ENOSYS
