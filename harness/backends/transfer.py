"""File transfer: puts files into a thread before a run, and gets them out afterwards.

It works outside of a run, with whatever backend the agent's file tools have. One file that fails
does not keep the others back: each path has its own result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from .._internal.records import changed, record
from ..errors import StaleThread, ToolError, UnknownThread
from ..policy import CallAuthorization
from ..redaction.rules import PIIDetectionError
from ..tools.runtime import JournalWriter
from ..tools.tool import ToolRuntime
from .base import Backend, FileError, FileErrorCode, Files
from .file_tools.file_guards import canonicaliser
from .file_tools.visible_files import authorized_files

if TYPE_CHECKING:
    from ..loop.agent import Agent
    from ..state.channels import State

__all__ = ["Transfer", "download_files", "upload_files"]

_MOST_TRIES = 20


@record
class Transfer:
    """Result of `upload_files` or `download_files` for one path.

    Attributes:
        path: The canonical path; as it was given when it is not usable.
        data: The file's bytes, after a download.
        created: Whether the file was not there before, after an upload.
        error: Why it failed, or None: a code of `FileError`, or `failed` when the place where
            files live is at fault.
        message: The same for people.
    """

    path: str
    data: bytes | None = None
    created: bool = False
    error: FileErrorCode | str | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was transferred."""
        return self.error is None


async def upload_files(
    agent: Agent,
    thread_id: str,
    files: Mapping[str, bytes | str],
    *,
    context: Any = None,
    principal: str = "",
    backend: Backend | None = None,
    policy: CallAuthorization | None = None,
    gives_up: bool = False,
) -> list[Transfer]:
    """Write files where the agent's file tools find them. The thread is created if it is new.

    Files in the thread's state are written in one step, which is a checkpoint. Files on disk can
    be restored like those an agent wrote. Without `policy`, no rules apply: the caller is trusted.

    Args:
        agent: The agent.
        thread_id: The thread.
        files: Contents by path; text becomes UTF-8.
        context: As for a run; for backends that look at it, such as a `StoreBackend`.
        principal: As `RunOptions.principal`.
        backend: Another backend than that of the agent's file tools.
        policy: Refuses what its rules do not allow, such as a path that leads through a link.
        gives_up: Give up a run that was stopped before its end, as a new message does, if the
            thread's state has to change.

    Returns:
        A result for each path, in their order.

    Raises:
        ValueError: The agent has no files.
        TypeError: A content is neither bytes nor text; nothing was written.
        ThreadBusy: A run works on the thread, or waits to be resumed and is not given up, and its
            state would have to change. Nothing in the state was written; files that live elsewhere
            were.
        StaleThread: Others changed the thread at the same time, again and again; as above.
    """
    _check_contents(files)
    backend = backend or _backend(agent)
    created: dict[str, bool] = {}  # by path, at the first try: a second one finds files on disk
    blocked: dict[str, Transfer] = {}
    for tries in range(1, _MOST_TRIES + 1):
        state = await _state(agent, thread_id)

        def opened(state: State = state or {}) -> Files:
            runtime = _runtime(agent, thread_id, state, context, principal, policy)
            return authorized_files(backend.open(runtime), backend, runtime)

        every = opened()
        done: set[str] = set()
        results = [
            blocked.get(path) or await _upload(every, path, data, done, backend)
            for path, data in files.items()
        ]
        results = [
            replace(one, created=created.setdefault(one.path, one.created)) if one.ok else one
            for one in results
        ]
        update = every.update()
        if not update and (state is not None or not done):
            return results
        try:
            await agent.add_input(thread_id, update, gives_up=gives_up)
        except StaleThread:
            if tries == _MOST_TRIES:
                raise
        except PIIDetectionError:
            found = await _blocked(agent, thread_id, files, opened, backend)
            if not found.keys() - blocked.keys():
                raise
            blocked |= found
        else:
            return results
    raise AssertionError("the last try returns or raises")


def _check_contents(files: Mapping[str, bytes | str]) -> None:
    for path, data in files.items():
        if not isinstance(data, bytes | str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{path}: a file's content is bytes or text; got {type(data).__name__}. Nothing "
                "was written."
            )


