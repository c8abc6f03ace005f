"""Composite policy: several policies as one, where the strictest verdict applies; and consents.

A consent is a person's answer given in advance. It replaces only that answer: a call that the
policy denies stays denied, and one that it wants decided each time is asked about.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict, Unpack

from pydantic import JsonValue

from .access_request import Verdict, strictest

if TYPE_CHECKING:
    from ..messages.message import ToolCall
    from ..tools.tool import Tool

__all__ = [
    "Arguments",
    "CallPlace",
    "CallPolicy",
    "Caller",
    "CompositePolicy",
    "NarrowedPolicy",
    "ancestor_policies",
    "consenting",
    "consents_of_run",
    "narrowing",
]

Arguments: TypeAlias = Mapping[str, JsonValue]


class Caller(TypedDict, total=False):
    """Caller of a tool: agent and principal.

    Attributes:
        agent: Names of the agents from the main one to the caller.
        principal: The user on whose behalf it works.
    """

    agent: Sequence[str]
    principal: str


class CallPolicy(Protocol):
    """A policy that an agent checks before each call."""

    @property
    def reads_paths(self) -> bool:
        """Whether a rule is about paths."""
        ...

    def judge(
        self,
        tool: str,
        args: Mapping[str, JsonValue],
        definition: Tool | None = None,
        *,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> Verdict:
        """Return the verdict on a call; see `Policy.judge`."""
        ...

    def hides(
        self,
        path: str,
        definition: Tool | None = None,
        *,
        contents: bool = False,
        agent: Sequence[str] = (),
        principal: str = "",
    ) -> bool:
        """Whether listings leave out a path; see `Policy.hides`."""
        ...

    def narrowed(self, other: CallPolicy) -> CallPolicy:
        """Return the policy whose verdict is the stricter one of this and another."""
        ...


class CompositePolicy(ABC):
    """A policy made of others; the strictest verdict applies."""

    __slots__ = ()

    @abstractmethod
    def parts(self) -> Sequence[CallPolicy]:
        """Return the current policies."""

    @property
    def reads_paths(self) -> bool:
        """Whether a rule is about paths."""
        return any(one.reads_paths for one in self.parts())

    def judge(
        self, tool: str, args: Arguments, definition: Tool | None = None, **caller: Unpack[Caller]
    ) -> Verdict:
        """Return the strictest verdict; see `Policy.judge`."""
        verdicts = [one.judge(tool, args, definition, **caller) for one in self.parts()]
        return verdicts[0] if len(verdicts) == 1 else strictest(verdicts)

    def hides(
        self,
        path: str,
        definition: Tool | None = None,
        *,
        contents: bool = False,
        **caller: Unpack[Caller],
    ) -> bool:
        """Whether one of the policies hides a path; see `Policy.hides`."""
        return any(one.hides(path, definition, contents=contents, **caller) for one in self.parts())

    def narrowed(self, other: CallPolicy) -> CallPolicy:
        """Return the policy whose verdict is the stricter one of this and another."""
        return NarrowedPolicy((self, other))


@dataclass(frozen=True, slots=True)
class NarrowedPolicy(CompositePolicy):
    """Several policies at once; the strictest verdict applies.

    Attributes:
        policies: The policies.
    """

    policies: Sequence[CallPolicy]

    def parts(self) -> Sequence[CallPolicy]:
        """Return the policies."""
        return self.policies


_ABOVE: ContextVar[tuple[CallPolicy, ...]] = ContextVar("ancestor_policies", default=())


def ancestor_policies() -> tuple[CallPolicy, ...]:
    """Return the policies of the agents above the running one."""
    return _ABOVE.get()


@contextmanager
def narrowing(policy: CallPolicy) -> Generator[None]:
    """Apply a policy to the agents that run inside the block, in addition to their own."""
    above = _ABOVE.get()
    token = _ABOVE.set(above if policy in above else (*above, policy))
    try:
        yield
    finally:
        _ABOVE.reset(token)


class CallPlace(Protocol):
    """The place of a call."""

    @property
    def thread_id(self) -> str:
        """The thread."""
        ...

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def agent_path(self) -> Sequence[str]:
        """Names of agents and calls from the root to the call."""
        ...


class Consents(Protocol):
    """A person's decisions for future calls."""

    async def cover(self, call: ToolCall, tool: Tool, place: CallPlace) -> bool:
        """Whether a call that needs approval was approved in advance."""
        ...


_OF_RUN: ContextVar[Consents | None] = ContextVar("consents", default=None)


def consents_of_run() -> Consents | None:
    """Return the consents for the current run; None if there are none."""
    return _OF_RUN.get()


@contextmanager
def consenting(consents: Consents | None) -> Generator[None]:
    """Apply consents to the runs that are executed inside the block."""
    token = _OF_RUN.set(consents)
    try:
        yield
    finally:
        _OF_RUN.reset(token)
