"""Questions of a run, shown in full and decided by the person at the terminal.

A change of a file is shown as a diff against the current file, a command with the place it runs in,
any other call with its arguments. A call that cannot be shown in full cannot be approved here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from ...harness._internal.records import record
from . import clean
from .states import LinkError, Question

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from .link import Link

__all__ = ["Ask", "Asker", "Interrupted", "Reject", "Stop", "WholeQuestion", "shown", "whole"]

NOBODY = "nobody was asked (--approve never). Find another way, or report what is missing"

_STYLES = {"+": "green", "-": "red", "@": "cyan"}

_COMMAND = ("command", "cwd")
_IN_PREVIEW: Mapping[str, Collection[str]] = {
    "write_file": ("path", "content"),
    "edit_file": ("path", "old_string", "new_string"),
    "delete_file": ("path",),
    "execute": _COMMAND,
    "shell": _COMMAND,
}
"""The arguments of a tool that the preview of its call shows; all others are shown beside it."""


class Interrupted(Exception):
    """The person pressed Ctrl-C or Ctrl-D instead of deciding."""


@record
class WholeQuestion:
    """A question with everything a person needs to decide it.

    Attributes:
        question: The question, with all of the call's arguments if they are available.
        preview: What the call would change, computed by the server; None if unknown.
        why: The agent's words before the call.
        rule: The rule that requires approval.
        digest: A digest of what was shown, for the server.
    """

    question: Question
    preview: Mapping[str, Any] | None = None
    why: str = ""
    rule: str = ""
    digest: str = ""

    @property
    def can_approve(self) -> bool:
        """Whether the call can be shown in full."""
        return self.question.is_whole

    def proof(self) -> dict[str, JsonValue]:
        """Return the part of an approval which proves that the whole call was shown."""
        return {"digest": self.digest} if self.digest else {}


async def whole(link: Link, run_id: str, question: Question) -> WholeQuestion:
    """Read a question in full; it stays incomplete if the server only has its beginning."""
    if not question.tool:
        return WholeQuestion(question)
    try:
        facts: dict[str, Any] = json.loads(
            await link.read(f"run://{run_id}/questions/{question.id}")
        )
    except (LinkError, ValueError):
        return WholeQuestion(question)
    args = facts.get("args_json")
    if isinstance(args, str):
        question = replace(question, args=args, is_whole=True)
    return WholeQuestion(
        question,
        cast("Mapping[str, Any] | None", facts.get("preview")),
        str(facts.get("why") or ""),
        str(facts.get("rule") or ""),
        str(facts.get("digest") or ""),
    )


def shown(one: WholeQuestion) -> Text:
    """Return a question in full, for a terminal."""
    question, text = one.question, Text()
    if one.why:
        text.append(f"{clean(one.why)}\n", "dim")
    said = question.text.removesuffix(f" (Tool execution requires approval: {question.tool})")
    text.append(f"{clean(said)}\n", "bold yellow")
    text.append(f"asked by {clean(question.asked_by)}\n", "dim")
    preview = one.preview or {}
    if question.tool and preview.get("kind") == "file" and isinstance(preview.get("diff"), str):
        _file(text, question, preview)
    elif question.tool and preview.get("kind") == "command":
        _command(text, question, preview)
    elif question.tool:
        text.append(f"{question.tool}\n", "bold")
        _arguments(text, question.args)
    if not one.can_approve:
        text.append("The arguments are longer than this server shows.\n", "red")
    return text


def _file(text: Text, question: Question, preview: Mapping[str, Any]) -> None:
    new = preview.get("exists") is False
    counts = f"+{preview.get('added', '?')} -{preview.get('removed', '?')}"
    head = f"{question.tool} {clean(str(preview.get('path')))}"
    text.append(f"{head}  {counts}{'  (a new file)' if new else ''}\n", "bold")
    if preview.get("problem"):
        text.append(f"It would fail now: {clean(str(preview['problem']))}\n", "red")
    if preview.get("diff_cut"):
        text.append("The diff is too long to show. These are the arguments:\n", "red")
    unclear = preview.get("binary") or preview.get("problem") or preview.get("diff_cut")
    if unclear or not preview["diff"]:
        _arguments(text, question.args)
        return
    # Not `splitlines`: it also splits inside a line of the file, and drops what it splits at.
    for line in clean(str(preview["diff"])).removesuffix("\n").split("\n"):
        text.append(f"{line}\n", _STYLES.get(line[:1], ""))
    _arguments(text, question.args, _IN_PREVIEW.get(question.tool, ()))


def _command(text: Text, question: Question, preview: Mapping[str, Any]) -> None:
    text.append(f"{question.tool}\n", "bold")
    text.append(f"  $ {clean(str(preview.get('command')))}\n")
    text.append(f"  in {clean(str(preview.get('cwd')))}\n", "dim")
    sandbox = preview.get("sandbox")
    if isinstance(sandbox, dict):
        text.append(f"  {clean(str(cast('dict[str, Any]', sandbox).get('about')))}\n", "dim")
    _arguments(text, question.args, _IN_PREVIEW.get(question.tool, ()))


def _arguments(text: Text, args: str, besides: Collection[str] = ()) -> None:
    """Add a call's arguments, besides some: texts with their line breaks, other values as JSON."""
    try:
        given: object = json.loads(args)
    except ValueError:
        text.append(f"  {clean(args)}\n")
        return
    if not isinstance(given, dict):
        text.append(f"  {clean(args)}\n")
        return
    for name, value in cast("dict[str, object]", given).items():
        if name in besides:
            continue
        text.append(f"  {clean(name)}: ", "cyan")
        said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines = clean(said).split("\n")
        if len(lines) > 1:
            text.append("\n")
            lines = [f"    {line}" for line in lines]
        text.append("\n".join(lines) + "\n")


