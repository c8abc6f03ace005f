"""Policy files: policies that are reloaded when their files change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import JsonValue

from .._internal.records import record
from ..definitions.confined_files import ConfinedFiles, FollowedFiles
from .composite import CallPolicy, CompositePolicy
from .patterns import PolicyError
from .policy import Policy

if TYPE_CHECKING:
    from ..tools.runtime import ToolRuntime
    from ..tools.tool import Tool
    from .access_changes import Children
    from .access_request import Verdict
    from .command_path_access import Access
    from .parsing import PolicyText

__all__ = ["CallAuthorization", "PolicyFiles", "PolicySnapshot", "authorization_of"]


@record
class PolicySnapshot:
    """The policy at one moment.

    Attributes:
        policy: The rules of all files in order.
        errors: Errors in the newest version of a file, by path; the last good version applies.
        digests: One entry per file, which changes with the file.
    """

    policy: Policy
    errors: Mapping[str, str]
    digests: Mapping[str, str]


@record
class _Read:
    digest: str
    said: PolicyText
    error: str | None = None


class PolicyFiles(FollowedFiles[PolicySnapshot], CompositePolicy):
    """Policy from TOML files. A saved file applies from the next call on. Thread-safe.

    The constructor reads the files; `reload` reads them again. Both block, so call them from a
    worker thread if an event loop is running.

    Args:
        paths: The files; the rules of the first one come first. Without files, everything is
            allowed.
        untrusted: Directories that agents can write. A link in one that leads out of it is an
            error.

    Raises:
        PolicyError: A file is missing or not valid.
    """

    def __init__(self, paths: Sequence[Path], *, untrusted: Sequence[Path] = ()) -> None:
        files = ConfinedFiles().also(untrusted)
        self._paths = tuple(dict.fromkeys(path.absolute() for path in paths))
        self._read = {path: _read(path, files) for path in self._paths}
        super().__init__(self._made(), untrusted)

    @property
    def roots(self) -> Sequence[Path]:
        """The files to watch for changes."""
        return self._paths

    def use(self, paths: Sequence[Path]) -> None:
        """Use the rules of these files from now on. Blocks.

        Raises:
            PolicyError: One is missing or not valid; the rules stay as they were.
        """
        with self._lock:
            wanted = tuple(dict.fromkeys(path.absolute() for path in paths))
            self._read = {path: self._read.get(path) or _read(path, self._files) for path in wanted}
            self._paths = wanted
            self.snapshot = self._made()

    def reload(self) -> bool:
        """Read the files again and return whether anything changed."""
        with self._lock:
            read = {path: _read_again(path, self._read[path], self._files) for path in self._paths}
            if read == self._read:
                return False
            self._read = read
            self.snapshot = self._made()
            return True

    def _doubt(self) -> None:
        self._read = {path: _read(path, self._files) for path in self._paths}
        self.snapshot = self._made()

    def _made(self) -> PolicySnapshot:
        if not self._read:
            return PolicySnapshot(Policy(), {}, {})
        errors = {str(path): one.error for path, one in self._read.items() if one.error}
        digests = {str(path): one.digest for path, one in self._read.items()}
        return PolicySnapshot(
            Policy.of([one.said for one in self._read.values()]),
            MappingProxyType(errors),
            MappingProxyType(digests),
        )

    def parts(self) -> Sequence[CallPolicy]:
        """Return the current rules, as one policy."""
        return (self.snapshot.policy,)


def _read(path: Path, files: ConfinedFiles) -> _Read:
    from .parsing import file_name, file_text, parse_text

    text = file_text(path, files)
    return _Read(hashlib.sha256(text.encode()).hexdigest(), parse_text(text, file_name(path)))


def _read_again(path: Path, before: _Read, files: ConfinedFiles) -> _Read:
    """Return the rules of a file, or the last good version with the error."""
    from .parsing import file_name, file_text, parse_text

    try:
        text = file_text(path, files)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest == before.digest:
            return before
        said = before.said
        if not text.strip() and (said.rules or said.defaults or said.other):
            # Many editors truncate a file before they write it.
            raise PolicyError(f"policy {path} is empty. To lift its rules, leave a comment in it.")
        made = _Read(digest, parse_text(text, file_name(path)))
        # A file that is still being written is reported again; its beginning may lack rules.
        return made if file_text(path, files) == text else before
    except PolicyError as error:
        problem = f"{error} Its last good rules stay in use until this is fixed."
        if problem == before.error:
            return before
        return _Read(hashlib.sha256(problem.encode()).hexdigest(), before.said, problem)


@record
class CallAuthorization:
    """Authorization for the call that an agent is running.

    Attributes:
        policy: The policy.
        name: The running tool's name.
        args: The arguments of the call.
        tool: The running tool.
        reader: The agent's `read_file`, or the running tool if it has none.
        agent: Names of the agents from the main one to the caller.
        principal: The user on whose behalf it runs.
    """

    policy: CallPolicy
    name: str
    args: Mapping[str, JsonValue]
    tool: Tool
    reader: Tool
    agent: tuple[str, ...]
    principal: str

    def judge(self, **changes: JsonValue) -> Verdict:
        """Return the verdict on the running call with some arguments changed."""
        return self.policy.judge(
            self.name,
            {**self.args, **changes},
            self.tool,
            agent=self.agent,
            principal=self.principal,
        )

    def hides(self, path: str, *, contents: bool = False) -> bool:
        """Whether the call's result must omit a path; see `Policy.hides`."""
        return self.policy.hides(
            path, self.reader, contents=contents, agent=self.agent, principal=self.principal
        )

    def reach(self, path: str) -> Access:
        """Return the access of the caller's commands to a path; see `reach`."""
        from .command_path_access import reach  # few calls start commands

        return reach(self.policy, path, agent=self.agent, principal=self.principal)

    def boundaries(self, children: Children) -> Iterator[tuple[str, Access]]:
        """Yield the existing paths where this access changes; see `access_changes`."""
        from .access_changes import access_changes

        return access_changes(self.policy, children, agent=self.agent, principal=self.principal)


def authorization_of(runtime: ToolRuntime) -> CallAuthorization | None:
    """Return the authorization of the running tool's agent; None outside agents."""
    return runtime.policy if isinstance(runtime.policy, CallAuthorization) else None
