"""Tools that an entry offers its client, where the operator has not chosen them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import cast

from ...harness._internal.records import record
from ..install.clients import Client
from ..settings.toolsets import TOOLSETS, Toolset

__all__ = ["ToolChoice"]

OPTION = "--toolsets"


@record
class ToolChoice:
    """What to add to the options of `serve`.

    Attributes:
        options: The words to add.
        note: What to tell the operator; empty for nothing.
    """

    options: Sequence[str] = ()
    note: str = ""

    @classmethod
    def of(cls, client: Client, words: Sequence[str]) -> ToolChoice:
        """Choose for an operator who has chosen nothing.

        Args:
            client: The client.
            words: The command of the entry it has already; empty for none.
        """
        chosen = ",".join(_values(words))
        if chosen:
            return cls(
                (OPTION, chosen),
                f"The entry keeps its tools ({OPTION} {chosen}); choose others with {OPTION}.",
            )
        if not client.toolsets:
            return cls()
        names = dict.fromkeys(
            name for one in client.toolsets for name in TOOLSETS[cast("Toolset", one)]
        )
        return cls(
            (OPTION, ",".join(client.toolsets)),
            f"{client.title} has its own todo list, file tools and shell, so it is offered "
            f"only {', '.join(names)}. To offer all tools, add {OPTION} all.",
        )


def _values(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == OPTION:
            yield value if equals else following
