"""State schemas: merge the declared keys of agent and middleware, and apply writes.

A state is a plain mapping, never changed in place. A schema is a set of *channels*, one per key,
merged from the TypedDicts of the agent and its middleware. What a channel stores is what its
annotation says and nothing else: values are encoded to JSON and validated on the way back, so
loading never imports or calls anything named in the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import InvalidUpdate
from .channels import AGENT_KEYS, Channel, ChannelWrite, Mark, State, channels_of

__all__ = ["StateSchema"]


@dataclass(frozen=True)
class StateSchema:
    """The channels of one agent.

    Build it with `StateSchema.of`; later schemas win on a key that both name.
    """

    channels: Mapping[str, Channel]

    @classmethod
    def of(cls, *schemas: tuple[type, str]) -> StateSchema:
        """Merge TypedDicts, each given with the name of its owner.

        Raises:
            AgentBuildError: As for `channels_of`, or a key cannot be stored.
        """
        channels: dict[str, Channel] = {}
        for schema, owner in schemas:
            channels.update(channels_of(schema, owner))
        for name, channel in channels.items():
            if name not in AGENT_KEYS:  # those are as the loop declares them
                channel.check()
        return cls(channels)

    def __getitem__(self, name: str) -> Channel:
        return self.channels[name]

    def initial(self) -> State:
        """Return the state of a thread on which nothing has happened."""
        values = {name: self.channels[name].initial() for name in self._with_default}
        return {name: value for name, value in values.items() if value is not None}

    @cached_property
    def _with_default(self) -> Sequence[str]:
        """The keys that may have a value before the first write."""
        reducers = {name: channel.reducer for name, channel in self.channels.items()}
        return [name for name, one in reducers.items() if one is not None and one.default]

    def writes(self, update: Mapping[str, Any], author: str) -> list[ChannelWrite]:
        """Turn an update into writes with validated values.

        Raises:
            InvalidUpdate: It names a key no schema declares, or a value does not fit its key.
        """
        channels = self.channels
        if not update.keys() <= channels.keys():
            unknown = ", ".join(map(repr, sorted(update.keys() - channels.keys())))
            raise InvalidUpdate(
                f"{author} wrote undeclared state {unknown}. Declare "
                f"it in a state_schema; declared are: {', '.join(sorted(channels))}."
            )
        try:
            return [ChannelWrite(key, channels[key].coerce(value)) for key, value in update.items()]
        except InvalidUpdate as error:
            raise InvalidUpdate(f"{author}: {error}") from error

    def fold(self, state: State, writes: Iterable[ChannelWrite]) -> State:
        """Return the state after the writes. Unknown channels, from older code, are dropped."""
        values = dict(state)
        for name, write in writes:
            channel = self.channels.get(name)
            if channel is None:
                continue
            current = values[name] if name in values else channel.initial()
            values[name] = channel.apply(current, write)
        return values

    def without(self, state: State, marks: Set[Mark]) -> State:
        """Return the state without keys that carry one of the marks."""
        kept = frozenset(marks)  # itself, if it is one
        hidden = self._by_marks.get(kept)
        if hidden is None:
            hidden = self._by_marks[kept] = frozenset(
                name for name, channel in self.channels.items() if channel.marks & kept
            )
        if hidden.isdisjoint(state) and state.keys() <= self.channels.keys():
            return state
        return {
            name: value
            for name, value in state.items()
            if name in self.channels and name not in hidden
        }

    @cached_property
    def _by_marks(self) -> dict[frozenset[Mark], frozenset[str]]:
        return {}
