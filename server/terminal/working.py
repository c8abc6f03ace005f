"""Working: carries out the commands `run` and `chat`, and returns their exit codes."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...harness._internal.records import record
from ...harness.models.registry import DEFAULT_MODEL
from ..settings.setting_types import is_sampling
from ..settings.settings import Settings, SettingsError
from ..settings.sources import load_settings
from . import forget_output, one_line
from .states import CalledOff, Exit, NotStarted, Task
from .views import JsonView, LinesView, View

if TYPE_CHECKING:
    from .places import Place
    from .questions import Asker

__all__ = ["ApproveMode", "Choices", "converse", "opened", "run_goal", "split_approve", "view_for"]

ApproveMode: TypeAlias = Literal["ask", "never", "stop"]
MODES: tuple[ApproveMode, ...] = ("ask", "never", "stop")

TOKEN = "DEEP_AGENT_TOKEN"


@record
class Choices:
    """The options of a command line besides the goal.

    Attributes:
        flags: Settings, in the form that `serve` takes.
        config: The settings file.
        connect: The URL of a server; None for one in this process.
        token: A token for that server.
        approve: Who decides on approvals; None for the default.
        as_json: Show JSON.
        quiet: Show only the answer.
        again: The options for a command that continues, each after a space.
    """

    flags: Mapping[str, object]
    config: str | None = None
    connect: str | None = None
    token: str | None = None
    approve: ApproveMode | None = None
    as_json: bool = False
    quiet: bool = False
    again: str = ""


def split_approve(given: Sequence[str]) -> tuple[ApproveMode | None, tuple[str, ...]]:
    """Return the mode among the values of `--approve`, and the globs of tools.

    Raises:
        SettingsError: There is more than one mode.
    """
    modes: list[ApproveMode] = [one for one in MODES if one in given]
    if len(modes) > 1:
        raise SettingsError(f"--approve {modes[0]} and --approve {modes[1]}: choose one")
    return (modes[0] if modes else None), tuple(one for one in given if one not in MODES)


def view_for(choices: Choices) -> tuple[View, bool]:
    """Return the view for a run, and whether it can ask a person."""
    out, err = sys.stdout, sys.stderr
    if choices.as_json:
        return JsonView(out, err), False
    if not err.isatty():
        return (View if choices.quiet else LinesView)(out, err), False
    from .live import LiveView

    return LiveView(out, err, quiet=choices.quiet), sys.stdin.isatty()


def asker_for(choices: Choices, view: View, *, can_ask: bool) -> Asker:
    """Return the asker that decides on approvals.

    Raises:
        SettingsError: A person has to be asked, and there is none.
    """
    from .questions import Ask, Reject, Stop

    mode = choices.approve or ("ask" if can_ask else "stop")
    if mode == "ask":
        from .live import LiveView

        if not can_ask or not isinstance(view, LiveView):
            raise SettingsError(
                "--approve ask needs a terminal to ask at, and there is none, or --json is set. "
                "Use --approve stop, which ends with exit code 3 and leaves the question open, or "
                "--approve never, which rejects the call"
            )
        return Ask(view.console)
    return Reject() if mode == "never" else Stop()


def greeted(choices: Choices, view: View) -> Settings | None:
    """Print the first line; return the settings of a server in this process.

    Nothing slow is imported before that line. For a server elsewhere, `opened` prints it, once the
    server answers.

    Raises:
        SettingsError: They are refused, or are those of several servers.
    """
    return local_settings(choices, view) if choices.connect is None else None


@asynccontextmanager
async def opened(choices: Choices, settings: Settings | None, view: View) -> AsyncGenerator[Place]:
    """Open the place where runs work.

    Raises:
        SettingsError, HarnessError, StateDirError, NotStarted: It cannot be used.
    """
    gc.disable()  # keep the objects that imports make
    from .places import local_place, remote_place

    gc.freeze()
    gc.enable()
    if settings is not None:
        async with local_place(settings) as place:
            yield place
    else:
        token = choices.token or os.environ.get(TOKEN)
        async with remote_place(choices.connect or "", token, view.lost) as place:
            view.hello(f"at {one_line(choices.connect or '', 200)}")
            yield place


def local_settings(choices: Choices, view: View) -> Settings:
    """Read the settings, and print the first line about them.

    Raises:
        SettingsError: They are refused, or are those of several servers.
    """
    with redirect_stdout(sys.stderr):  # in case modules that the agent file names print something
        settings = load_settings(choices.flags, dict(os.environ), config=choices.config)
    for secret in ("JOURNAL_KEY", "JOURNAL", "STORE"):
        os.environ.pop(f"DEEP_AGENT_{secret}", None)
    if settings.replicas:
        raise SettingsError(
            "setting 'replicas' lets several servers share the journal; give the goal to one of "
            "them with --connect URL"
        )
    logging.getLogger().setLevel(settings.log_level.upper())
    if is_sampling(settings.model or ""):
        raise SettingsError(
            "setting 'model' is 'sampling', the model of an MCP client, and a terminal has none; "
            "name another with --model, such as anthropic:<id>"
        )
    script = (settings.model or "").removeprefix("scripted:")
    if script != settings.model and script and not Path(script).is_file():
        raise SettingsError(f"setting 'model' = {settings.model}: there is no file {script}")
    where = f"in {settings.root}" if settings.root is not None else "with files in the thread"
    view.hello(f"{settings.model or DEFAULT_MODEL}, {where}")
    return settings


def requirement(settings: Settings | None) -> Callable[[str], object]:
    """Return a function that raises NotStarted if this process cannot use an agent's model."""

    def require(agent: str) -> None:
        from .credentials import require_model

        if settings is not None:  # a remote server has its own
            require_model(settings, agent)

    return require


