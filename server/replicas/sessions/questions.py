"""Questions of a replica to a client, and answers to questions of a dead replica.

A question's id contains the replica, so that any replica that receives the answer can forward it.
If the asking replica has died, another one continues its work and asks the same again. The answer
to the first question then also answers the second, in any order.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

__all__ = ["Answer", "Questions", "asker_of", "cancelled_request"]

CANCELLED: Final = "notifications/cancelled"

Answer: TypeAlias = JSONRPCResponse | JSONRPCError

_MOST_EARLY: Final = 20


def asker_of(answer: Answer) -> str:
    """Return the replica that asked the question of an answer; empty if no replica did."""
    return str(answer.id).rpartition(":")[0]


def cancelled_request(message: JSONRPCMessage) -> str | None:
    """Return the id of the request that a notification cancels; None for other notifications."""
    if not isinstance(message, JSONRPCNotification) or message.method != CANCELLED:
        return None
    return str((message.params or {}).get("requestId"))


class Questions:
    """The questions of one session's transport on this replica to the client.

    Args:
        name: This replica's id.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: dict[str, JSONRPCRequest] = {}
        self._early: deque[tuple[JSONRPCRequest, Answer]] = deque(maxlen=_MOST_EARLY)

    def ask(self, question: JSONRPCRequest) -> JSONRPCRequest | Answer:
        """Return a question as the client is sent it, or the answer that is here already."""
        for early in self._early:
            if _is_same(early[0], question):
                self._early.remove(early)
                return early[1].model_copy(update={"id": question.id})
        self._open[str(question.id)] = question
        return question.model_copy(update={"id": f"{self._name}:{question.id}"})

    def take_back(self, notice: JSONRPCNotification) -> JSONRPCNotification:
        """Return the notice that a question is cancelled as the client is sent it."""
        question = str(cancelled_request(notice))
        self._open.pop(question, None)
        params = {**(notice.params or {}), "requestId": f"{self._name}:{question}"}
        return notice.model_copy(update={"params": params})

    def answered(self, answer: Answer) -> Answer:
        """Return an answer to a question of this replica as it knows it."""
        question = str(answer.id).rpartition(":")[2]
        self._open.pop(question, None)
        return answer.model_copy(update={"id": question})

    def answer_for(self, question: JSONRPCRequest, answer: Answer) -> Answer | None:
        """Return the answer to the same question that this replica has asked.

        If it has not asked yet, the answer is kept until it does.
        """
        for asked, ours in self._open.items():
            if _is_same(ours, question):
                del self._open[asked]
                return answer.model_copy(update={"id": asked})
        self._early.append((question, answer))
        return None


def _is_same(one: JSONRPCRequest, other: JSONRPCRequest) -> bool:
    def said(request: JSONRPCRequest) -> dict[str, object]:
        return {key: value for key, value in (request.params or {}).items() if key != "_meta"}

    return one.method == other.method and said(one) == said(other)
