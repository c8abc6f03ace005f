"""Loading and reloading of Python agents for `serve module:attribute`.

Calls of user code have a time limit and do not block the event loop. A function that creates an
agent gets a `ServeContext`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from contextvars import copy_context
from hashlib import blake2b
from importlib.util import cache_from_source
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio

from ...harness._internal.records import record
from ...harness.agent import Agent
from ...harness.errors import HarnessError
from ...harness.plugins import ObjectError, load_object, place_of

if TYPE_CHECKING:
    from ...harness.backends.base import Backend
    from ...harness.checkpoint.base import Checkpointer
    from ...harness.loop.hooks.middleware import AgentMiddleware
    from ...harness.memory import MemoryFiles
    from ...harness.middleware.commands.execute import ExecuteMiddleware
    from ...harness.models.base import ChatModel
    from ...harness.policy import CallPolicy
    from ...harness.profiles import ProfileRegistry
    from ...harness.skills import SkillRegistry
    from ...harness.store.base import Store
    from ...harness.subagents.registry import SubAgentRegistry
    from ..settings.settings import Settings

__all__ = [
    "AgentFactory",
    "ModuleFiles",
    "Named",
    "ServeContext",
    "call",
    "checked",
    "place_of_function",
]


async def call(
    function: Callable[..., Any],
    *args: object,
    what: str,
    seconds: float,
    file: str | None = None,
    owns_stdout: bool = False,
) -> Any:
    """Call a user's function with a time limit; return its result, awaited if needed.

    A sync function runs in its own thread. After the time limit nobody waits for the thread.

    Args:
        function: The function.
        *args: Its arguments.
        what: Description of the call, for messages.
        seconds: Maximum duration.
        file: File of the function, if known.
        owns_stdout: Whether stdout belongs to the protocol. Then output goes to stderr, and only
            one call runs at a time.

    Raises:
        HarnessError: The function raised or took too long; the text says where.
    """
    with redirect_stdout(sys.stderr) if owns_stdout else nullcontext():
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
        f"{what} did not return within {seconds:g} s{place_of_function(function)}. Check "
        "what it waits for. Do slow work in a tool, or when it is first needed."
    )


def place_of_function(function: object) -> str:
    """Return the location of a function as ` (file:line)`; empty if it is unknown."""
    code = getattr(inspect.unwrap(cast("Any", function)), "__code__", None)
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a daemon thread, so that a hanging call cannot stop the process's exit."""
    done = anyio.Event()
    work = _Work(function, done, asyncio.get_running_loop())
    Thread(target=copy_context().run, args=(work.run,), name="python-agent", daemon=True).start()
    await done.wait()
    return work.result()


class _Work:
    """A function call in a thread, and its result."""

    def __init__(
        self, function: Callable[[], Any], done: anyio.Event, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._done = done
        self._loop = loop
        self._returned: Any = None
        self._raised: BaseException | None = None

    def run(self) -> None:
        """Call the function, then notify the event loop if it is still running."""
        try:
            self._returned = self._function()
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            self._raised = error
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._done.set)

    def result(self) -> Any:
        """Return the function's result, or raise its exception."""
        if isinstance(self._raised, SystemExit):
            raise RuntimeError(f"SystemExit: {self._raised}") from self._raised
        if self._raised is not None:
            raise self._raised
        return self._returned


AgentFactory: TypeAlias = Callable[..., Any]
"""Function that returns an `Agent` or an awaitable of one; it may take a `ServeContext`."""

IMPORT_SECONDS = 60.0
"""Maximum time for the import of a module."""

_INSTALLED = ("site-packages", "dist-packages")


