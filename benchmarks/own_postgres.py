"""A private Postgres server for one measurement, which can be restarted."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

__all__ = ["binaries", "own_postgres", "restart"]


def binaries() -> Path | None:
    """Return the directory of the newest `initdb` and `pg_ctl` on this machine, or None."""
    found = shutil.which("initdb")
    those = [Path(found).resolve()] if found else []
    those += Path("/usr/lib/postgresql").glob("*/bin/initdb")  # Debian does not add them to PATH
    return max(those, key=_version).parent if those else None


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


@contextmanager
def own_postgres() -> Generator[str]:
    """Start a server with an empty directory and default settings; remove it after the block.

    Yields:
        A connection string of a superuser.

    Raises:
        FileNotFoundError: This machine has no `initdb`.
        subprocess.CalledProcessError: The server did not start.
    """
    with tempfile.TemporaryDirectory(prefix="postgres-") as place:
        data = Path(place) / "data"
        data.mkdir()
        if os.geteuid() == 0:  # Postgres refuses to run as root
            Path(place).chmod(0o711)
            shutil.chown(data, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories="
        _run("initdb", data, "-U", "postgres", "-A", "trust", "-E", "UTF8")
        _run("pg_ctl", data, "-l", f"{data}/server.log", "-w", "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            _run("pg_ctl", data, "-m", "immediate", "stop")


def restart(conninfo: str) -> None:
    """Stop a server of `own_postgres` like a crash, and restart it; wait until it listens.

    Args:
        conninfo: Connection string of any of its databases.

    Raises:
        subprocess.CalledProcessError: It did not restart within a minute.
    """
    with psycopg.connect(conninfo) as conn:
        found = conn.execute("SHOW data_directory").fetchone()
    assert found
    data = Path(found[0])
    _run("pg_ctl", data, "-l", f"{data}/server.log", "-w", "-m", "immediate", "restart")


def _run(name: str, data: Path, *arguments: str) -> None:
    folder = binaries()
    if folder is None:
        raise FileNotFoundError("There is no initdb here. Install PostgreSQL's server.")
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    command = [*user, str(folder / name), "-D", str(data), *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
