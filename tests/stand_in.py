"""Small process between a client and a process of `fork_server`, with its streams and exit status.

It is started by path, without site packages, so that it starts fast.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import sys

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _main() -> None:
    address, *args = sys.argv[1:]
    ended, its_end = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        asked = {"args": args, "env": {**os.environ}, "cwd": os.getcwd()}
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2, its_end]))]
        server.sendmsg([json.dumps(asked).encode()], rights)
        pid = int(server.recv(64))
    os.close(its_end)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # the other process must be the only owner, so that it can close them
        os.dup2(nothing, stream)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, frame: os.kill(pid, number))
    status = int(os.read(ended, 64))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    _main()
