"""Asks a model for a summary of messages, whatever their size, or fails without an answer.

All of the messages reach the model: what is larger than its window goes in pieces whose notes are
then joined into one summary. An error's text never becomes a summary.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from ..._internal.records import record
from ...errors import ModelError
from ...limits.limits import Meter
from ...loop.model_answers import marked_text
from ...messages.message import HumanMessage, Message
from ...messages.transcript import transcript_text
from ...models.base import ChatModel, ChatRequest, PromptSection
from ...models.token_counting import text_tokens
from ..models.internal_calls import answer_of
from .summary_prompts import SummaryTemplate

__all__ = ["SummaryFailed", "SummaryWriter", "transcript_text"]

_JOIN = "These are summaries of consecutive parts, oldest first. Write one summary of them all."
_DEFAULT_WINDOW = 200_000
_HOPELESS = frozenset({"auth", "invalid_request", "refusal", "script"})


class SummaryFailed(Exception):
    """No summary could be made; the text says why, without contents."""


@record
class SummaryWriter:
    """Writes summaries with one model.

    Attributes:
        model: Who writes.
        meter: Counts the tokens.
        template: The instructions.
        max_tokens: Length of a summary at most.
        attempts: Calls for one text at most.
    """

    model: ChatModel
    meter: Meter
    template: SummaryTemplate
    max_tokens: int
    attempts: int

    async def write(self, messages: Sequence[Message], earlier: str, *, merge: bool) -> str:
        """Return a summary of the messages.

        Args:
            messages: What to summarise, all of it.
            earlier: Summaries of what came before, or empty.
            merge: Make the new summary stand for the earlier ones too.

        Raises:
            SummaryFailed: The model failed or said nothing.
        """
        window = self.model.context_window or _DEFAULT_WINDOW
        text = transcript_text(messages)
        limit, failure = window * 4 // 5, None
        for _ in range(self.attempts):
            try:
                return await self._write(text, earlier, merge, limit)
            except ModelError as error:
                # The estimate was too low, or the window is smaller than the model says.
                limit, failure = max(limit // 2, 256), error
        raise SummaryFailed(f"{self.model.name}: overflow") from failure

    async def _write(self, text: str, earlier: str, merge: bool, limit: int) -> str:
        context = _fenced("summary of what came before", earlier)
        pieces = list(_pieces(text, limit))
        if len(pieces) == 1:
            if not earlier:
                task = "Summarise this transcript."
            elif merge:
                task = "Summarise all of it, the earlier summary included, as one."
            else:
                task = "Summarise the transcript only; the earlier summary is kept beside yours."
            return await self._ask(context + _fenced("transcript", text) + task)
        notes = [
            await self._ask(
                _fenced("transcript", piece)
                + f"This is part {number} of {len(pieces)} of a transcript. Summarise this part."
            )
            for number, piece in enumerate(pieces, start=1)
        ]
        return await self._joined(
            "\n\n".join([earlier, *notes] if merge and earlier else notes), limit
        )

    async def _joined(self, notes: str, limit: int) -> str:
        """Return one summary of several; all of them if the model makes them no shorter."""
        while text_tokens(notes) > limit:
            parts = [
                await self._ask(_fenced("summaries", part) + _JOIN)
                for part in _pieces(notes, limit)
            ]
            shorter = "\n\n".join(parts)
            if text_tokens(shorter) >= text_tokens(notes):
                return notes
            notes = shorter
        return await self._ask(_fenced("summaries", notes) + _JOIN)

    async def _ask(self, text: str) -> str:
        """Return the model's answer; raise `ModelError` only when the text was too large."""
        failure = "empty answer"
        for _ in range(self.attempts):
            try:
                answer = _final(await self._call(text))
            except ModelError as error:
                if error.kind == "overflow":
                    raise
                failure = error.kind
                if error.kind in _HOPELESS or error.given_up:
                    break
            else:
                if answer:
                    return answer
        raise SummaryFailed(f"{self.model.name}: {failure}")

    async def _call(self, text: str) -> str:
        closing = f"\n\n{self.template.closing}" if self.template.closing else ""
        request = ChatRequest(
            messages=[HumanMessage(f"{text}{closing}", source="summarization")],
            system=[PromptSection("summarization", self.template.system)],
            settings={"max_tokens": self.max_tokens},
            agent="summarization",
        )
        answer = await answer_of(self.model, request, self.meter)
        return marked_text(answer)


def _final(answer: str) -> str:
    """Return what is to be kept of an answer that thinks aloud first, or all of it."""
    text = answer.strip()
    if text.startswith("<analysis>"):
        text = text.partition("</analysis>")[2].strip()
    if text.startswith("<summary>"):
        text = text.removeprefix("<summary>").removesuffix("</summary>").strip()
    return text


def _fenced(title: str, text: str) -> str:
    """Put text between marks it cannot contain, so that it cannot pass for instructions."""
    if not text:
        return ""
    mark = secrets.token_hex(8)
    return f"<{title} {mark}>\n{text}\n</{title} {mark}>\n\n"


def _pieces(text: str, limit: int) -> Iterator[str]:
    """Cut text into pieces of at most `limit` estimated tokens, at line ends where possible."""
    size = limit * 4 if text.isascii() else limit * 3 // 4
    start = 0
    while len(text) - start > size:
        end = text.rfind("\n", start + size // 2, start + size) + 1 or start + size
        yield text[start:end]
        start = end
    yield text[start:]
