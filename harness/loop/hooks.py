"""Hooks of a phase: how one is called, and what its results and errors become."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from .._internal.records import record
from ..errors import HarnessError, MiddlewareError
from ..limits.limits import LimitReached
from ..state.schema import State
from .cancellation import FAILURES, as_failure
from .middleware import AgentMiddleware, HookName, hooks_of, jumps_of, settle
from .requests import Command, HookResult, Runtime, Send

__all__ = ["Hook", "phase_hooks"]

_NOTHING = Command()


@record
class Hook:
    """One hook.

    Attributes:
        author: `<middleware>.<hook>`, for errors, breakpoints and questions.
        call: The function, sync or async.
        jumps: Where it may jump.
    """

    author: str
    call: Callable[[State, Runtime], HookResult | Awaitable[HookResult]]
    jumps: frozenset[str]

    async def __call__(self, state: State, runtime: Runtime) -> Command:
        """Return what it returned, as a command.

        Raises:
            MiddlewareError: It raised, or returned something else.
            HarnessError, LimitReached: As raised by it.
        """
        try:
            result = self.call(state, runtime)
            if result is None:
                return _NOTHING
            result = await settle(result)
        except (HarnessError, LimitReached):
            raise
        except FAILURES as raised:
            error = as_failure(raised)
            raise MiddlewareError(
                f"{self.author} raised {type(error).__name__}: {error}"
            ) from error
        return _NOTHING if result is None else self._command(result)

    def _command(self, result: Mapping[str, Any] | Command) -> Command:
        if isinstance(result, Command):
            return self._checked(result)
        if not isinstance(result, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MiddlewareError(
                f"{self.author} returned {type(result).__name__}; return None, a mapping of state "
                "keys, or a Command"
            )
        update = dict(result)
        return Command(jump_to=update.pop("jump_to", None), update=update)

    def _checked(self, command: Command) -> Command:
        """Return a command if it is made of what a command is made of."""
        update: object = command.update
        if isinstance(update, Mapping) and all(isinstance(one, Send) for one in command.send):  # pyright: ignore[reportUnnecessaryIsInstance]
            return command
        raise MiddlewareError(
            f"{self.author} returned {command!r}; `update` is a mapping of state keys, `send` a "
            "list of Send(tool, args)"
        )


def phase_hooks(middleware: Sequence[AgentMiddleware], name: HookName) -> tuple[Hook, ...]:
    """Return the hooks of a phase, in the order in which they run."""
    users = hooks_of(middleware, name)
    in_order = users if name.startswith("before") else users[::-1]
    return tuple(
        Hook(f"{one.name}.{name}", getattr(one, name), jumps_of(one, name)) for one in in_order
    )
