"""Model answers: cleans them for storage, and continues answers that were cut off.

After an answer that is cut off or empty, a message asks the model to continue, or to answer,
because current models do not continue from their own answer. Each piece is a step like any other
answer, so a crash repeats nothing that was paid for. Together, the pieces are one answer.

Halves of surrogate pairs come from streams cut inside a character, or from escapes in JSON
arguments; hardly any provider accepts them back. Arguments nested too deeply come from confused
models. Both are cleaned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from .._internal import clean_text
from .._internal.json_bounds import MAX_DEPTH, is_too_deep
from .._internal.records import changed
from ..errors import ModelError, UnfinishedAnswer
from ..messages.message import (
    AIMessage,
    AnswerBlock,
    HumanMessage,
    Message,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)
from ..redaction.values import clean_json

__all__ = [
    "CUT_OFF",
    "GoingOn",
    "is_cut_off",
    "is_unfinished",
    "marked_text",
    "newest_answer",
    "sanitize_answer",
    "whole_text",
]


CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded", "pause_turn"})
"""Stop reasons of an answer that is not complete."""

_SOURCE = "go_on"
_MOST_CUT_OFF = 3
_MOST_EMPTY = 1
_TAIL = 200

_GO_ON = (
    "Your answer was cut off, because it became too long for one message. It ends with:\n{tail}\n"
    "Go on exactly where it stopped, in the middle of a word if need be. Repeat nothing and do not "
    "mention the cut."
)
_NOTHING_SAID = (
    "Your answer was cut off before it said anything. Answer again, and think less before you do."
)
_EMPTY = (
    "Your answer was empty. Give your final answer in full: its reader sees nothing of what you "
    "said before. If the work is not done, continue it."
)
_MARK = "[The answer was cut off here.]"


def is_cut_off(message: AIMessage) -> bool:
    """Whether an answer was cut off."""
    return message.stop_reason in CUT_OFF


def marked_text(message: AIMessage) -> str:
    """Return the text of an answer that cannot be continued, with a mark if it was cut off."""
    text = message.text
    return f"{text}\n\n{_MARK}" if text.strip() and is_cut_off(message) else text


def is_unfinished(message: AIMessage) -> bool:
    """Whether an answer without tool calls is unfinished: cut off, or empty."""
    if message.source is not None or message.tool_calls:
        return False
    return is_cut_off(message) or not message.text.strip()


def whole_text(messages: Sequence[Message], place: int) -> str:
    """Return the text of the answer at an index, with the earlier pieces that it continues."""
    pieces = [messages[place].text]
    goes_on = False
    for message in reversed(messages[:place]):
        if isinstance(message, HumanMessage) and message.source is not None:
            goes_on = goes_on or message.source == _SOURCE
        elif isinstance(message, AIMessage) and goes_on:
            pieces.append(message.text if is_cut_off(message) else "")
            goes_on = False
        else:
            break
    return "".join(reversed(pieces))


def newest_answer(messages: Sequence[Message]) -> str:
    """Return the full newest answer that has text; empty if there is none.

    Answers before the last message of the user, or of a subagent's caller, do not count.
    """
    answered = False
    for place in reversed(range(len(messages))):
        message = messages[place]
        if isinstance(message, AIMessage):
            if message.text.strip():
                return whole_text(messages, place)
            answered = True
        elif answered and isinstance(message, HumanMessage) and message.is_request:
            break
    return ""


class GoingOn:
    """Asks one agent's model for the rest of its answers, a few times each.

    Only this process counts them: if a failed run is resumed, the count starts again.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def request(self, messages: Sequence[Message]) -> HumanMessage | None:
        """Return a message that asks the model to continue; None if its last answer is complete.

        Raises:
            UnfinishedAnswer: It was asked to continue often enough.
        """
        last = messages[-1] if messages else None
        if not isinstance(last, AIMessage) or not is_unfinished(last):
            self._pieces.clear()
            return None
        if last.id not in self._pieces:  # otherwise a hook had a question first
            self._pieces.append(last.id)
        if len(self._pieces) > (_MOST_CUT_OFF if is_cut_off(last) else _MOST_EMPTY):
            raise _given_up(messages, last, len(self._pieces))
        if not is_cut_off(last):
            return HumanMessage(_EMPTY, source=_SOURCE)
        if not last.text.strip():
            return HumanMessage(_NOTHING_SAID, source=_SOURCE)
        return HumanMessage(_GO_ON.replace("{tail}", last.text[-_TAIL:]), source=_SOURCE)

    def failure(self, messages: Sequence[Message], error: ModelError) -> ModelError:
        """Return the error to raise for a call that failed.

        If the conversation is too long to continue, the answer stays cut off.
        """
        if error.kind != "overflow" or not self._pieces:
            return error
        last = next(one for one in reversed(messages) if isinstance(one, AIMessage))
        given_up = _given_up(messages, last, len(self._pieces))
        given_up.__cause__ = error
        return given_up


def _given_up(messages: Sequence[Message], last: AIMessage, times: int) -> UnfinishedAnswer:
    text = newest_answer(messages)
    often = "once" if times == 1 else f"{times} times"
    if not is_cut_off(last):
        what = "The model's answer was empty, also when it was asked for it again"
        do = "Go on with the run to ask once more."
    else:
        what = f"The model's answer was cut off {often} ({last.stop_reason}), so it is not whole"
        do = "Go on with the run for the rest; allow longer answers (max_tokens), or ask for less."
        text = f"{text}\n\n{_MARK}" if text else _MARK
    return UnfinishedAnswer(f"{what}. What was said and done until then is kept. {do}", text)


def sanitize_answer(message: AIMessage) -> AIMessage:
    """Return a model's answer cleaned for storage; nearly always the same object.

    Each half of a surrogate pair becomes U+FFFD, in texts, names, ids and arguments, including
    keys. A call whose arguments are nested too deeply becomes an invalid call.
    """
    if any(is_too_deep(call.args) for call in message.tool_calls):
        message = changed(message, content=tuple([_readable(one) for one in message.content]))
    try:
        _require_whole(message)
    except (PydanticSerializationError, UnicodeEncodeError):
        answer = TypeAdapter(AIMessage)  # few answers need it
        data: Any = answer.dump_python(message)
        data["content"] = list(data["content"])
        return answer.validate_python(clean_json(data, clean_text))
    return message


def _readable(block: AnswerBlock) -> AnswerBlock:
    if isinstance(block, ToolCall) and is_too_deep(block.args):
        return changed(
            block, args={}, invalid=f"(more than {MAX_DEPTH} levels of objects and lists)"
        )
    return block


def _require_whole(message: AIMessage) -> None:
    """Raise if there is half of a pair; serializing the message would take forty times as long."""
    texts: list[str | None] = [message.id, message.model, message.name, message.stop_reason]
    for block in message.content:
        match block:
            case TextBlock(text):
                texts.append(text)
            case ThinkingBlock(thinking, signature):
                texts += (thinking, signature)
            case RedactedThinkingBlock(data):
                texts.append(data)
            case ToolCall(call_id, name, args, invalid):
                texts += (call_id, name, invalid)
                texts += args
                # To check it, the text of a file is not copied into JSON.
                texts += [one for one in args.values() if isinstance(one, str)]
                to_json([one for one in args.values() if not isinstance(one, str)])
            case ProviderBlock():
                to_json(block.data)
    for text in texts:
        if text is not None and not text.isascii():
            text.encode()
