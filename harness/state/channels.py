"""Channels: the keys of a state, each with its type, its reducer and its marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import JsonValue, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError

from .._internal.json_bounds import can_be_read
from .._internal.records import record
from ..errors import AgentBuildError, CheckpointError, InvalidUpdate
from ..messages.message import Message, MessageWrite, ToolCall
from ..messages.transcript import Transcript, add_messages

__all__ = [
    "AgentState",
    "Channel",
    "ChannelWrite",
    "Mark",
    "Overwrite",
    "Reducer",
    "State",
    "channels_of",
    "merge_keys",
]

State = Mapping[str, Any]
"""Values by channel name. Values are of the types the schema names; treat them as immutable."""


class Mark(Enum):
    """Mark of a state key: who sees it, and how long it lasts. Write it in `Annotated`."""

    OMIT_FROM_INPUT = "omit_from_input"
    """Callers cannot set it."""
    OMIT_FROM_OUTPUT = "omit_from_output"
    """Results do not carry it."""
    PRIVATE = "private"
    """Both of the above, and subagents do not receive it."""
    UNTRACKED = "untracked"
    """Lives as long as the run; never stored."""
    EPHEMERAL = "ephemeral"
    """Lives for one step; never stored."""
    CONTROL = "control"
    """Made of ids that the harness reads again, and clean texts: redaction leaves it as it is."""


@record
class Reducer:
    """Reducer of a state key: merges a write into the current value.

    Attributes:
        fn: `(current, write) -> new`; must not change its arguments.
        write: The type of a write, when it is not the type of the value.
        default: Makes the value before the first write.
        reconcile: Makes a write of a tool call fit those of other calls that ran beside it, so
            that none of them is lost. Given their writes, its own, and the call's id, it returns
            what is written instead, and a note for the caller; empty for nothing.
    """

    fn: Callable[[Any, Any], Any]
    write: Any = None
    default: Callable[[], Any] | None = None
    reconcile: Callable[[Sequence[Any], Any, str], tuple[Any, str]] | None = None


def merge_keys(current: Mapping[str, Any], write: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of both, those of the write before the others; a reducer of tables."""
    return {**current, **write}


@record
class Overwrite:
    """Write that replaces the value, instead of passing the reducer."""

    value: Any


_AT_ONCE = 32
"""How many stored lists are decoded as one. Each would cost a validation of its own, and all of a
long thread, joined and parsed at once, would not stay in the processor's cache."""


def _in_one(values: Sequence[bytes]) -> Sequence[bytes]:
    """Join JSON lists into one list; return the values unchanged if one of them is not a list."""
    if not all(value and value[0] == 0x5B and value[-1] == 0x5D for value in values):  # [ and ]
        return values
    inner = [value[1:-1] for value in values]
    return [b"[%b]" % b",".join([one for one in inner if one and not one.isspace()])]


class ChannelWrite(NamedTuple):
    """One write: the channel's name and what goes into it."""

    channel: str
    value: Any


def _joined(current: list[ToolCall] | None, write: list[ToolCall]) -> list[ToolCall]:
    return [*(current or ()), *write]


class AgentState(TypedDict):
    """The state every agent has."""

    messages: Annotated[
        NotRequired[list[Message]],
        Reducer(add_messages, write=list[MessageWrite], default=list[Message]),
    ]
    sent_calls: Annotated[NotRequired[list[ToolCall]], Reducer(_joined), Mark.PRIVATE]
    """Calls that tools of the step ask for; they run next (`Send`)."""

    run_choices: Annotated[NotRequired[dict[str, JsonValue] | None], Mark.PRIVATE, Mark.CONTROL]
    """What the caller chose for the run that took the newest input (`RunChoices`)."""


AGENT_KEYS = frozenset(AgentState.__annotations__)