async def _blocked(
    agent: Agent,
    thread_id: str,
    files: Mapping[str, bytes | str],
    opened: Callable[[], Files],
    backend: Backend,
) -> dict[str, Transfer]:
    """Return the files of which a rule blocks a text, each asked for by itself."""
    found: dict[str, Transfer] = {}
    for path, data in files.items():
        alone = opened()
        await _upload(alone, path, data, set(), backend)
        try:
            await agent.check_input(thread_id, alone.update())
        except PIIDetectionError as error:
            why = f"{path}: {error} Nothing was written."
            found[path] = Transfer(path, error="failed", message=why)
    return found


async def download_files(
    agent: Agent,
    thread_id: str,
    paths: Iterable[str],
    *,
    context: Any = None,
    principal: str = "",
    backend: Backend | None = None,
) -> list[Transfer]:
    """Read files as the thread's newest checkpoint, or the place where they live, has them.

    Args:
        agent: The agent.
        thread_id: The thread.
        paths: Which files.
        context: As for `upload_files`.
        principal: As `RunOptions.principal`.
        backend: Another backend than that of the agent's file tools.

    Returns:
        A result for each path, in their order.

    Raises:
        ValueError: The agent has no files.
        UnknownThread: There is no such thread.
    """
    backend = backend or _backend(agent)
    state = (await agent.get_state(thread_id)).values
    opened = backend.open(_runtime(agent, thread_id, state, context, principal))
    return [await _download(opened, path, backend) for path in paths]


async def _upload(
    files: Files, path: str, data: bytes | str, done: set[str], backend: Backend
) -> Transfer:
    try:
        canonical = canonicaliser(backend)(path)
        if canonical in done:
            twice = f"{canonical} is given twice; the first was written."
            raise FileError("invalid_path", path, twice)
        content = data.encode() if isinstance(data, str) else data
        created = await files.write(canonical, content)
    except UnicodeEncodeError:
        why = f"{path}: the text has half of a surrogate pair. Nothing was written."
        return Transfer(path, error="failed", message=why)
    except ToolError as error:
        return _failed(path, error)
    done.add(canonical)
    return Transfer(canonical, created=created)


async def _download(files: Files, path: str, backend: Backend) -> Transfer:
    try:
        canonical = canonicaliser(backend)(path)
        return Transfer(canonical, await files.read(canonical))
    except ToolError as error:
        return _failed(path, error)


def _failed(path: str, error: ToolError) -> Transfer:
    code = error.code if isinstance(error, FileError) else "failed"
    return Transfer(path, error=code, message=str(error))


def _backend(agent: Agent) -> Backend:
    for one in agent.definition.middleware:
        backend = getattr(one, "backend", None)
        if backend is not None and hasattr(backend, "open"):
            return cast(Backend, backend)
    raise ValueError(
        f"agent {agent.name!r} has no files: give it a FilesystemMiddleware, or name a backend"
    )


async def _state(agent: Agent, thread_id: str) -> State | None:
    try:
        return (await agent.get_state(thread_id)).values
    except UnknownThread:
        return None


def _runtime(
    agent: Agent,
    thread_id: str,
    state: State,
    context: Any,
    principal: str,
    policy: CallAuthorization | None = None,
) -> ToolRuntime:
    from ..loop.run.redacted_changes import journal_between_runs  # few agents redact anything

    journal = journal_between_runs(agent.checkpointer, agent.definition.states.rules)
    return changed(
        runtime_between_calls(thread_id, state, journal),
        agent_path=(agent.name,),
        context=context,
        store=agent.definition.store,
        principal=principal,
        policy=policy,
    )


def runtime_between_calls(thread_id: str, state: State, journal: JournalWriter) -> ToolRuntime:
    """Return the runtime with which a backend opens a thread's files while no call is running.

    It cannot ask questions or delegate.
    """
    return ToolRuntime(
        state=state,
        tool_call_id="",
        thread_id=thread_id,
        run_id="",
        ns="",
        agent_path=(),
        context=None,
        journal=journal,
        stream_writer=lambda _: None,
        interrupt=_no_call,
        run_subagent=_no_call,
    )


def _no_call(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("no call is running, so nothing can be asked or delegated")
