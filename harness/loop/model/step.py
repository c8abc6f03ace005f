"""The model step: builds the request, calls the model, and writes its answer to the state.

Near a limit, a separate message asks the model once to give its final answer.
"""

from __future__ import annotations

from pydantic import JsonValue

from ..._internal.records import changed
from ...checkpoint.base import Next
from ...errors import MiddlewareError, ModelError
from ...limits.limits import Meter
from ...messages.message import AIMessage, HumanMessage
from ...models.base import ChatModel
from ...models.registry import configured
from ...state.channels import Overwrite
from ..definition import AgentDefinition
from ..hooks.requests import ModelRequest, Runtime
from ..model_answers import GoingOn
from ..run.context import RunContext
from ..thread_state import ThreadState
from .call import Answered, ModelCall

__all__ = ["ModelStep"]


class ModelStep:
    """Gets one answer at a time from the model.

    Attributes:
        wrapped_up: Why it asked for the final answer early, or None.
    """

    def __init__(
        self,
        agent: AgentDefinition,
        run: RunContext,
        thread: ThreadState,
        path: tuple[str, ...],
        meter: Meter,
    ) -> None:
        self.wrapped_up: str | None = None
        self._agent = agent
        self._run = run
        self._thread = thread
        self._path = path
        self._meter = meter
        self._going_on = GoingOn()
        self._ask = ModelCall(
            agent.model_wraps,
            run,
            agent.output,
            agent.answers,
            agent.pipeline.runnable,
            thread=thread,
        )

    def ask_for_the_rest(self) -> None:
        """Tell the model to continue if its last answer was cut off or is empty.

        Raises:
            UnfinishedAnswer: It was already asked to continue too often.
        """
        request = self._going_on.request(self._thread.state["messages"])
        if request is not None:
            self._thread.write_messages([request])

    async def run(self, runtime: Runtime) -> AIMessage:
        """Call the model, write its answer into the state and return it.

        Raises:
            As for `ModelCall`, and:
            MiddlewareError: Two wrappers wrote one plain key.
            InvalidUpdate: An update of a wrapper does not match the state.
        """
        begun = _task("model_start", self._agent.model.name)
        self._run.note("tasks", self._path, begun)
        self._run.send("tasks", self._path, begun)
        try:
            answered = await self._ask(self._request(runtime))
        except ModelError as error:
            raise self._going_on.failure(self._thread.state["messages"], error)  # noqa: B904 - it knows its cause
        self._write(answered)
        return answered.response.message

    async def ask(self, runtime: Runtime, model: ChatModel) -> Answered:
        """Return the answer of another model instead of the agent's; nothing is written."""
        return await self._ask(changed(self._request(runtime), model=model))

    async def commit(self, answer: AIMessage, following: Next) -> None:
        """Commit the step with this answer as a checkpoint."""
        ended = _task("model_end", answer.model or self._agent.model.name, answer.text)
        if answer.usage is not None:
            ended["usage"] = answer.usage.to_json()
        self._run.note("tasks", self._path, ended)
        await self._thread.commit("model", following, summary=_summary(answer), metered=True)
        self._run.send("tasks", self._path, ended)

    def _request(self, runtime: Runtime) -> ModelRequest:
        final = self._final_turn()
        agent, state = self._agent, self._thread.state
        return ModelRequest(
            model=configured(agent.model, self._run.configurable),
            messages=state["messages"],
            system=agent.system,
            tools=agent.offered,
            state=state,
            runtime=runtime,
            tool_choice="none" if final else "auto",
            settings=agent.settings,
            response_format=agent.response_format,
        )

    def _final_turn(self) -> bool:
        """Tell the model once that a limit is near; return whether it must give its answer."""
        if self.wrapped_up is not None:
            return False
        reason = self._meter.wrap_up(self._thread.ns.count("task:"))
        if reason is None:
            return False
        self.wrapped_up = reason
        # With a structured answer as a tool call, that call is requested and forced.
        source = "limits" if self._agent.output is None else "structured_output"
        self._thread.write_messages([HumanMessage(reason, source=source)])
        if self._thread.ns == "":
            self._run.update_run(reason=f"wrapped up: {reason}")
        return True

    def _write(self, answered: Answered) -> None:
        response, thread = answered.response, self._thread
        thread.write_messages([response.message, *response.following])
        if self._agent.output is not None:
            value = response.structured_response
            if value is not None or thread.state.get("structured_response") is not None:
                update = {"structured_response": Overwrite(value)}
                thread.write(update, "structured output")
        schema, writers = self._agent.schema, dict[str, str]()
        for author, update in answered.updates:
            for key in update:
                first = writers.setdefault(key, author)
                if first != author and key in schema.channels and not schema[key].reducer:
                    raise MiddlewareError(
                        f"{first} and {author} both wrote {key!r}, which keeps one value. Give "
                        "the key a Reducer, or let one of them write it."
                    )
            thread.write(update, author)


def _task(event: str, name: str, text: str = "") -> dict[str, JsonValue]:
    return {"event": event, "name": name, "text": text}


def _summary(answer: AIMessage) -> str:
    """Return a one-line summary of a model's answer."""
    calls = answer.tool_calls
    if calls:
        return "calls " + ", ".join([call.name for call in calls])
    text = " ".join(answer.text.split())
    return text if len(text) <= 100 else text[:99] + "…"
