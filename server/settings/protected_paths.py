"""Protected paths: the server's own files inside the root that agents work in.

Agents must not control their own limits. They cannot see keys, or the state with all users'
threads. They can read policy files, the configuration and profiles, which decide who receives the
model's key. They can edit skills and memory. They can also edit the files of subagents, except for
subagents that are limited by a file, which could remove their own limits. If rules distinguish
agents, no agent can edit these files, because it could gain rights with a file for a name that has
them.

If several users share the root, no agent can edit files that instruct every user's agents: skills,
memory and the files of subagents. Otherwise one user's text would be another user's instructions.

Changes to files that programs read when they start, such as a client's entry for this server, need
a person, see `launch_files`.

Rules for the file tools enforce this. They cover missing files, links, and other spellings of the
same file. For commands that is not enough, see `server.agents.commands`.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...harness._internal.code_folders import IMPORTED_FILES
from ...harness._internal.records import record
from ...harness.backends.base import Backend
from ...harness.errors import AgentBuildError
from ...harness.policy import CallPolicy, Policy, PolicyFiles, Rule
from ...harness.policy.composite import CompositePolicy
from ...harness.policy.policy_files import PolicySnapshot
from .definition import definition_of
from .launch_rules import LaunchRules, below, place_glob, places_in
from .setting_types import is_template
from .settings import Settings
from .sources import AGENT_FILE_NAME, default_config_file

__all__ = [
    "GuardedRules",
    "ProtectedPath",
    "instructing_paths",
    "protected_paths",
]

_SOURCE = "the server's own rules"
_KEPT = "the server keeps its keys and its state there"
_BINDING = "it says what agents may do, so only whoever runs the server can edit it"
_OF_SUBAGENTS = "it says what a subagent may do, so subagents cannot edit it"
_OF_ANYBODY = (
    "the policy has rules for agents by name, so agents cannot edit the files that define names"
)
_OF_ALL = "it instructs every user's agents, so only whoever runs the server can edit it"
_SUBAGENTS = "*/*/**"
_CODE = "the agent's code"


@record
class ProtectedPath:
    """A file or directory that binds agents; it need not exist.

    Attributes:
        name: Its description, for messages.
        path: Its configured path.
        secret: Whether agents must not read it, either.
        is_directory: Whether it covers all its contents.
    """

    name: str
    path: Path
    secret: bool = False
    is_directory: bool = False


def protected_paths(settings: Settings) -> Sequence[ProtectedPath]:
    """Return the paths that agents must not change, or not see, in any location."""
    found = [
        ProtectedPath("the state directory", settings.state_dir, secret=True, is_directory=True)
    ]
    keys = {
        "the journal's key": settings.journal_key_file,
        "the journal's URL": settings.journal_url_file,
        "the store's URL": settings.store_url_file,
        "the webhooks' secret": settings.webhook_secret_file,
        "the private key": settings.tls_key,
    }
    found += [
        ProtectedPath(name, path, secret=True) for name, path in keys.items() if path is not None
    ]
    found += [ProtectedPath("the policy", path) for path in settings.policy]
    # The file at the default place is not read now, but by the next server without another file.
    configurations = dict.fromkeys((settings.config_file, default_config_file()))
    found += [
        ProtectedPath("the configuration", path) for path in configurations if path is not None
    ]
    found += [ProtectedPath("profiles", path, is_directory=True) for path in settings.profiles]
    found += [ProtectedPath("the agent file", path) for path in _of_agent_file(settings)]
    found += [ProtectedPath(_CODE, path) for path in IMPORTED_FILES.paths]
    return found


def _of_agent_file(settings: Settings) -> list[Path]:
    """Return the agent file with its files, and the path where one would be trusted."""
    found = [] if settings.agent_file is None else [settings.agent_file]
    described = definition_of(settings)
    if described is not None:
        found += [*described.named, *described.modules]
    if settings.trust_root and settings.root is not None:
        found.append(settings.root / AGENT_FILE_NAME)
    return list(dict.fromkeys(found))


def instructing_paths(settings: Settings) -> Sequence[ProtectedPath]:
    """Return the files that instruct the agents of several users, except the server's own."""
    if not settings.serves_several:
        return ()
    found = [ProtectedPath("the skills", path, is_directory=True) for path in settings.skills]
    if settings.agents is not None:
        found.append(ProtectedPath("the subagents", settings.agents, is_directory=True))
    found += [ProtectedPath("the memory", path) for path in settings.memory]
    return [one for one in found if not is_template(one.path)]


