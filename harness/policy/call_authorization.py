"""Call authorization: the policy as a running tool sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from .._internal.records import record

if TYPE_CHECKING:
    from ..tools.runtime import ToolRuntime
    from ..tools.tool import Tool
    from .access_changes import Children
    from .command_path_access import Access
    from .composite import CallPolicy
    from .verdicts import Verdict

__all__ = ["CallAuthorization", "authorization_of"]


@record
class CallAuthorization:
    """What the policy says to the agent whose call is running.

    Attributes:
        policy: The policy.
        name: The running tool's name.
        args: The arguments of the call.
        tool: The running tool.
        reader: The agent's `read_file`, or the running tool if it has none.
        agent: Names of the agents from the main one to the caller.
        principal: On whose behalf.
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
        """Whether the call's result must leave out a path; see `Policy.hides`."""
        return self.policy.hides(
            path, self.reader, contents=contents, agent=self.agent, principal=self.principal
        )

    def reach(self, path: str) -> Access:
        """Return what a command of the caller may do with a path; see `reach`."""
        from .command_path_access import reach  # few calls start commands

        return reach(self.policy, path, agent=self.agent, principal=self.principal)

    def boundaries(self, children: Children) -> Iterator[tuple[str, Access]]:
        """Yield the existing paths where that changes; see `access_changes`."""
        from .access_changes import access_changes

        return access_changes(self.policy, children, agent=self.agent, principal=self.principal)


def authorization_of(runtime: ToolRuntime) -> CallAuthorization | None:
    """Return what the policy says to the agent of a running tool; None outside of an agent."""
    return runtime.policy if isinstance(runtime.policy, CallAuthorization) else None
