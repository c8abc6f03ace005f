"""Sandbox: runs the commands of an agent, with the files each call may see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from .._internal.records import record
from ..backends.base import Backend
from ..backends.mounts import MountedDirectory, mounted_directories
from ..errors import AgentBuildError
from ..policy import CallAuthorization, PolicyFiles, authorization_of
from ..policy.composite import CallPolicy, CompositePolicy
from ..tools.tool import ToolRuntime
from .mount_table import layout_of, same_files
from .policies import ExecutionPolicy, Layout, SandboxPolicy
from .session import ShellError, ShellSession, open_session

__all__ = ["Sandbox", "sandbox_of"]


@record
class Sandbox:
    """Opens shells over the directories of a backend. Make it with `sandbox_of`.

    Attributes:
        policy: The execution policy of the shells.
        directories: Parts of the backend, higher ones first.
        shell: Command line of the shell; None for the policy's choice.
        env: Variables in addition to the policy's own.
        fixed: Paths of this machine that commands must never write, regardless of the rules.
    """

    policy: SandboxPolicy
    directories: Sequence[MountedDirectory]
    shell: Sequence[str] | None = None
    env: Mapping[str, str] | None = None
    fixed: Sequence[Path] = ()

    @property
    def places(self) -> Sequence[str]:
        """The paths that commands share with file tools."""
        return [one.place for one in self.directories if one.root is not None]

    async def layout(self, runtime: ToolRuntime) -> Layout:
        """Return the layout that the running call may see now."""
        rules = authorization_of(runtime)
        network = _may_reach_network(self.policy, rules)
        if not self.policy.confines:
            return Layout(self.places[0], network=network)
        return await anyio.to_thread.run_sync(self._table, rules, network)

    def _table(self, policy: CallAuthorization | None, network: bool) -> Layout:
        rules = () if policy is None else tuple(_rule_files(policy.policy))
        fixed = [*self.fixed, *(one.resolve() for one in rules), *map(_held, rules)]
        return layout_of(self.directories, policy, network=network, fixed=fixed)

    async def made(self, runtime: ToolRuntime, before: Layout) -> Sequence[str]:
        """Return guarded paths that did not exist before, because missing paths cannot be mounted.

        Args:
            runtime: The running call's.
            before: The layout that the call saw.
        """
        rules = authorization_of(runtime)
        if rules is None or not rules.policy.reads_paths or not self.policy.confines:
            return ()
        known = {one.place for one in before.mounts}
        now = (await self.layout(runtime)).mounts
        return [one.place for one in now if one.access != "write" and one.place not in known]

    async def open(self, layout: Layout, commands: Sequence[str] = ()) -> ShellSession:
        """Start a shell.

        Args:
            layout: Its layout.
            commands: Its first commands.

        Raises:
            ShellError: It did not start; the call's own command was not run.
        """
        # It checks which files exist, which may block.
        make = partial(self.policy.launch_in, layout, self.shell, self.env or {})
        launch = await anyio.to_thread.run_sync(make)
        limits = self.policy.limits
        check = same_files(layout.mounts) if self.policy.confines else None
        session = await open_session(launch, limits, () if check else commands)
        if check is None:
            return session
        try:
            if not (await session.run(check, limits.startup_timeout)).succeeded:
                raise ShellError(
                    "The command was not run: files that the policy guards were replaced by others "
                    "at that moment. Try again when nothing else changes them."
                )
            await session.prepare(commands)
        except BaseException:
            await session.close()
            raise
        return session


def sandbox_of(
    backend: Backend,
    policy: ExecutionPolicy,
    shell: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    fixed: Sequence[Path] = (),
) -> Sandbox:
    """Return the sandbox over a backend; blocks while the policy checks that it can be used.

    Raises:
        AgentBuildError: The policy cannot be used here, or not with this backend.
    """
    if not isinstance(policy, SandboxPolicy):
        raise AgentBuildError(
            f"execution_policy {type(policy).__name__} cannot be shown a backend's directories; it "
            "needs confines, network_enabled and launch_in, as BubblewrapExecutionPolicy has them"
        )
    policy.check()
    directories = mounted_directories(backend, confined=policy.confines)
    if not policy.confines and not any(one.root for one in directories):
        raise AgentBuildError(
            "commands that run without a sandbox need a directory to start in: give the backend a "
            "DirectoryBackend"
        )
    return Sandbox(policy, directories, shell, env, [one.resolve() for one in fixed])


def _may_reach_network(policy: SandboxPolicy, rules: CallAuthorization | None) -> bool:
    """Whether the network is enabled, and the rules also allow the call with network access.

    A person who approved the call also approved the question of the same rule in that case.
    """
    if not policy.network_enabled:
        return False
    if rules is None or not policy.confines:
        return True

    def judged(*, open_world: bool) -> tuple[str, str]:
        verdict = rules.policy.judge(
            rules.name,
            rules.args,
            replace(rules.tool, open_world=open_world),
            agent=rules.agent,
            principal=rules.principal,
        )
        return verdict.action, verdict.reason

    reaching = judged(open_world=True)
    return reaching[0] == "allow" or (reaching[0] == "ask" and reaching == judged(open_world=False))


def _rule_files(policy: CallPolicy) -> Iterator[Path]:
    """Yield the files with rules that are read again; commands must not change their own rules."""
    if isinstance(policy, PolicyFiles):
        yield from policy.roots
    elif isinstance(policy, CompositePolicy):
        for one in policy.parts():
            yield from _rule_files(one)


def _held(path: Path) -> Path:
    """Return the real path of a path's parent with its own name, which may be a link."""
    return path.parent.resolve() / path.name
