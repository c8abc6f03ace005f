"""Machine: platform, home directory and program, and the clients' files on it.

They determine the paths of files and the command to start. Files are read and replaced as a whole,
and never lost. A change is written to a new file, which is moved over the old one, so a client that
reads meanwhile sees the old text or the new one. The previous content is kept as a backup. Links
are followed and preserved.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from ...harness._internal.records import record
from ..version import NAME, version

__all__ = [
    "ConfigFile",
    "ConfigFileError",
    "Machine",
    "NotInstalled",
    "own_command",
    "shared_command",
]


class NotInstalled(Exception):
    """There is no command that a host could start; the text says what to do."""


@record
class Machine:
    """Facts about this machine.

    Attributes:
        platform: Like `sys.platform`.
        home: The user's directory.
        directory: The current directory, used for `project`.
        environ: The environment.
        arguments: The command line of this process, like `sys.argv`.
        python: The interpreter.
        prefix: The prefix of its environment.
    """

    platform: str
    home: Path
    directory: Path
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    arguments: tuple[str, ...] = ()
    python: str = sys.executable
    prefix: Path = Path(sys.prefix)

    @classmethod
    def here(cls) -> Machine:
        """Describe the machine this process runs on."""
        return cls(
            platform=sys.platform,
            home=Path.home(),
            directory=Path.cwd(),
            environ=dict(os.environ),
            arguments=tuple(sys.argv),
        )

    @property
    def is_windows(self) -> bool:
        """Whether files are in the places of Windows."""
        return self.platform == "win32"

    @property
    def is_run_by_uv(self) -> bool:
        """Whether this process runs in a temporary environment of `uvx`."""
        return bool(self.environ.get("UV")) and bool(_UV_CACHES & {*self.prefix.parts})

    def variable(self, name: str, default: Path) -> Path:
        """Return the directory an environment variable names, else the default."""
        named = self.environ.get(name)
        return Path(named) if named else default


def _source() -> str:
    """Return the URL this distribution was installed from; empty for the package index."""
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
        held = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return ""
    url, vcs = held.get("url", ""), held.get("vcs_info")
    return f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url


def shared_command(machine: Machine) -> tuple[str, ...]:
    """Return a command that starts this product on any machine with it, or `uvx`, on the PATH.

    Raises:
        NotInstalled: As for `own_command`.
    """
    own_command(machine)
    if not machine.is_run_by_uv:
        return (NAME,)
    source = _source()
    is_shared = source and not source.startswith("file:")
    return ("uvx", *(("--from", source) if is_shared else ()), NAME)


_UV_CACHES = frozenset({"archive-v0", "environments-v2", "builds-v0"})


def own_command(machine: Machine) -> tuple[str, ...]:
    """Return the program, with an absolute path, and first arguments that start this product.

    Hosts with a window have a short PATH, so a bare name would not be found. Run by `uvx`, whose
    environments are thrown away, it is `uvx deep-agent-mcp`; else the script that was called, the
    one beside the interpreter, or the interpreter itself.

    Raises:
        NotInstalled: This is a checkout that is not installed, which no host could import.
    """
    uv = machine.environ.get("UV")
    if uv and machine.is_run_by_uv:
        uvx = Path(uv).with_name("uvx.exe" if machine.is_windows else "uvx")
        runner = (str(uvx),) if uvx.is_file() else (uv, "tool", "run")
        source = _source()
        return (*runner, *(("--from", source) if source else ()), NAME)
    script = NAME + (".exe" if machine.is_windows else "")
    called = Path(machine.arguments[0]) if machine.arguments else Path()
    if called.name in (NAME, script):
        found = shutil.which(str(called.with_name(script))) or shutil.which(script)
        if found:
            return (os.path.abspath(found),)
    beside = Path(machine.python).with_name(script)
    if beside.is_file():
        return (str(beside),)
    if version() == "0+source":
        raise NotInstalled(
            f"{NAME} runs from a checkout that is not installed, so a client could not start it. "
            "Nothing was changed. Run `pip install .` in the checkout, and then the "
            f"`{NAME}` that this installs."
        )
    # Without -P, a folder of that name in the directory that a client starts it in would be run.
    return (machine.python, "-P", "-m", "deep_agent_mcp")


MAX_BYTES = 64 << 20


class ConfigFileError(Exception):
    """The file cannot be read or written; the text says what was done, and what to do."""


@record
class ConfigFile:
    """Configuration file of a client, as it was when it was read.

    Attributes:
        path: The file itself, behind all links.
        data: Its bytes; None if it does not exist.
        status: Its status; None if it does not exist.
    """

    path: Path
    data: bytes | None = None
    status: os.stat_result | None = None

    @classmethod
    def read(cls, path: Path) -> ConfigFile:
        """Read a file, which need not exist.

        Raises:
            ConfigFileError: It cannot be read.
        """
        try:
            path = Path(os.path.realpath(path, strict=False))
            if not os.path.lexists(path):
                return cls(path)
            if not path.is_file():  # reading a pipe would wait, and a link to itself has no file
                raise ConfigFileError(f"{path} is not a file. Nothing was changed.")
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigFileError(
                f"{path} cannot be read: {error.strerror or error}. Nothing was changed."
            ) from error
        if len(data) > MAX_BYTES:
            raise ConfigFileError(f"{path} is larger than 64 MiB. Nothing was changed.")
        return cls(path, data, status)

    @property
    def text(self) -> str:
        """Its text, with the line ends and the byte order mark it has; empty if there is no file.

        Raises:
            ConfigFileError: It is not UTF-8.
        """
        try:
            return (self.data or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigFileError(
                f"{self.path} is not UTF-8 (byte {error.start}). Nothing was changed. Save it as "
                "UTF-8 and try again."
            ) from error

    @property
    def others_can_read(self) -> bool:
        """Whether its mode lets others read it; on Windows its directory decides, not the mode."""
        if self.status is None or sys.platform == "win32":
            return False
        return bool(stat.S_IMODE(self.status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO))

    def replace(self, text: str) -> Path | None:
        """Write a new text, if it is one; return the backup of the old one.

        Mode and owner stay; a new file, and each backup, is for its owner only (0600).

        Raises:
            ConfigFileError: It cannot be written, or somebody else has changed it meanwhile. It is
                as it was.
        """
        data = text.encode("utf-8")
        if data == self.data:
            return None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            backup = None if self.data is None else self._write_backup(self.data)
            own = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
            try:
                self._write(own, data, self.status)
                self._require_unchanged()
                os.replace(own, self.path)
            except BaseException:
                for made in (own, backup):
                    if made is not None:
                        with suppress(OSError):
                            made.unlink()
                raise
        except OSError as error:
            raise ConfigFileError(
                f"{self.path} cannot be written: {error.strerror or error}. It was not changed."
            ) from error
        return backup

    def remove(self) -> None:
        """Delete the file, and a directory of the client's that is empty then.

        Raises:
            ConfigFileError: It cannot be deleted, or somebody else has changed it meanwhile.
        """
        self._require_unchanged()
        try:
            self.path.unlink()
        except OSError as error:
            raise ConfigFileError(
                f"{self.path} cannot be deleted: {error.strerror or error}. It was not changed."
            ) from error
        if self.path.parent.name.startswith("."):  # such as .cursor
            with suppress(OSError):
                self.path.parent.rmdir()

    def _require_unchanged(self) -> None:
        now = ConfigFile.read(self.path)
        if now.data != self.data:
            raise ConfigFileError(
                f"{self.path} was changed by another program at this moment. Nothing was changed "
                "here. Try again; close the client first if this happens again."
            )

    def _write_backup(self, data: bytes) -> Path:
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        backup = self.path.with_name(f"{self.path.name}.{moment}.bak")
        self._write(backup, data, None)
        return backup

    def _write(self, path: Path, data: bytes, like: os.stat_result | None) -> None:
        """Write a new file of the same owner, with the mode of another if one is given."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if self.status is not None and sys.platform != "win32":
                made = os.fstat(file.fileno())
                wanted = (self.status.st_uid, self.status.st_gid)
                if (made.st_uid, made.st_gid) != wanted:
                    os.fchown(file.fileno(), *wanted)
            if like is not None and sys.platform != "win32":
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            file.flush()
            os.fsync(file.fileno())


_BINARY = getattr(os, "O_BINARY", 0)
