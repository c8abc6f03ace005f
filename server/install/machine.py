"""Machine: platform, home and program, which decide where files are and what is started."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import field
from importlib import metadata
from pathlib import Path

from ...harness._internal.records import record
from ..version import NAME, version

__all__ = ["Machine", "NotInstalled", "own_command"]


class NotInstalled(Exception):
    """There is no command that a host could start; the text says what to do."""


@record
class Machine:
    """Where we are.

    Attributes:
        platform: As `sys.platform`.
        home: The user's directory.
        directory: The current one; what `project` means.
        environ: The environment.
        arguments: How this process was called, as `sys.argv`.
        python: The interpreter.
        prefix: Of the environment it runs in.
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
        """Whether files are where Windows has them."""
        return self.platform == "win32"

    def variable(self, name: str, default: Path) -> Path:
        """Return the directory an environment variable names, else the default."""
        named = self.environ.get(name)
        return Path(named) if named else default


def _source() -> str:
    """Return where this distribution was installed from, if not from the package index."""
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
        held = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return ""
    url, vcs = held.get("url", ""), held.get("vcs_info")
    return f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url


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
    if uv and _UV_CACHES & {*machine.prefix.parts}:
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
    return (machine.python, "-m", "deep_agent_mcp")