@dataclass(frozen=True)
class Channel:
    """One state key.

    Attributes:
        name: The key.
        type: Annotation of the value, without marks.
        owner: Who declared it; used in error messages.
        reducer: None for last value.
        marks: Visibility and lifetime.
    """

    name: str
    type: Any
    owner: str
    reducer: Reducer | None = None
    marks: frozenset[Mark] = frozenset()

    @cached_property
    def stored(self) -> bool:
        """Whether writes go into the journal."""
        return not self.marks & {Mark.UNTRACKED, Mark.EPHEMERAL}

    @cached_property
    def joins(self) -> bool:
        """Whether writes that follow each other may be read as one, a list of all their items."""
        return self.reducer is not None and self.reducer.fn is add_messages

    @property
    def private(self) -> bool:
        """Whether the key stays inside one agent."""
        return Mark.PRIVATE in self.marks

    @cached_property
    def _value_adapter(self) -> TypeAdapter[Any]:
        return self._adapter(self.type)

    @cached_property
    def _write_adapter(self) -> TypeAdapter[Any]:
        if self.reducer is None or self.reducer.write is None:
            return self._value_adapter
        return self._adapter(self.reducer.write)

    def _adapter(self, annotation: Any) -> TypeAdapter[Any]:
        try:
            return _adapter_of(annotation) if _hashable(annotation) else TypeAdapter(annotation)
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as error:
            raise AgentBuildError(
                f"state key {self.name!r} of {self.owner} has a type that cannot be stored: "
                f"{annotation!r}. Use JSON types, dataclasses, TypedDicts or pydantic models, or "
                f"mark the key Mark.UNTRACKED. ({str(error).splitlines()[0]})"
            ) from error

    def check(self) -> None:
        """Raise `AgentBuildError` if values of this channel could not be stored."""
        if self.stored:
            _ = self._write_adapter, self._value_adapter

    def coerce(self, write: Any) -> Any:
        """Validate a write from outside (input, `update_state`).

        Raises:
            InvalidUpdate: It does not fit the key's type.
        """
        overwrite = isinstance(write, Overwrite)
        adapter = self._value_adapter if overwrite else self._write_adapter
        value = write.value if overwrite else write
        if type(value) is Transcript:
            value = [*value]  # what its type says
        try:
            value = adapter.validator.validate_python(value)
        except ValidationError as error:
            raise InvalidUpdate(f"{self.name!r} was given a wrong value: {error}") from error
        return Overwrite(value) if overwrite else value

    def encode(self, write: Any) -> bytes:
        """Return the JSON bytes of a write or of an overwriting value.

        Raises:
            InvalidUpdate: The value is not what its type says, or could not be read again.
        """
        overwrite = isinstance(write, Overwrite)
        adapter = self._value_adapter if overwrite else self._write_adapter
        value = write.value if overwrite else write
        if type(value) is Transcript:
            value = [*value]
        data = self._json(adapter, value, by_alias=False)
        if self.name in AGENT_KEYS:  # these can always be read again
            return data
        kept, problem = self._kept(adapter, data, by_alias=False)
        if not kept:
            other = self._json(adapter, value, by_alias=True)
            also, failed = self._kept(adapter, other, by_alias=True)
            if also or (problem is not None and failed is None):
                return other
        if problem is not None:
            raise InvalidUpdate(
                f"a value of {self.name!r} could not be read again from JSON, so nothing was "
                f"stored: {problem}. NaN, infinity and excluded fields are usual causes."
            )
        return data

    def _kept(
        self, adapter: TypeAdapter[Any], data: bytes, *, by_alias: bool
    ) -> tuple[bool, str | None]:
        """Return whether all of the JSON comes back, and why it cannot be read."""
        try:
            back = adapter.validate_json(data)
            return self._json(adapter, back, by_alias=by_alias) == data, None
        except ValidationError as error:
            return False, error.errors(include_url=False, include_input=False)[0]["msg"]
        except InvalidUpdate:  # what is read does not fit the type any more
            return False, None

    def _json(self, adapter: TypeAdapter[Any], value: Any, *, by_alias: bool) -> bytes:
        try:
            data = adapter.serializer.to_json(
                value, by_alias=by_alias, round_trip=True, warnings="error"
            )
        except PydanticSerializationError as error:
            what = f"a value of {self.name!r} does not fit its type"
            raise InvalidUpdate(f"{what}, so nothing was stored: {error}") from error
        if not can_be_read(data):
            raise InvalidUpdate(
                f"a value of {self.name!r} is nested too deeply to be read again, so nothing was "
                "stored. Make it flatter."
            )
        return data

    def decode(self, data: bytes, *, overwrite: bool = False) -> Any:
        """Return the write that `encode` stored.

        Raises:
            CheckpointError: The stored bytes do not fit the key's type any more.
        """
        adapter = self._value_adapter if overwrite else self._write_adapter
        try:
            value = adapter.validate_json(data)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise CheckpointError(
                f"a stored value of {self.name!r} does not fit its type {self.type!r}: {problem}. "
                "The thread was not changed. Give the key the type it had, or another name."
            ) from error
        return Overwrite(value) if overwrite else value

    def decode_lists(self, values: Sequence[bytes]) -> list[Any]:
        """Return the items of all writes, of a key whose writes are lists, that `encode` stored.

        Raises:
            CheckpointError: As for `decode`.
        """
        items: list[Any] = []
        for first in range(0, len(values), _AT_ONCE):
            for data in _in_one(values[first : first + _AT_ONCE]):
                items += self.decode(data)
        return items

    def to_json(self, value: Any) -> JsonValue:
        """Return the value as JSON data, for people and clients to read."""
        if type(value) is Transcript:
            value = [*value]
        return self._value_adapter.dump_python(value, mode="json")

    def apply(self, current: Any, write: Any) -> Any:
        """Return the value after a write."""
        if isinstance(write, Overwrite):
            return write.value
        return write if self.reducer is None else self.reducer.fn(current, write)

    def initial(self) -> Any:
        """Return the value before the first write; None when the key is simply absent."""
        if self.reducer is not None and self.reducer.default is not None:
            return self.reducer.default()
        return None