class Asker(Protocol):
    """Decides the questions of a run.

    Attributes:
        is_person: Whether it may decide otherwise when a question is asked again.
    """

    is_person: bool

    async def answers(self, link: Link, run_id: str, questions: Sequence[Question]) -> Answers:
        """Return answers by question; none if the run must wait.

        Raises:
            Interrupted: The person wants to stop here.
        """
        ...


Answers = dict[str, JsonValue]


class Stop:
    """Decides nothing, so the run waits."""

    is_person = False

    async def answers(self, link: Link, run_id: str, questions: Sequence[Question]) -> Answers:
        """See `Asker`."""
        return {}


class Reject:
    """Rejects every call that needs approval; other questions stay open."""

    is_person = False

    async def answers(self, link: Link, run_id: str, questions: Sequence[Question]) -> Answers:
        """See `Asker`."""
        reject: JsonValue = {"decision": "reject", "message": NOBODY, "unasked": True}
        return {one.id: reject for one in questions if "reject" in one.decisions}


_CHOICES = {
    "approve": ("a", "pprove"),
    "reject": ("r", "eject"),
    "edit": ("e", "dit"),
    "respond": ("o", "ther result"),
}


class Ask:
    """Asks at the terminal, one question after the other.

    Args:
        console: Where questions are shown.
    """

    is_person = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._session: PromptSession[str] | None = None

    async def answers(self, link: Link, run_id: str, questions: Sequence[Question]) -> Answers:
        """See `Asker`."""
        found: Answers = {}
        for number, one in enumerate(questions, start=1):
            if len(questions) > 1:
                self._console.print(f"Question {number} of {len(questions)}", style="dim")
            answer = await self._decided(await whole(link, run_id, one))
            if answer is not None:
                found[one.id] = answer
        return found

    async def _decided(self, one: WholeQuestion) -> JsonValue:
        self._console.print(shown(one), soft_wrap=True, end="")
        if one.question.tool:
            return await self._approval(one)
        return await self._said(one.question.schema)

    async def _approval(self, one: WholeQuestion) -> JsonValue:
        may = [name for name in _CHOICES if name in one.question.decisions]
        if not one.can_approve:
            may = [name for name in may if name in ("reject", "respond")]
        offer = ", ".join("[{}]{}".format(*_CHOICES[name]) for name in may) + ", [l]eave open: "
        keys = {_CHOICES[name][0]: name for name in may}
        while True:
            said = (await self._line(offer)).strip().lower()
            if said in ("l", "leave"):
                return None
            name = keys.get(said[:1], "") if said in (said[:1], keys.get(said[:1])) else ""
            if name == "approve":
                return {"decision": "approve", **one.proof()}
            if name == "edit":
                edited = await self._edited(one.question.args)
                if edited is not None:
                    return {"decision": "edit", "args": edited}
            elif name:
                about = "Why: " if name == "reject" else "Result for the agent: "
                message = await self._line(about)
                return {"decision": name, **({"message": message} if message else {})}

    async def _edited(self, args: str) -> JsonValue:
        try:
            pretty = json.dumps(json.loads(args), ensure_ascii=False, indent=2)
        except ValueError:
            pretty = args
        while True:
            self._console.print("Edit the arguments; Esc, then Enter, sends them.", style="dim")
            pretty = await self._line("", default=pretty, multiline=True)
            if not pretty.strip():
                return None
            try:
                return cast("JsonValue", json.loads(pretty))
            except ValueError as error:
                self._console.print(f"That is not JSON: {error}", style="red", markup=False)

    async def _said(self, schema: Mapping[str, Any]) -> JsonValue:
        """Return an answer as text, or as JSON if the schema requires more than text."""
        if schema.get("type", "string") == "string":
            choices: Sequence[str] = schema.get("enum") or ()
            offer = f"Answer ({', '.join(map(str, choices))}): " if choices else "Answer: "
            while True:
                said = await self._line(offer)
                if not said or not choices or said in choices:
                    return said or None
        self._console.print(json.dumps(schema, indent=2), style="dim", markup=False)
        while True:
            said = await self._line("Answer as JSON: ")
            if not said:
                return None
            try:
                return cast("JsonValue", json.loads(said))
            except ValueError as error:
                self._console.print(f"That is not JSON: {error}", style="red", markup=False)

    async def _line(self, offer: str, *, default: str = "", multiline: bool = False) -> str:
        """Read a line, or several.

        Raises:
            Interrupted: Ctrl-C, or Ctrl-D.
        """
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        if self._session is None:
            output = create_output(cast("TextIO", self._console.file))
            self._session = PromptSession(output=output, reserve_space_for_menu=0)
        try:
            return await self._session.prompt_async(
                offer, default=default, multiline=multiline, handle_sigint=False
            )
        except (KeyboardInterrupt, EOFError):
            raise Interrupted from None
