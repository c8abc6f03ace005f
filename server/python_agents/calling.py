"""Calls of other people's Python: bounded in time, away from the event loop and from stdout."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from contextvars import copy_context
from threading import Thread
from typing import Any, cast

import anyio

from ...harness.errors import HarnessError
from ...harness.plugins import ObjectError, place_of

__all__ = ["call", "place_of_function"]


async def call(
    function: Callable[..., Any], *args: object, what: str, seconds: float, file: str | None = None
) -> Any:
    """Call a function that is not ours, and wait for what it returns, awaitable or not.

    A plain function runs in a thread of its own, which nobody waits for any longer once the time
    is over. What it prints goes to stderr, because stdout is the protocol's.

    Args:
        function: The function.
        *args: Its arguments.
        what: What is called, for messages.
        seconds: How long it may take.
        file: Where it is written, if that is known.

    Raises:
        HarnessError: It raised, or took too long; the text says where.
    """
    with redirect_stdout(sys.stderr):
        try:
            with anyio.move_on_after(seconds) as scope:
                if inspect.iscoroutinefunction(function):
                    return await function(*args)
                returned = await _in_thread(lambda: function(*args))
                if inspect.isawaitable(returned):
                    return await returned
                return returned
        except ObjectError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            raise HarnessError(
                f"{what} raised {type(error).__name__}: {text.rstrip('.')}{place_of(error, file)}."
            ) from error
    assert scope.cancelled_caught
    raise HarnessError(
        f"{what} did not return within {seconds:g} s{place_of_function(function)}. Find out "
        "what it waits for; slow work belongs in a tool, or behind its first use."
    )


def place_of_function(function: object) -> str:
    """Return where a function is written, as ` (file:line)`; empty if that is not known."""
    code = getattr(inspect.unwrap(cast("Any", function)), "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a daemon thread: a worker that hangs would keep the process from ending."""
    done = anyio.Event()
    work = _Work(function, done, asyncio.get_running_loop())
    Thread(target=copy_context().run, args=(work.run,), name="python-agent", daemon=True).start()
    await done.wait()
    return work.result()


class _Work:
    """A function, and what became of it."""

    def __init__(
        self, function: Callable[[], Any], done: anyio.Event, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._done = done
        self._loop = loop
        self._returned: Any = None
        self._raised: BaseException | None = None

    def run(self) -> None:
        """Call it, and say so to the event loop if that still runs."""
        try:
            self._returned = self._function()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._raised = error
        with suppress(RuntimeError):  # the event loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(self._done.set)

    def result(self) -> Any:
        """Return what it returned, or raise what it raised."""
        if isinstance(self._raised, SystemExit):
            raise RuntimeError(f"SystemExit: {self._raised}") from self._raised
        if self._raised is not None:
            raise self._raised
        return self._returned
