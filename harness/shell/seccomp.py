"""A filter of system calls (seccomp): no setuid or setgid files, and few kinds of sockets.

A setuid file in a directory of the host would give every user of the host the rights of its owner,
which is root if the server runs as root. Sockets are limited because not every address family
belongs to a network namespace: `AF_VSOCK` reaches the host of this virtual machine. The kernel runs
the filter for each system call.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator, Mapping
from functools import cache

from .._internal.records import record

__all__ = ["system_call_filter"]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_LENDING = 0o6000
_MAKING = 0o20000100  # O_CREAT, O_TMPFILE
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000


@record
class _Machine:
    """System calls of a machine.

    Attributes:
        audit: The kernel's number for the architecture.
        modes: By number of the call, the index of its argument with the permissions of a file.
        opens: Calls that use the permissions only for a new file; the argument before has flags.
        sockets: Calls that create sockets; their first argument is the address family.
        absent: Calls whose arguments a filter cannot see; programs work without them.
    """

    audit: int
    modes: Mapping[int, int]
    opens: tuple[int, ...]
    sockets: tuple[int, ...]
    absent: tuple[int, ...] = (425, 437)  # io_uring_setup, openat2


# chmod, fchmod, fchmodat, fchmodat2; open, creat, openat; mknod, mknodat
# socket, socketpair; 102 is socketcall, which does both with arguments in memory
_X86_64 = _Machine(
    0xC000003E,
    {90: 1, 91: 1, 268: 2, 452: 2, 2: 2, 85: 1, 257: 3, 133: 1, 259: 2},
    (2, 257),
    (41, 53),
)
_I386 = _Machine(
    0x40000003,
    {15: 1, 94: 1, 306: 2, 452: 2, 5: 2, 8: 1, 295: 3, 14: 1, 297: 2},
    (5, 295),
    (359, 360),
    (425, 437, 102),
)
_AARCH64 = _Machine(0xC00000B7, {52: 1, 53: 2, 452: 2, 56: 3, 33: 2}, (56,), (198, 199))
_MACHINES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64,)}


@cache
def system_call_filter(*, network: bool) -> bytes | None:
    """Return the filter for this machine in the kernel's format; None for an unknown machine.

    Setting a setuid or setgid bit is refused (`EPERM`), also for a directory's group. Sockets of
    any family but `AF_UNIX` are refused (`EAFNOSUPPORT`). Programs for a machine that the filter
    does not know get `ENOSYS` from every call.

    Args:
        network: Whether `AF_INET` and `AF_INET6` are allowed, too.
    """
    known = _MACHINES.get(platform.machine())
    if known is None:
        return None
    families = (_AF_UNIX, _AF_INET, _AF_INET6) if network else (_AF_UNIX,)
    return b"".join(struct.pack("=HBBI", *one) for one in _program(known, families))


def _program(
    machines: tuple[_Machine, ...], families: tuple[int, ...]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield instructions: the code, the jumps if true and if false, and a value."""
    yield _LOAD, 0, 0, _MACHINE
    for machine in machines:
        body = [*_body(machine, families)]
        yield _EQUAL, 0, len(body), machine.audit
        yield from body
    yield _RETURN, 0, 0, _REFUSE | _ENOSYS


def _body(machine: _Machine, families: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    yield _LOAD, 0, 0, _NUMBER
    if machine is _X86_64:
        yield _AT_LEAST, 0, 1, _X32
        yield _RETURN, 0, 0, _REFUSE | _ENOSYS
    for number in machine.absent:
        yield _EQUAL, 0, 1, number
        yield _RETURN, 0, 0, _REFUSE | _ENOSYS
    for number in machine.sockets:
        yield _EQUAL, 0, len(families) + 3, number
        yield _LOAD, 0, 0, _FIRST_ARGUMENT
        for left, family in zip(range(len(families), 0, -1), families, strict=True):
            yield _EQUAL, left, 0, family
        yield _RETURN, 0, 0, _REFUSE | _EAFNOSUPPORT
        yield _RETURN, 0, 0, _ALLOW
    for number, argument in machine.modes.items():
        opens = number in machine.opens
        yield _EQUAL, 0, 7 if opens else 4, number
        if opens:
            yield _LOAD, 0, 0, _FIRST_ARGUMENT + 8 * (argument - 1)
            yield _ANY_BIT, 1, 0, _MAKING
            yield _RETURN, 0, 0, _ALLOW
        yield _LOAD, 0, 0, _FIRST_ARGUMENT + 8 * argument
        yield _ANY_BIT, 0, 1, _LENDING
        yield _RETURN, 0, 0, _REFUSE | _EPERM
        yield _RETURN, 0, 0, _ALLOW
    yield _RETURN, 0, 0, _ALLOW
