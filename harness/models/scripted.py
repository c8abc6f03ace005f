"""A model that replays a script file, for tests and demos.

It stores no position. The request determines the next turn, so a run continues at the right turn
after a restart, in another process, or in a fork. Every answer gives `scripted:<name>` as its
model, so it cannot be mistaken for a real one.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
from pydantic import JsonValue

from .._internal.records import record
from ..errors import ModelError
from ..messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    Usage,
    new_id,
)
from ..tools.schemas import ToolSpec
from ._script_file import ANY_AGENT, Expect, Script, ScriptError, Turn, load_script
from .base import ChatRequest, Delta

__all__ = ["ScriptError", "ScriptedModel", "calls"]

_DEFAULT_AGENT = "main"
_DELTAS = 4
_ID = re.compile(r"_s(\d+)t(\d+)$")


@record
class _Place:
    """Position of a request in the script: run (-1 for turns without `match`), agent and turn."""

    run: int
    agent: str
    turn: int


def calls(tool: str, /, **args: JsonValue) -> dict[str, JsonValue]:
    """Return a script turn that calls a tool, such as `calls("ls", path="/")`."""
    return {"tool_calls": [{"name": tool, "args": args}]}


class ScriptedModel:
    """A model that replays the turns of a script.

    Args:
        script: Path of a YAML or JSON file, its parsed content (see `Script`), or a list of turns
            for any agent. A turn is a text or a mapping; `calls` returns a turn that calls a tool.

    Raises:
        ScriptError: The script cannot be read or is malformed.
    """

    def __init__(self, script: str | Path | Sequence[Any] | Mapping[str, Any]) -> None:
        self._script: Script = load_script(script)

    @property
    def name(self) -> str:
        """`scripted:<name>`."""
        return f"scripted:{self._script.name}"

    @property
    def context_window(self) -> int | None:
        """The script's `context_window`; default None."""
        return self._script.context_window

    @property
    def native_output(self) -> bool:
        """The script's `native_output`; default False."""
        return self._script.native_output

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        """Yield the next turn's deltas and its answer.

        Raises:
            ModelError: The request does not match the script's expectations (kind `script`; the
                message contains a diff), or the turn is a failure.
        """
        place = self._place(request)
        turn = self._turn(place, request)
        self._check(turn.expect, place, request)
        await anyio.sleep(turn.delay)
        if turn.error is not None:
            failure = turn.error
            raise ModelError(
                failure.message,
                kind=failure.kind,
                retryable=failure.retryable,
                retry_after=failure.retry_after,
            )
        answer = self._answer(turn, place)
        for delta in _deltas(answer):
            yield delta
            await anyio.lowlevel.checkpoint()
        yield answer

    async def aclose(self) -> None:
        """Do nothing: a script has no connections."""

    def _place(self, request: ChatRequest) -> _Place:
        agent = self._agent(request)
        run, start = self._run(agent, request.messages)
        turn = 0
        for message in request.messages[start:]:
            if isinstance(message, AIMessage) and message.source is None:
                if request.agent and message.name not in (None, "", request.agent):
                    continue  # a fork starts with its caller's answers
                # A view may leave out older answers, so counting them is not enough: the id of an
                # answer contains its turn.
                known = _ID.search(message.id)
                turn = int(known[2]) if known and int(known[1]) == run + 1 else turn + 1
        return _Place(run, agent, turn)

    def _agent(self, request: ChatRequest) -> str:
        if request.agent:
            return request.agent
        prompt = " ".join(part.text for part in request.system if part.name == "agent")
        everyone = {name for agents in self._all_agents() for name in agents}
        known = [name for name in everyone if re.search(rf"\b{re.escape(name)}\b", prompt)]
        return known[0] if len(known) == 1 else _DEFAULT_AGENT

    def _run(self, agent: str, messages: Sequence[Message]) -> tuple[int, int]:
        """Return the run that applies, and the index of its first message.

        The latest goal that matches a run with turns for this agent decides. A run's first agent
        receives the goal. The task of a subagent seldom repeats the goal, so if only one run has
        turns for a subagent, that run applies.
        """
        runs = self._script.runs
        has_turns = [agent in run.agents or ANY_AGENT in run.agents for run in runs]
        for index in reversed(range(len(messages))):
            message = messages[index]
            if isinstance(message, HumanMessage) and message.source is None:
                for number, run in enumerate(runs):
                    if has_turns[number] and run.match in message.text:
                        return number, index + 1
        owners = [number for number, run in enumerate(runs) if agent in list(run.agents)[1:]]
        if len(owners) == 1 and agent not in self._script.agents:
            return owners[0], 0
        return -1, 0

    def _all_agents(self) -> list[dict[str, tuple[Turn, ...]]]:
        return [self._script.agents, *(run.agents for run in self._script.runs)]

    def _turn(self, place: _Place, request: ChatRequest) -> Turn:
        agents = self._all_agents()[place.run + 1]
        turns = agents.get(place.agent, agents.get(ANY_AGENT))
        if turns is None:
            known = ", ".join(map(repr, agents))
            expected = [f"agent: one of {known}"] if agents else self._goals()
        elif place.turn < len(turns):
            return turns[place.turn]
        else:
            expected = [f"agent: {place.agent}", f"(the script ends after turn {len(turns)})"]
        last = request.messages[-1] if request.messages else None
        actual = [f"agent: {place.agent}", f"last message: {_type(last)} {_clip(_text(last))}"]
        raise self._left(place, expected, actual)

    def _goals(self) -> list[str]:
        goals = " or ".join(repr(run.match) for run in self._script.runs)
        return [f"a goal that contains {goals}" if goals else "(the script has no turns)"]

    def _check(self, expect: Expect, place: _Place, request: ChatRequest) -> None:
        lines = list(_comparison(expect, place, request))
        if any(expected != actual for expected, actual in lines):
            raise self._left(place, [e for e, _ in lines], [a for _, a in lines])

    def _left(self, place: _Place, expected: list[str], actual: list[str]) -> ModelError:
        run = "" if place.run < 0 else f", run {self._script.runs[place.run].match!r}"
        here = f"{self.name}{run}, agent {place.agent}, turn {place.turn + 1}"
        diff = difflib.unified_diff(expected, actual, "script", "request", lineterm="", n=9)
        return ModelError(
            f"The run left its script ({here}). Nothing was answered; correct the script or the "
            "run.\n" + "\n".join(diff),
            kind="script",
        )

    def _answer(self, turn: Turn, place: _Place) -> AIMessage:
        calls = [
            ToolCall(
                call.id or new_id("call"),
                call.name,
                call.args if call.invalid is None else {},
                invalid=call.invalid,
            )
            for call in turn.tool_calls
        ]
        return AIMessage(
            (
                *([ThinkingBlock(turn.think)] if turn.think else ()),
                *([TextBlock(turn.text)] if turn.text else ()),
                *calls,
            ),
            model=self.name,
            stop_reason="tool_use" if calls else "end_turn",
            usage=None if turn.usage is None else Usage(**turn.usage.model_dump()),
            name=place.agent,
            id=f"{new_id('msg')}_s{place.run + 1}t{place.turn + 1}",
        )


