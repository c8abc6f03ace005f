"""Caller input besides the input of the run: people's answers, and its context.

Both are checked, and answers are cleaned of what is redacted before they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from ..checkpoint.base import Interrupt
from ..errors import InvalidAnswer
from .definition import AgentDefinition
from .engine import AgentLoop
from .run.interrupts import check_answers

if TYPE_CHECKING:
    from .context_schema import ContextSchema

__all__ = ["checked_answers", "screened_answers"]


def checked_answers(
    main: AgentDefinition, interrupts: Sequence[Interrupt], answers: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the answers that may be stored; see `check_answers`.

    Raises:
        UnknownInterrupt: An answer names no question of the run; nothing was stored.
        InvalidAnswer: An answer does not fit, or edits a call into one that cannot run; nothing
            was stored.
    """
    fresh = check_answers(interrupts, answers)
    _check_edits(main, interrupts, fresh)
    return fresh


def screened_answers(loop: AgentLoop, answers: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return answers as they may be stored."""
    screen = loop.thread.screen
    if screen is None:
        return answers
    return {key: screen.json(answer, "input") for key, answer in answers.items()}


def _check_edits(
    main: AgentDefinition, interrupts: Iterable[Interrupt], answers: Mapping[str, JsonValue]
) -> None:
    """Check that edited calls can run.

    What an agent asks that cannot be found here, such as one that a tool brings, is not judged:
    there the gate asks once more instead of running the edited call.

    Raises:
        InvalidAnswer: One edits a call into a tool that its agent does not have, or gives
            arguments that do not fit.
    """
    for one in interrupts:
        answer = answers.get(one.id)
        if one.kind != "approval" or not isinstance(answer, dict):
            continue
        if answer.get("decision") != "edit":
            continue
        agent = _asking(main, one.path)
        problem = None if agent is None else _problem(agent, one.payload, answer)
        if problem is not None:
            raise InvalidAnswer(
                f"the answer to {one.id} edits the call into one that cannot run: {problem} "
                "Nothing was stored, and the question is still open."
            )


def _asking(main: AgentDefinition, path: Sequence[str]) -> AgentDefinition | None:
    """Return the agent at a path of agents and calls, or None if that is not to be found."""
    agents = path[::2]
    found: AgentDefinition | None = main if agents[0] == main.name else None
    for name in agents[1:]:
        if found is None:
            return None
        children = (one.subagent(name) for one in found.middleware)
        child: Any = next((one for one in children if one is not None), None)
        found = getattr(child, "definition", None)
        if found is not None and found.name != name:
            return None
    return found


def _problem(
    agent: AgentDefinition, payload: Mapping[str, Any], answer: Mapping[str, Any]
) -> str | None:
    asked = str(payload.get("tool"))
    tool = str(answer.get("tool", asked))
    if "args" not in answer and agent.states.rules:
        return None  # those in the question are redacted, and may look otherwise
    args = cast("dict[str, JsonValue]", answer.get("args", payload.get("args")))
    return agent.pipeline.edit_problem(asked, tool, args)


def context_schema_of(schema: type | None) -> ContextSchema | None:
    if schema is None:
        return None
    from .context_schema import ContextSchema

    return ContextSchema(schema)