class GuardedRules(CompositePolicy):
    """The current rules of the operator, and rules that protect the server's own files from agents.

    Agents keep it for as long as they run, so it follows changes of those files' locations. Safe on
    any thread; all methods except judging block.

    Args:
        settings: The settings with the locations of the files.
        backend: The agents' files, with the root; see `files_of`.
        rules: The rules of the policy files.
        principal: The owner of the agents, if each principal has a root.
        place: The root's path in the file tools, if the settings do not decide it.

    Raises:
        AgentBuildError: All of the root, or of a route's directory, is the server's own.
    """

    def __init__(
        self,
        settings: Settings,
        backend: Backend,
        rules: PolicyFiles,
        principal: str,
        place: str | None = None,
    ) -> None:
        self._settings = settings
        self._backend = backend
        self._place = place
        self._rules = rules
        self._principal = principal
        self._lock = threading.RLock()
        self._code = IMPORTED_FILES.paths
        self._of_code: Sequence[CallPolicy] = ()
        self._launch: LaunchRules | None = None
        self._guards = self._guarding(settings)

    @property
    def are_compiled(self) -> bool:
        """Whether judging the first call takes no longer than any other."""
        return self._launch is None or self._launch.are_made

    def compile(self) -> None:
        """Compile the many patterns of launch files. Blocks for some ten milliseconds."""
        with self._lock:  # one thread for all callers
            if self._launch is not None:
                self._launch.parts()

    def parts(self) -> Sequence[CallPolicy]:
        """Return the rules as they are now."""
        code = IMPORTED_FILES.paths
        if code != self._code:
            self._of_code = self._guarding_code(code)
            self._code = code
        return (self._rules.snapshot.policy, *self._guards, *self._of_code)

    def _guarding_code(self, code: Sequence[Path]) -> Sequence[CallPolicy]:
        """Return the rules about code that was imported since the others were made."""
        own = self._settings.of(self._principal)
        if own.root is None:
            return ()
        prefix = _prefix(own, self._backend) if self._place is None else self._place
        files = (ProtectedPath(_CODE, one) for one in code)
        return (Policy([rule for one in files for rule in _rules(one, own.root, prefix)]),)

    @property
    def roots(self) -> Sequence[Path]:
        """The policy files to watch for changes."""
        return self._rules.roots

    @property
    def snapshot(self) -> PolicySnapshot:
        """The operator's policy as it was when last looked at."""
        return self._rules.snapshot

    def reload(self) -> bool:
        """Read the policy files again, and follow links; return whether a file changed.

        Raises:
            AgentBuildError: A link made all of the root the server's own.
        """
        with self._lock:
            changed = self._rules.reload()
            self._guards = self._guarding(self._settings)
            return changed

    @contextmanager
    def moving(self, settings: Settings) -> Generator[None]:
        """Guard also the files of these settings in the block, and only them if it succeeds.

        Raises:
            AgentBuildError: All of the root would be the server's own; the block is not entered.
        """
        with self._lock:
            before, after = self._guards, self._guarding(settings)
            self._guards = (*before, *after)
            try:
                yield
                self._settings, before = settings, after
            finally:
                self._guards = before

    def _guarding(self, settings: Settings) -> Sequence[CallPolicy]:
        """Return the rules in addition to the operator's."""
        own = settings.of(self._principal)
        hidden = [*_rules_of_routes(settings)]
        guards: list[CallPolicy] = [Policy(hidden, source=_SOURCE)] if hidden else []
        if own.root is None:
            return guards
        prefix = _prefix(own, self._backend) if self._place is None else self._place
        guards += _own_rules(own, settings, prefix, self._rules)
        if own.protect != "off":
            again = self._launch is not None and self._launch.are_made
            self._launch = LaunchRules(own, own.root, prefix)
            guards.append(self._launch)
            if again:
                self.compile()
        return guards


