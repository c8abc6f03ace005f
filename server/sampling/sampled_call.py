"""Calls of a client's model, their keys, and the other activity of their runs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

import anyio
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    InputResponse,
    RequestParamsMeta,
)

from ...harness.errors import ModelError
from ...harness.loop.run.events import Event
from ...harness.messages.message import new_id
from .messages import Answer

__all__ = ["Activity", "SampledCall", "answer_in", "digest_in", "is_call"]


@dataclass(slots=True, eq=False)
class SampledCall:
    """One call of the client's model.

    Attributes:
        params: The request.
        agent: The calling agent.
        key: Unique identifier that contains the calling agent.
        answer: The answer, or an error.
        closed: Set once there is an answer, or once none is needed.
        was_asked: Whether the call was sent to a client.
    """

    params: CreateMessageRequestParams
    agent: str = ""
    key: str = field(init=False)
    answer: Answer | ModelError | None = None
    closed: anyio.Event = field(default_factory=anyio.Event)
    was_asked: bool = False
    _askers: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def __post_init__(self) -> None:
        # `input_required` has no `_meta`, so the key contains the agent, too.
        self.key = f"{new_id('smp')}-{self.digest}" + (f".{self.agent}" if self.agent else "")

    @property
    def digest(self) -> str:
        """Hash of agent and request; identical calls have the same digest on all servers."""
        said = f"{self.agent} {self.params.model_dump_json()}"
        return blake2b(said.encode(), digest_size=12).hexdigest()

    def hand_out(self, about: RequestParamsMeta | None = None) -> CreateMessageRequest:
        """Return the request for a client, and mark the call as sent.

        Args:
            about: Added to the request's `_meta`.
        """
        self.was_asked = True
        if about is None:
            return CreateMessageRequest(params=self.params)
        meta = {**(self.params.meta or {}), **about}
        return CreateMessageRequest(params=self.params.model_copy(update={"meta": meta}))

    def close(self, answer: Answer | ModelError | None) -> None:
        """Set the result; only the first one counts."""
        if self.closed.is_set():
            return
        self.answer = answer
        self.closed.set()
        for take_back in [*self._askers]:
            take_back()

    @contextmanager
    def taking_back(self, take_back: Callable[[], None]) -> Generator[None]:
        """Call `take_back` if the call is closed during the block, or already is closed."""
        if self.closed.is_set():
            take_back()
        self._askers.append(take_back)
        try:
            yield
        finally:
            self._askers.remove(take_back)


@dataclass(slots=True)
class Activity:
    """The open tool and model calls of a run."""

    _tools: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    _models: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])

    def hear(self, event: Event) -> bool:
        """Process an event; return whether it was about a call."""
        path = event.path
        match event.data.get("event"):
            case "tool_start":
                self._tools.add(path)
            case "tool_end":
                self._tools.discard(path)
                # A failed subagent does not report the end of its model call.
                self._models = {one for one in self._models if one[: len(path)] != path}
            case "model_start":
                self._models.add(path)
            case "model_end":
                self._models.discard(path)
            case _:
                return False
        return True

    def is_more_than(self, asked: int) -> bool:
        """Whether the run has other activity than this number of calls of the client's model.

        A tool call does not count while its subagent calls a model.
        """
        if asked < len(self._models):
            return True
        return any(
            all(model[: len(tool)] != tool for model in self._models) for tool in self._tools
        )


def is_call(key: str) -> bool:
    """Whether a key belongs to a call of a client's model."""
    return key.startswith("smp_")


def digest_in(key: str) -> str:
    """Return the digest from a call's key."""
    return key.partition(".")[0].rpartition("-")[2]


def answer_in(response: InputResponse) -> Answer | ModelError:
    """Return a client's answer, or an error if it is unusable."""
    if isinstance(response, CreateMessageResult | CreateMessageResultWithTools):
        return response
    return ModelError(
        "The client answered a call of its model with something else "
        f"({type(response).__name__}); nothing was kept. Continue the run to ask again."
    )
