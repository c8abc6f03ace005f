"""Caller input: checks a run's input, people's answers, and the context.

Input becomes a state update. Answers are redacted before they are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import GenericAlias
from typing import Any, TypeAlias, cast

from pydantic import ConfigDict, JsonValue, PydanticUserError, TypeAdapter, ValidationError

from ..checkpoint.base import Interrupt
from ..errors import AgentBuildError, InvalidAnswer, InvalidUpdate
from ..messages.message import AIMessage, HumanMessage, Message, TextBlock
from ..messages.transcript import Transcript
from .definition import AgentDefinition
from .engine import AgentLoop
from .run.interrupts import check_answers

__all__ = ["AgentInput", "as_update", "checked_answers", "goal_of", "screened_answers"]


def checked_answers(
    main: AgentDefinition, interrupts: Sequence[Interrupt], answers: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the answers to store; see `check_answers`.

    Raises:
        UnknownInterrupt: An answer names no question of the run; nothing was stored.
        InvalidAnswer: An answer does not match, or edits a call into one that cannot run;
            nothing was stored.
    """
    fresh = check_answers(interrupts, answers)
    _check_edits(main, interrupts, fresh)
    return fresh


def screened_answers(loop: AgentLoop, answers: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return redacted answers."""
    screen = loop.thread.screen
    if screen is None:
        return answers
    return {key: screen.json(answer, "input") for key, answer in answers.items()}


def _check_edits(
    main: AgentDefinition, interrupts: Iterable[Interrupt], answers: Mapping[str, JsonValue]
) -> None:
    """Check that edited calls can run.

    If the agent that asks is unknown here, for example because a tool created it, the edit is
    not checked. In that case the gate asks again if the edited call cannot run.

    Raises:
        InvalidAnswer: One edits a call into a tool that its agent does not have, or gives
            arguments that do not match.
    """
    for one in interrupts:
        answer = answers.get(one.id)
        if one.kind != "approval" or not isinstance(answer, dict):
            continue
        if answer.get("decision") != "edit":
            continue
        agent = agent_at(main, one.path)
        problem = None if agent is None else _problem(agent, one.payload, answer)
        if problem is not None:
            raise InvalidAnswer(
                f"the answer to {one.id} edits the call into one that cannot run: {problem} "
                "Nothing was stored, and the question is still open."
            )


def agent_at(main: AgentDefinition, path: Sequence[str]) -> AgentDefinition | None:
    """Return the agent at a path of agents and calls, or None if it is unknown."""
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
        return None  # those in the question are redacted, and may differ
    args = cast("dict[str, JsonValue]", answer.get("args", payload.get("args")))
    return agent.pipeline.edit_problem(asked, tool, args)


def context_schema_of(schema: type | None) -> ContextSchema | None:
    """Return the schema that checks contexts of a type; None for no type."""
    return None if schema is None else ContextSchema(schema)


class ContextSchema:
    """Checks contexts of one agent.

    Args:
        schema: A dataclass, a pydantic model, a TypedDict or another type. Its fields may be of
            any class, because a context can contain live objects, such as connections.

    Raises:
        AgentBuildError: It is not a type, or names a type that is unknown at run time.
    """

    def __init__(self, schema: Any) -> None:
        from ..structured_output.schemas import as_pydantic_knows  # few agents declare one

        config = ConfigDict(arbitrary_types_allowed=True)
        try:
            # A dataclass takes no configuration, but the items of a tuple inherit the tuple's.
            alone: Any = GenericAlias(tuple, (as_pydantic_knows(schema),))
            self._adapter: TypeAdapter[tuple[Any]] = TypeAdapter(alone, config=config)
            self._adapter.rebuild(raise_errors=True)
        except (PydanticUserError, NameError, TypeError) as error:
            raise AgentBuildError(
                f"context_schema={schema!r} cannot be checked: {str(error).splitlines()[0]} Give a "
                "type whose annotations are known at run time, outside of TYPE_CHECKING."
            ) from error

    def check(self, context: Any) -> Any:
        """Convert a context to the declared type; None, for no context, stays None.

        Raises:
            InvalidUpdate: It does not match the type.
        """
        if context is None:
            return None
        try:
            return self._adapter.validate_python((context,))[0]
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc'][1:])) or 'the context'}: {item['msg']}"
                for item in error.errors(include_url=False, include_context=False)
            )
            raise InvalidUpdate(
                f"the context does not fit its schema; nothing was run: {problems}"
            ) from error


AgentInput: TypeAlias = str | Sequence[Message | Mapping[str, str]] | Mapping[str, Any]
"""A user's message, messages, or a state update. A message may be `{"role": …, "content": text}`
with the role `user` or `assistant`."""


def as_update(agent_input: AgentInput) -> Mapping[str, Any]:
    """Return the input as a state update.

    Raises:
        InvalidUpdate: A message has a role that input cannot have.
    """
    if isinstance(agent_input, str):
        return {"messages": [HumanMessage(agent_input)]}
    update = agent_input if isinstance(agent_input, Mapping) else {"messages": agent_input}
    messages = update.get("messages")
    if not isinstance(messages, list | tuple | Transcript):
        return update
    return {**update, "messages": [_message(one) for one in cast(Sequence[Any], messages)]}


def _message(one: Any) -> Any:
    match one:
        case {"role": "user", "content": str(text), **more} if not more:
            return HumanMessage(text)
        case {"role": "assistant", "content": str(text), **more} if not more:
            return AIMessage((TextBlock(text),))
        case {"role": role}:
            raise InvalidUpdate(
                f"a message of the input, with the role {role!r}, is not understood; nothing "
                'was run. {"role": "user" or "assistant", "content": text} stands for a message; '
                "pass a HumanMessage, AIMessage or ToolMessage for anything else, and system "
                "prompts to create_agent"
            )
        case _:
            return one


def goal_of(update: Mapping[str, Any]) -> str:
    """Return the last human text of an update."""
    messages = update.get("messages")
    if not isinstance(messages, list | tuple | Transcript):
        return ""  # errors are reported when the input is checked
    texts = [one.text for one in cast(Sequence[Any], messages) if isinstance(one, HumanMessage)]
    return texts[-1] if texts else ""