def _comparison(expect: Expect, place: _Place, request: ChatRequest) -> Iterator[tuple[str, str]]:
    """Yield pairs of an expected and an actual line; the two are equal if the request matches."""
    last = request.messages[-1] if request.messages else None
    if expect.agent is not None:
        yield f"agent: {expect.agent}", f"agent: {place.agent}"
    system = "\n\n".join(section.text for section in request.system)
    yield from _needles("system prompt", expect.system, [system])
    if expect.last_type is not None:
        yield f"last message: {expect.last_type}", f"last message: {_type(last)}"
    yield from _needles("last message", expect.last, [_text(last)])
    for tool, needles in expect.results.items():
        results = [
            m.text for m in request.messages if isinstance(m, ToolMessage) and m.name == tool
        ]
        yield from _needles(f"results of {tool}", needles, results)
    offered = [t.name if isinstance(t, ToolSpec) else str(t.get("name")) for t in request.tools]
    for tool in expect.tools:
        wanted = f"tool on offer: {tool}"
        yield wanted, wanted if tool in offered else f"tools on offer: {', '.join(offered)}"


def _needles(where: str, needles: Sequence[str], texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for needle in needles:
        wanted = f"{where} contains: {needle!r}"
        found = any(needle in text for text in texts)
        there = " | ".join(map(_clip, texts)) or "(none)"
        yield wanted, wanted if found else f"{where}: {there}"


def _type(message: Message | None) -> str:
    return "none" if message is None else message.type


def _text(message: Message | None) -> str:
    return "" if message is None else message.text


def _clip(text: str) -> str:
    return repr(text if len(text) <= 300 else f"{text[:200]}…{text[-100:]}")


def _deltas(answer: AIMessage) -> Iterator[Delta]:
    for block in answer.content:
        match block:
            case ThinkingBlock(thinking):
                yield from (Delta("thinking", piece) for piece in _pieces(thinking))
            case TextBlock(text):
                yield from (Delta("text", piece) for piece in _pieces(text))
            case ToolCall(call_id, name, args, invalid):
                raw = json.dumps(args, ensure_ascii=False) if invalid is None else invalid
                yield Delta("tool_args", raw, call_id, name)
            case _:
                pass


def _pieces(text: str) -> Iterator[str]:
    size = max(1, -(-len(text) // _DELTAS))
    return (text[start : start + size] for start in range(0, len(text), size))