def _own_rules(
    settings: Settings, everybodys: Settings, prefix: str, rules: PolicyFiles
) -> list[CallPolicy]:
    """Return the rules about the server's own files.

    Args:
        settings: The settings of a principal.
        everybodys: The same settings without the principal's own paths.
        prefix: The root's path in the file tools.
        rules: The operator's rules.
    """
    root = settings.root
    assert root is not None
    always = [one for file in protected_paths(settings) for one in _rules(file, root, prefix)]
    told = instructing_paths(everybodys)
    always += [one for file in told for one in _told(file, root, prefix)]
    agents: Sequence[str] = ()
    if settings.agents is not None and all(one.path != settings.agents for one in told):
        agents = [
            place_glob(prefix, one, is_directory=True) for one in places_in(root, settings.agents)
        ]
    if agents:
        always.append(_unchanged(agents, _OF_SUBAGENTS, agent=_SUBAGENTS))
    if not always:
        return []
    own = Policy(always, source=_SOURCE)
    if not agents:
        return [own]
    return [_GuardedAgents(rules, own, Policy([_unchanged(agents, _OF_ANYBODY)], source=_SOURCE))]


@dataclass(frozen=True, slots=True)
class _GuardedAgents(CompositePolicy):
    """Rules about subagents' files, stricter while the operator's rules distinguish agents.

    Attributes:
        rules: The operator's current rules.
        own: Rules that always apply.
        apart: Rules that apply in addition.
    """

    rules: PolicyFiles
    own: Policy
    apart: Policy

    def parts(self) -> Sequence[CallPolicy]:
        """Return the policies as they are now."""
        if any(one.agent is not None for one in self.rules.snapshot.policy.rules):
            return (self.own, self.apart)
        return (self.own,)


def _rules(file: ProtectedPath, root: Path, prefix: str) -> Iterator[Rule]:
    for place in places_in(root, file.path):
        if file.secret and place == "/":
            raise AgentBuildError(
                f"the root {root} is {file.name}, or a link to it, which agents must not see. Name "
                "another directory with --root"
            )
        glob = place_glob(prefix, place, is_directory=file.is_directory)
        if file.secret:
            yield Rule("deny", path=glob, reason=_KEPT, source=_SOURCE)
        else:
            yield _unchanged([glob], _BINDING)
    if file.is_directory and file.secret and below(file.path, root) not in (None, "/"):
        raise AgentBuildError(
            f"the root {root} is inside of {file.name} {file.path}, which agents must not change. "
            "Name another directory with --root"
        )


def _rules_of_routes(settings: Settings) -> Iterator[Rule]:
    """Yield the rules that hide keys and state in directories of the agent file's other routes.

    Nothing else is needed there: these directories are read-only.

    Raises:
        AgentBuildError: All of a directory is the server's own.
    """
    described = definition_of(settings)
    if described is None:
        return
    for at, backend in described.parts.routes.items():
        root = getattr(getattr(backend, "backend", backend), "root", None)
        if at == "/" or not isinstance(root, Path):
            continue
        for file in protected_paths(settings):
            if not file.secret:
                continue
            if file.is_directory and below(file.path, root) is not None:
                raise AgentBuildError(
                    f"the directory {root} of the route {at} is in {file.name}, {file.path}, which "
                    "agents must not see. Name another directory in [files]"
                )
            for place in places_in(root, file.path):
                glob = place_glob(at.rstrip("/"), place, is_directory=file.is_directory)
                yield Rule("deny", path=glob, reason=_KEPT, source=_SOURCE)


def _told(file: ProtectedPath, root: Path, prefix: str) -> Iterator[Rule]:
    """Yield the rules about files that instruct every user's agents."""
    if file.is_directory and below(file.path, root.resolve()) is not None:
        raise AgentBuildError(
            f"the root {root} is in {file.name}, {file.path}, so one user's files would instruct "
            "other users' agents. Name another directory with --root"
        )
    within = [one for glob in ("*", "*/*") for one in file.path.glob(glob) if one.is_symlink()]
    places = [place for path in (file.path, *within) for place in places_in(root, path)]
    if places:
        globs = [place_glob(prefix, place, is_directory=True) for place in dict.fromkeys(places)]
        yield _unchanged(globs, _OF_ALL)


def _unchanged(globs: Sequence[str], reason: str, agent: str | None = None) -> Rule:
    """Return a rule that only allows reading; a tool without hints may write."""
    return Rule(
        "deny", path=list(globs), reason=reason, read_only=False, agent=agent, source=_SOURCE
    )


def _prefix(settings: Settings, backend: Backend) -> str:
    """Return the root's path in the file tools; empty if it is their whole tree."""
    if settings.execute == "off":
        return ""
    from ...harness.backends.mounts import mounted_directories  # few run commands

    (shared,) = (
        one
        for one in mounted_directories(backend, confined=settings.execute != "host")
        if one.root is not None
    )
    return shared.place