class Named:
    """An agent, or a function that creates one, by name.

    Args:
        name: `module:attribute`.
        owns_process: Whether output of the module must not go to stdout.
    """

    def __init__(self, name: str, owns_process: bool = False) -> None:
        self.name = name
        self._owns_process = owns_process
        self._before = frozenset(sys.modules)

    async def load(self) -> Agent | AgentFactory:
        """Import the module and return the named object.

        Raises:
            HarnessError: It does not exist, the import takes too long, or it has the wrong type.
        """
        found = await call(
            load_object,
            self.name,
            "agent",
            what=f"importing {self.name}",
            seconds=IMPORT_SECONDS,
            owns_stdout=self._owns_process,
        )
        return checked(found, self.name)

    async def load_again(self) -> Agent | AgentFactory:
        """Import the modules again; if that fails, the old modules stay.

        Raises:
            HarnessError: As for `load`; the old modules stay in use.
        """
        old = self.modules()
        for name, module in old.items():
            del sys.modules[name]
            # Python would reuse the compiled file if the source was saved within the same second
            # and has the same size.
            with suppress(OSError, NotImplementedError):
                os.unlink(cache_from_source(str(module.__file__)))
        importlib.invalidate_caches()
        try:
            return await self.load()
        except BaseException:
            for name in self.modules():
                del sys.modules[name]
            sys.modules.update(old)
            raise

    def modules(self) -> Mapping[str, ModuleType]:
        """Return the modules for a reload: the user's own, not those of installed packages."""
        module_name = self.name.partition(":")[0]
        top = module_name.partition(".")[0]
        file = getattr(sys.modules.get(module_name), "__file__", None)
        if file is None:
            return {}
        levels = module_name.count(".") + (Path(file).name == "__init__.py")
        folder = Path(file).parents[levels]
        found: dict[str, ModuleType] = {}
        for name, module in [*sys.modules.items()]:
            own = name.partition(".")[0] == top
            if not own and name in self._before:
                continue
            path = Path(getattr(module, "__file__", None) or "")
            if path.suffix != ".py":
                continue
            installed = any(part in _INSTALLED for part in path.parts)
            if own or (path.is_relative_to(folder) and not installed):
                found[name] = module
        return found


def checked(found: object, name: str) -> Agent | AgentFactory:
    """Return the object if it is an agent or a function.

    Raises:
        HarnessError: It is neither.
    """
    if isinstance(found, Agent):
        return found
    if isinstance(found, type) or not callable(found):
        what = "a class" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise HarnessError(
            f"agent {name} is {what}{place_of_function(found)}. Name an Agent, as returned by "
            "create_agent or create_deep_agent, or a function that returns one."
        )
    return found


@record
class _Snapshot:
    digests: Mapping[str, str]
    errors: Mapping[str, str]


class ModuleFiles:
    """The files of an agent's modules, for a file watcher.

    Attributes:
        errors: Why the last saved version of a file is not in use, by path.
    """

    def __init__(self, modules: Callable[[], Mapping[str, ModuleType]]) -> None:
        self._modules = modules
        self._kept: frozenset[Path] = frozenset()
        self._digests: Mapping[str, str] = {}
        self.errors: Mapping[str, str] = {}
        self.reload()

    @property
    def roots(self) -> Sequence[Path]:
        """The files. Deleted files stay in the list, so that their return is noticed."""
        now = {Path(str(one.__file__)) for one in self._modules().values()}
        self._kept |= now
        return sorted(self._kept)

    @property
    def snapshot(self) -> _Snapshot:
        """Hashes and errors at the last check."""
        return _Snapshot(self._digests, self.errors)

    def reload(self) -> bool:
        """Check the files again; return whether one has changed. Blocks."""
        before, self._digests = self._digests, {str(one): _digest(one) for one in self.roots}
        return before != self._digests

    def failed(self, paths: Collection[str], error: HarnessError) -> None:
        """Record that the saved files cannot be used."""
        files = sorted(one for one in paths if one in self._digests) or [*self._digests][:1]
        why = f"{str(error).rstrip('.')}. New runs use the agent as it was before."
        self.errors = {files[0] if files else "": why}

    def worked(self) -> None:
        """Record that the saved files are in use."""
        self.errors = {}


def _digest(path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        return f"not readable: {error.errno}"


@record
class ServeContext:
    """Context of `serve`: parts of the server from which a function builds its agent.

    Rules, approvals and limits of the operator apply to the agent in any case.

    Attributes:
        journal: The server's journal. An agent without a checkpointer uses it by default.
        store: The long-term store of `--store`, or one in the state directory, shared by all
            principals: begin namespaces with the principal to keep them separate.
        settings: The operator's settings, with the principal's own paths.
        principal: The agent's user if each principal has a root; otherwise empty, for all users.
        backend: The files of `--root`; without it, the thread's files.
        skills: The bundled skills, and those of `--skills`.
        subagents: The subagents of `--agents`, and the general-purpose one.
        memory: The files of `--memory`.
        policy: The operator's rules, including those that protect the server's own files.
        model: The model of `--model`, or the default.
        profiles: The profiles of models, those of `--profiles` included, for `profile=`.
        commands: Runner of commands with `--execute`, for `execution_policy=`; otherwise None.
        middleware: Middleware that the server adds, such as telemetry. Pass it on to cover
            subagents too.
    """

    journal: Checkpointer
    store: Store
    settings: Settings
    principal: str
    backend: Backend
    skills: SkillRegistry
    subagents: SubAgentRegistry
    memory: MemoryFiles
    policy: CallPolicy
    model: ChatModel
    profiles: ProfileRegistry
    commands: ExecuteMiddleware | None
    middleware: tuple[AgentMiddleware, ...]
