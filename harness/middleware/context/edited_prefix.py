"""Remembers transcripts that were edited for a view, so that no message is edited twice.

The edited messages are the same objects each time: whoever counts or renders by identity finds
what it knows again. What is remembered is compared with the transcript first, message by message
and by identity, so a message that was replaced in the log is never shown as it was.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import islice

from ...messages.message import Message

__all__ = ["EditedPrefixes"]


class EditedPrefixes:
    """Beginnings of transcripts, each edited as a whole; the ones used last are kept.

    A beginning is edited anew when it ends elsewhere, its terms are others, or a message in it is.

    Args:
        size: How many are kept.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._known: OrderedDict[str, tuple[Hashable, Sequence[Message], Sequence[Message]]] = (
            OrderedDict()
        )

    def get(
        self,
        key: str,
        terms: Hashable,
        messages: Sequence[Message],
        end: int,
        edit: Callable[[Sequence[Message]], Sequence[Message]],
    ) -> Sequence[Message]:
        """Return the first `end` messages, edited.

        Args:
            key: Names the transcript.
            terms: What the edit depends on besides the messages.
            messages: The transcript.
            end: Where its beginning ends.
            edit: Makes the edited messages; called when they are not known.
        """
        known = self._known.pop(key, None)
        if known is None or known[0] != terms or not _begins(messages, known[1], end):
            stretch = messages[:end]
            known = (terms, stretch, edit(stretch))
        self._known[key] = known
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return known[2]


def _begins(messages: Sequence[Message], stretch: Sequence[Message], end: int) -> bool:
    same = len(stretch) == end <= len(messages)
    return same and all(map(operator.is_, islice(messages, end), stretch))


class EditedMessages:
    """Whole transcripts, edited message by message; the ones used last are kept.

    Only what was appended is edited, unless the terms are others or an earlier message is.

    Args:
        size: How many are kept.
    """

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._known: OrderedDict[str, tuple[Hashable, Sequence[Message], Sequence[Message]]] = (
            OrderedDict()
        )

    def get(
        self,
        key: str,
        terms: Hashable,
        messages: Sequence[Message],
        edit: Callable[[Message], Message],
    ) -> Sequence[Message]:
        """Return the messages edited; the transcript itself if that changes none.

        Args:
            key: Names the transcript.
            terms: What the edit depends on besides the message.
            messages: The transcript.
            edit: Returns a message edited, or itself.
        """
        known = self._known.pop(key, None)
        if known is None or known[0] != terms or not _begins(messages, known[1], len(known[1])):
            known = (terms, (), ())
        stretch, edited = known[1], known[2]
        new = messages[len(stretch) :]
        made = [edit(one) for one in new]
        same = edited is stretch and all(map(operator.is_, made, new))
        view = messages if same else [*edited, *made]
        self._known[key] = (terms, messages, view)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return view