def attached(files: Sequence[Path]) -> list[dict[str, str]]:
    """Return files in the form that `task` takes.

    Raises:
        NotStarted: One cannot be read.
    """
    from base64 import b64encode

    try:
        return [{"name": one.name, "data": b64encode(one.read_bytes()).decode()} for one in files]
    except OSError as error:
        raise NotStarted(f"--attach: {error}. Nothing was started.") from None


def run_goal(
    choices: Choices, task: Task | None, resume: str | None, attach: Sequence[Path]
) -> int:
    """Work on a goal, or continue a run; return the exit code.

    Raises:
        SettingsError, HarnessError, StateDirError, NotStarted: Nothing was started.
        LinkError: The server was lost.
    """
    view, can_ask = view_for(choices)
    asker = asker_for(choices, view, can_ask=can_ask)
    settings = greeted(choices, view)
    require = requirement(settings)
    if task is not None:
        require(task.agent)  # before slow imports, and before a state directory is created
        task = replace(task, files=attached(attach))

    is_open = False

    async def main() -> int:
        from .session import Session, advice, interrupts

        nonlocal is_open
        with ExitStack() as until_closed:
            async with opened(choices, settings, view) as place:  # Ctrl-C ends it until then
                heard = until_closed.enter_context(interrupts())
                is_open = True
                advise = advice(place.link.is_local, choices.again)
                session = Session(place, view, asker, advise, require)
                if task is None:
                    return (await session.resume(resume or "", heard)).code
                return (await session.run(task, heard)).code

    try:
        return working(main, view)
    except KeyboardInterrupt:
        if is_open:  # it came after the run, as this process was ending
            raise
        raise CalledOff from None


def converse(choices: Choices, task: Task, attach: Sequence[Path]) -> int:
    """Talk with an agent until the person leaves; return the exit code.

    Raises:
        SettingsError, HarnessError, StateDirError, NotStarted: Nothing was started.
        LinkError: The server was lost.
    """
    view, can_ask = view_for(choices)
    from .live import LiveView

    if not can_ask or not isinstance(view, LiveView):
        raise SettingsError(
            "chat needs a terminal to read from and to write to. In scripts, use `deep-agent-mcp "
            "run GOAL`"
        )
    asker, folder = asker_for(choices, view, can_ask=can_ask), _history(choices)
    settings = greeted(choices, view)
    require = requirement(settings)
    first = replace(task, files=attached(attach))

    async def main() -> int:
        async with opened(choices, settings, view) as place:
            from .chat import Chat, history_in

            chat = Chat(place, view, asker, history_in(folder), first, require)
            await chat.talk()
        if chat.thread_id:
            view.note(f"Go on: deep-agent-mcp chat --thread {chat.thread_id}{choices.again}")
        return Exit.DONE

    return working(main, view)


def _history(choices: Choices) -> Path | None:
    """Return the file for the input history; None beside an encrypted journal."""
    flags: Mapping[str, object] = {} if choices.connect is not None else choices.flags
    settings = load_settings(flags, dict(os.environ), config=choices.config, warn=lambda _: None)
    return None if settings.journal_key is not None else settings.state_dir


def working(main: Callable[[], Any], view: View) -> int:
    """Run an asynchronous command, and return its exit code.

    If the reader of the output has gone, it ends silently.
    """
    import anyio

    from ...harness._internal.concurrency import leaves

    problems: list[BaseException] = []
    code = 0
    logging.basicConfig(handlers=[view.log_handler()], format="%(message)s", force=True)
    try:
        try:
            code = anyio.run(main, backend="asyncio")
        except* BrokenPipeError:
            forget_output()
            code = Exit.NO_READER
        except* Exception as group:  # noqa: BLE001 - raised below, without the groups around it
            problems += leaves(group)
    finally:
        view.close()
    if problems:
        raise problems[0]
    return int(code)
