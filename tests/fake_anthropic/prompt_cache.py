"""Simulation of a provider's prompt cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fake_anthropic.answers import Answer
from tests.fake_anthropic.server import FakeAnthropic

LOOKBACK = 20
"""Maximum number of blocks between a breakpoint and an earlier cache entry."""

Block = tuple[str, bool]
"""A block's text, and whether there is a breakpoint after it."""


def blocks_of(body: Mapping[str, Any]) -> list[Block]:
    """Return tools, system prompt and messages in cache order."""
    parts = [("tool", "", one) for one in body.get("tools", ())]
    parts += [("system", "", one) for one in body.get("system", ())]
    parts += [
        ("message", message["role"], one)
        for message in body["messages"]
        for one in message["content"]
    ]
    return [
        (
            json.dumps(
                [kind, role, {key: one[key] for key in one if key != "cache_control"}],
                ensure_ascii=False,
            ),
            "cache_control" in one,
        )
        for kind, role, one in parts
    ]


@dataclass(frozen=True)
class Lookup:
    """Characters of one request: read from the cache, written to it, and in total."""

    read: int
    written: int
    whole: int

    @property
    def hit_rate(self) -> float:
        return self.read / self.whole


@dataclass
class PromptCache:
    """A cache of all prefixes that end at a breakpoint; prefixes must match byte for byte."""

    known: set[bytes] = field(default_factory=set)

    def look(self, body: Mapping[str, Any]) -> Lookup:
        """Look up a request, and store its prefixes."""
        sizes, digests, marks = [0], [b""], list[int]()
        running = hashlib.sha256()
        for place, (text, marked) in enumerate(blocks_of(body), 1):
            running.update(text.encode())
            sizes.append(sizes[-1] + len(text))
            digests.append(running.digest())
            if marked:
                marks.append(place)
        reach = {place for mark in marks for place in range(max(mark - LOOKBACK, 0), mark + 1)}
        read = max((place for place in reach if digests[place] in self.known), default=0)
        last = max(marks, default=0)
        self.known |= {digests[mark] for mark in marks}
        return Lookup(sizes[read], sizes[max(last, read)] - sizes[read], sizes[-1])


class CachingAnthropic(FakeAnthropic):
    """A server with a prompt cache that reports its usage, with four characters per token.

    Attributes:
        lookups: Cache lookups of all answered requests, in order of arrival.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.cache = PromptCache()
        self.lookups: list[Lookup] = []

    def _next(self, body: dict[str, Any]) -> Answer:
        found = self.cache.look(body)
        self.lookups.append(found)
        usage = {
            "input_tokens": (found.whole - found.read - found.written) // 4,
            "cache_read_input_tokens": found.read // 4,
            "cache_creation_input_tokens": found.written // 4,
        }
        answer = super()._next(body)
        return answer.model_copy(update={"usage": {**usage, **answer.usage}})