@lru_cache(maxsize=512)
def _adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type; agents share them, as each takes milliseconds to build."""
    return TypeAdapter(annotation)


def _hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def _parse(name: str, annotation: Any, owner: str) -> Channel:
    reducer: Reducer | None = None
    marks: set[Mark] = set()
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *extras = get_args(annotation)
            for extra in extras:
                if isinstance(extra, Reducer):
                    reducer = reducer or extra
                elif isinstance(extra, Mark):
                    marks.add(extra)
        elif origin is NotRequired:
            (annotation,) = get_args(annotation)
        else:
            break
    return Channel(name, annotation, owner, reducer, frozenset(marks))


@lru_cache(maxsize=256)
def channels_of(schema: type, owner: str) -> Mapping[str, Channel]:
    """Return the channels that a TypedDict declares, by name.

    Raises:
        AgentBuildError: It is no TypedDict, an annotation cannot be resolved, or a key is the
            loop's own and is not declared as the loop does.
    """
    channels = _declared(schema, owner)
    if schema is not AgentState:
        for name in AGENT_KEYS & channels.keys():
            _check_kept(channels[name], _declared(AgentState, "the agent")[name])
    if "jump_to" in channels:
        raise AgentBuildError(
            f"{owner} declares the state key 'jump_to', which is never state: in what a hook "
            "returns it says where the loop goes next. Take another name."
        )
    return channels


def _declared(schema: type, owner: str) -> Mapping[str, Channel]:
    try:
        hints = get_type_hints(schema, include_extras=True)
    except NameError as error:
        raise AgentBuildError(
            f"the state schema {schema.__name__} of {owner} names a type that is not "
            f"known at run time: {error}. Import it outside of TYPE_CHECKING."
        ) from error
    except TypeError as error:
        raise AgentBuildError(
            f"the state schema of {owner} must be a TypedDict; got {schema!r:.200}"
        ) from error
    return {key: _parse(key, annotation, owner) for key, annotation in hints.items()}


def _check_kept(channel: Channel, own: Channel) -> None:
    """Raise `AgentBuildError` if the loop could not work with a redeclared key of its own."""
    reducer, needed = channel.reducer, own.reducer
    if channel.type != own.type:
        what = f"with another type, {channel.type!r}"
    elif channel.marks != own.marks:
        what = "with other marks"
    elif needed is not None and reducer is None:
        what = "without its reducer"
    elif needed is not None and reducer is not None and reducer.write != needed.write:
        what = "with a reducer that takes other writes"
    elif channel.initial() != own.initial():
        what = "with a reducer of another default"
    else:
        return
    raise AgentBuildError(
        f"{channel.owner} declares the state key {channel.name!r} {what}, but the loop keeps its "
        "own data there. Leave the key out, as every agent has it, or repeat it as AgentState "
        "declares it. For state of your own take another name."
    )
