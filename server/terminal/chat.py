"""Chat: a conversation with an agent at a terminal; each message is a run on one thread."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import quote

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from rich.text import Text

from ...harness._internal import count_of
from . import ago, clean, dollars, one_line, seconds_of
from .live import LiveView
from .places import Place
from .questions import Asker
from .session import Outcome, Session, interrupts
from .states import Exit, LinkError, NotStarted, RunState, Task
from .views import BOXES

__all__ = ["Chat", "history_in"]

HELP = {
    "/help": "this list",
    "/files [PATH]": "the agent's files, or what one contains",
    "/todos": "the todo list",
    "/cost": "what this conversation has used",
    "/rewind [NUMBER]": "go back to an earlier step, with the files that changed since",
    "/resume": "continue a run that was paused, failed, or asks something",
    "/thread [THREAD]": "show the thread, or continue in another one",
    "/new": "begin a new thread",
    "/quit": "end; the thread is kept",
}
STEPS_SHOWN = 15


def history_in(folder: Path | None) -> History:
    """Return the input history, in a file that only this user can read, or in memory."""
    if folder is None:
        return InMemoryHistory()
    file = folder / "chat-history"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


class Chat:
    """A conversation.

    Args:
        place: Where runs work.
        view: Where they are shown.
        asker: Decides on calls that need approval.
        history: Earlier input.
        first: The options of the first message: thread, files, limits.
        require_model: Raises NotStarted if the model of an agent cannot be used.

    Attributes:
        thread_id: The thread; empty before the first message.
    """

    def __init__(
        self,
        place: Place,
        view: LiveView,
        asker: Asker,
        history: History,
        first: Task,
        require_model: Callable[[str], object] = lambda agent: None,
    ) -> None:
        self._link = place.link
        self._view = view
        self._session = Session(place, view, asker, _advice, require_model, self._begun)
        self._require_model = require_model
        self._next = first
        self.thread_id = first.thread_id
        self._last: RunState | None = None
        self._used: dict[str, Mapping[str, Any]] = {}
        self._steps: list[str] = []
        self._prompt: PromptSession[str] = PromptSession(
            output=create_output(cast("TextIO", view.console.file)),
            history=history,
            completer=WordCompleter([one.split()[0] for one in HELP], sentence=True),
            complete_while_typing=False,
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation="  ",
            reserve_space_for_menu=4,
        )

    async def talk(self) -> None:
        """Read messages and commands until the person leaves."""
        try:
            self._require_model(self._next.agent)
        except NotStarted as error:
            self._view.note(str(error))
        self._say("Enter sends, Alt-Enter begins a new line, /help lists commands, Ctrl-D ends.")
        while True:
            try:
                text = (await self._prompt.prompt_async("> ", handle_sigint=False)).strip()
            except KeyboardInterrupt:
                self._say("Ctrl-D, or /quit, ends the conversation.")
                continue
            except EOFError:
                return
            if text in ("/quit", "/exit"):
                return
            if text:
                try:
                    await self._take(text)
                except LinkError as error:
                    self._view.close()
                    self._view.note(str(error))

    async def _take(self, text: str) -> None:
        if not text.startswith("/"):
            await self._turn(replace(self._next, goal=text, thread_id=self.thread_id))
            return
        name, _, rest = text.partition(" ")
        commands: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "/help": self._help,
            "/files": self._files,
            "/todos": self._todos,
            "/cost": self._cost,
            "/rewind": self._rewind,
            "/resume": self._resume,
            "/thread": self._thread,
            "/new": self._new,
        }
        command = commands.get(name)
        if command is None:
            self._view.note(f"There is no command {name}. /help lists them.")
        else:
            await command(rest.strip())

    # --- messages --------------------------------------------------------------------------

    async def _turn(self, task: Task | str) -> None:
        """Send the agent a message, or continue a run."""
        with interrupts() as heard:
            outcome: Outcome
            if isinstance(task, str):
                outcome = await self._session.resume(task, heard)
            else:
                outcome = await self._session.run(task, heard)
        self._last = outcome.state
        self._used[outcome.state.run_id] = outcome.state.usage

    def _begun(self, state: RunState) -> None:
        """Remember a run at once, so that `/resume` finds it if the server is lost."""
        self._last, self.thread_id = state, state.thread_id
        self._next = replace(self._next, files=())

    async def _resume(self, rest: str) -> None:
        run_id = rest or (self._last.run_id if self._last is not None else "")
        if not run_id:
            self._view.note("There is no run to continue yet.")
            return
        await self._turn(run_id)

    # --- reading ---------------------------------------------------------------------------

    async def _help(self, rest: str) -> None:
        wide = max(map(len, HELP))
        self._say("\n".join(f"{name:<{wide}}  {about}" for name, about in HELP.items()))

    async def _files(self, path: str) -> None:
        if not self._has_thread():
            return
        if path:
            uri = f"thread://{self.thread_id}/files/{path.lstrip('/')}"
            self._view.console.print(Text(clean(await self._link.read(uri))), soft_wrap=True)
            return
        listed = json.loads(await self._link.read(f"thread://{self.thread_id}/files"))
        lines = [str(one["path"]) + ("/" if one.get("is_dir") else "") for one in listed]
        self._say("\n".join(map(clean, lines)) or "There are no files.")

    async def _todos(self, rest: str) -> None:
        if not self._has_thread():
            return
        todos = json.loads(await self._link.read(f"thread://{self.thread_id}/todos"))
        lines = [f"{BOXES.get(one['status'], '○')} {clean(one['content'])}" for one in todos]
        self._say("\n".join(lines) or "The list is empty.")

    async def _cost(self, rest: str) -> None:
        calls = sum(int(one.get("model_calls") or 0) for one in self._used.values())
        cost = sum(float(one.get("cost") or 0) for one in self._used.values())
        tokens = sum(sum(dict(one.get("usage") or {}).values()) for one in self._used.values())
        unpriced = sum(int(one.get("unpriced_calls") or 0) for one in self._used.values())
        made = f"{count_of(len(self._used), 'run')}, {count_of(calls, 'model call')}"
        text = f"{made}, {tokens:,} tokens, {dollars(cost)}"
        self._say(text + (f"; {count_of(unpriced, 'call')} of unknown price" if unpriced else ""))

    async def _rewind(self, rest: str) -> None:
        if not self._has_thread():
            return
        if not rest:
            found = await self._link.call("threads", thread_id=self.thread_id)
            steps = found.get("checkpoints", ())[:STEPS_SHOWN]
            self._steps = [str(one["checkpoint_id"]) for one in steps]
            lines = [
                f"{number:>3}  {ago(seconds_of(one['time'])):>10}  "
                f"{one_line(': '.join(filter(None, (one['author'], one['summary']))), 90)}"
                for number, one in enumerate(steps, start=1)
            ]
            self._say("\n".join(lines) + "\n/rewind NUMBER goes back to that step.")
            return
        with suppress(ValueError, IndexError):
            rest = self._steps[int(rest) - 1] if int(rest) > 0 else rest
        if not await self._agreed(rest):
            return
        await self._link.call("rewind", thread_id=self.thread_id, checkpoint_id=rest)
        self._steps = []
        self._say("The thread is back at that step.")

    async def _agreed(self, checkpoint: str) -> bool:
        """Show what a rewind would change; return whether the person wants it."""
        uri = f"thread://{self.thread_id}/rewind/{quote(checkpoint, safe='')}"
        would = json.loads(await self._link.read(uri))
        if not would.get("allowed", True):
            self._view.note(str(would.get("problem")))
            return False
        files = [one for one in would.get("files", ()) if one.get("action") != "unchanged"]
        lines = [f"{one['action']} {clean(str(one['path']))}" for one in files]
        self._say("\n".join(lines) or "No file would change.")
        output = create_output(cast("TextIO", self._view.console.file))
        asking: PromptSession[str] = PromptSession(output=output, reserve_space_for_menu=0)
        with suppress(KeyboardInterrupt, EOFError):
            said = await asking.prompt_async("Go back to that step? [y/N] ", handle_sigint=False)
            return said.strip().lower() in ("y", "yes")
        return False

    async def _thread(self, rest: str) -> None:
        if rest:
            await self._link.call("threads", thread_id=rest)
            self.thread_id, self._last = rest, None
        if self._has_thread():
            self._say(f"thread {self.thread_id}")

    async def _new(self, rest: str) -> None:
        self.thread_id, self._last = "", None
        self._say("The next message begins a new thread.")

    def _has_thread(self) -> bool:
        if not self.thread_id:
            self._view.note("There is no thread yet: the first message begins one.")
        return bool(self.thread_id)

    def _say(self, text: str) -> None:
        self._view.console.print(Text(text, "dim"), soft_wrap=True)


def _advice(state: RunState, code: Exit, subagent: str) -> str:
    match state.status:
        case "done" | "cancelled":
            return ""
        case "needs_approval":
            return "/resume asks again."
        case _:
            return "/resume continues it; a message starts something else."


def _keys() -> KeyBindings:
    """Return key bindings: Enter sends, Alt+Enter starts a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    @keys.add("c-j")  # sent for Enter if it was pressed before we read single keys
    def _send(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _break(event: KeyPressEvent) -> None:  # pyright: ignore[reportUnusedFunction]
        event.current_buffer.insert_text("\n")

    return keys
