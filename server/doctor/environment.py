"""Environment checks: packages, API key, sandbox, search, the operator's files, the port."""

from __future__ import annotations

import logging
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..agents.reloadable_agent import KEYS
from ..settings.settings import Settings
from ..version import NAME, version
from .findings import Finding, broken, note, ok

if TYPE_CHECKING:
    from ...harness.subagents.registry import SubAgentRegistry

__all__ = [
    "examine_files",
    "examine_key",
    "examine_packages",
    "examine_port",
    "examine_sandbox",
    "examine_search",
]

PROBE_SECONDS = 10.0

logger = logging.getLogger(__name__)


def examine_key(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check that there is a key for the model, without showing it."""
    from ...harness.models.registry import DEFAULT_MODEL, full_name
    from ..settings.setting_types import is_sampling

    name = settings.model or DEFAULT_MODEL
    if is_sampling(name):
        text = f"{name}: `task` works only in clients that offer their model (sampling with tools)"
        yield note("model", text, f"For other clients leave --model out, and set {KEYS[0]}.")
        return
    full = full_name(name)
    provider, _, rest = full.partition(":")
    if provider == "scripted":
        there = Path(rest).expanduser().is_file()
        if there:
            yield ok("model", f"{full} needs no key")
        else:
            yield broken("model", f"{full}: there is no such script", "Correct --model.")
        return
    held = [variable for variable in KEYS if environ.get(variable, "").strip()]
    if held:
        yield ok("model", f"{full}; {held[0]} is set here")
    else:
        # A client's model only replaces the default model.
        task = (
            "`task` fails"
            if settings.model
            else "`task` works only in clients that offer their model (sampling with tools)"
        )
        yield note(
            "model",
            f"{full}: no key is set here. {task}; all other tools work",
            f"Set {KEYS[0]} where the client is started, or write it into the client's entry: "
            "`deep-agent-mcp install CLIENT --with-key`.",
        )


def examine_sandbox(settings: Settings) -> Iterator[Finding]:
    """Run `true` in the sandbox that commands would run in."""
    wanted = settings.execute
    if wanted == "host":
        text = "commands run with all your rights (--execute host)"
        yield note("sandbox", text, "Use --execute bubblewrap where it works.")
        return
    problem = _docker_problem() if wanted == "docker" else _bubblewrap_problem()
    if problem is None:
        state = "commands are off; --execute bubblewrap turns them on" if wanted == "off" else ""
        yield ok("sandbox", "; ".join(filter(None, [f"{_NAMES[wanted]} works", state])))
    elif wanted == "off":
        yield note("sandbox", f"commands are off, and could not be confined: {problem}")
    else:
        yield broken("sandbox", f"--execute {wanted} cannot work: {problem}", _FIXES[wanted])


_NAMES = {"off": "bubblewrap", "bubblewrap": "bubblewrap", "docker": "docker"}
_FIXES = {
    "bubblewrap": "Install bubblewrap and allow it user namespaces, or use --execute docker.",
    "docker": "Install docker and start it, or use --execute bubblewrap.",
}


def _bubblewrap_problem() -> str | None:
    from ...harness.errors import AgentBuildError
    from ...harness.shell.bubblewrap import BubblewrapExecutionPolicy

    try:
        BubblewrapExecutionPolicy().check()  # runs `true` in one
    except AgentBuildError as error:
        return str(error)
    return None


def _docker_problem() -> str | None:
    from ...harness.errors import AgentBuildError
    from ...harness.shell.docker import DockerExecutionPolicy

    policy = DockerExecutionPolicy()
    try:
        policy.check()
    except AgentBuildError as error:
        return str(error)
    return _failure((policy.binary, "version", "--format", "{{.Server.Version}}"))


def _failure(command: Sequence[str]) -> str | None:
    """Run a command; return its problem, or None."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return None
    said = done.stderr.decode(errors="replace").strip()
    return said[-500:] or f"exit code {done.returncode}"


def examine_search() -> Iterator[Finding]:
    """Find ripgrep, and run it."""
    from ...harness.backends.ripgrep import find_ripgrep

    found = find_ripgrep()
    install = "Run `pip install 'deep-agent-mcp[search]'`, or install ripgrep."
    if found is None:
        yield note("search", "there is no ripgrep: grep gives the same results, slower", install)
        return
    problem = _failure((found, "--version"))
    if problem is None:
        yield ok("search", f"ripgrep: {found}")
    else:
        yield note("search", f"{found} does not run ({problem}): grep is slower", install)


def examine_files(settings: Settings) -> Iterator[Finding]:
    """Read skills, subagents, memory, profiles and policy as a server does."""
    from ...harness.errors import HarnessError
    from ...harness.memory import MemoryFiles
    from ...harness.policy import PolicyFiles
    from ...harness.profiles import ProfileRegistry
    from ...harness.subagents.registry import SubAgentRegistry
    from ..agents.workplaces import skills_of

    settings = settings.without_principal()
    untrusted = settings.untrusted
    skills = skills_of(settings)
    agents = SubAgentRegistry(settings.agents, untrusted=untrusted)
    memory = MemoryFiles(settings.memory, untrusted=untrusted)
    problems = [*skills.errors.values(), *memory.snapshot.errors.values()]
    for read in (
        lambda: ProfileRegistry(settings.profiles, untrusted=untrusted),
        lambda: PolicyFiles(settings.policy, untrusted=untrusted),
    ):
        try:
            read()
        except HarnessError as error:
            problems.append(str(error))
    problems += _of_subagents(settings, agents, [*skills.skills, *skills.withheld])
    for problem in problems:
        yield broken("files", problem, "Fix the file, or remove it from the settings.")
    if not problems:
        counts = [
            _counted(len(skills.skills), "skill"),
            _counted(len(agents.subagents), "subagent"),
            _counted(len(settings.policy), "policy file"),
        ]
        yield ok("files", f"{', '.join(counts)}: all valid")


def _of_subagents(
    settings: Settings, agents: SubAgentRegistry, skills: Collection[str]
) -> Iterator[str]:
    """Yield problems with subagents, including those that only occur when an agent uses them."""
    from ...harness.definitions import no_such
    from ...harness.errors import HarnessError
    from ...harness.subagents.definitions import SubAgent
    from ..app import built_agent

    agent = None
    try:
        agent = built_agent(settings, agents)
    except HarnessError as error:
        logger.debug("no agent can be built: %s", error)  # other findings give the reason
    yield from agents.errors.values()
    del agent  # it had to be there until now
    for one in agents.subagents.values():
        for name in (one.skills or ()) if isinstance(one, SubAgent) else ():
            if name not in skills:
                yield f"subagent {one.name!r}: {no_such('skill', name, skills)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def examine_port(settings: Settings) -> Iterator[Finding]:
    """Check that the port for HTTP is free; only servers over HTTP need it."""
    from ..transports.transports import AddressError, bind

    address = f"{settings.host}:{settings.port}"
    try:
        bind(settings.host, settings.port).close()
    except AddressError as error:
        if settings.transport == "stdio":
            yield note("http port", f"{address} is taken; clients on stdio do not need it")
        else:
            yield broken("http port", str(error), "Choose another with --port, or stop the other.")
    else:
        yield ok("http port", f"{address} is free")


OLDEST_PYTHON = (3, 11)

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?")


def examine_packages() -> Iterator[Finding]:
    """Check the interpreter and the installed distributions."""
    python = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        yield broken("python", f"{python} is too old", f"Install Python {needed} or newer.")
    else:
        yield ok("python", python)
    try:
        required = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        yield note(
            "packages",
            f"{NAME} runs from a checkout that is not installed",
            "Run `pip install .` in it, so that clients can start it from anywhere.",
        )
        return
    wrong = list(wrong_versions(required))
    if wrong:
        yield broken(
            "packages", "; ".join(wrong), f"Run `{sys.executable} -m pip install --upgrade {NAME}`."
        )
    else:
        shown = ", ".join(f"{name} {metadata.version(name)}" for name in ("mcp", "anthropic"))
        yield ok("packages", f"{NAME} {version()}, {shown}")


def wrong_versions(required: Sequence[str]) -> Iterator[str]:
    """Yield missing distributions and wrong versions; extras and other systems are skipped.

    Args:
        required: Requirements in the format of distributions, such as `mcp<3,>=2.3`.
    """
    for one in required:
        found = _REQUIREMENT.match(one)
        if found is None or (found[3] and not _is_for_this_system(found[3])):
            continue
        name, bounds = found[1], found[2].strip()
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield f"{name} is not installed"
            continue
        if not all(_holds(installed, bound) for bound in bounds.split(",") if bound.strip()):
            yield f"{name} {installed} is not {bounds}"


def _is_for_this_system(marker: str) -> bool:
    """Whether a marker names this system, and nothing else."""
    found = re.fullmatch(r"""\s*;\s*sys_platform\s*==\s*["'](\w+)["']\s*""", marker)
    return found is not None and found[1] == sys.platform


def _holds(installed: str, bound: str) -> bool:
    """Whether a version meets a limit; unknown kinds of limits count as met."""
    bound = bound.strip()
    if bound.startswith(">="):
        return _numbers(installed) >= _numbers(bound[2:])
    if bound.startswith("<") and not bound.startswith("<="):
        return _numbers(installed) < _numbers(bound[1:])
    return True


def _numbers(text: str) -> tuple[int, ...]:
    """Return a version's numbers, without zeros at the end: 2.0 is 2."""
    found = re.match(r"\s*(\d+(?:\.\d+)*)", text)
    numbers = [int(part) for part in found[1].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
