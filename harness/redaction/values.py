"""Redaction of JSON data and messages, and the vault for the original values.

Every text inside JSON data and messages is redacted; unchanged parts are not copied. The vault
stores the values of reversible tokens on the server, separately from threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from pydantic import JsonValue

from .._internal.json_bounds import bounded, problems_of
from .._internal.records import changed
from ..messages.message import (
    AIMessage,
    AnswerBlock,
    Content,
    DocumentBlock,
    HumanMessage,
    ProviderBlock,
    RemoveMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
)
from . import NumberText

if TYPE_CHECKING:
    from ..store.base import Namespace, Store

__all__ = [
    "Clean",
    "StoreVault",
    "Vault",
    "clean_call",
    "clean_json",
    "clean_json_bytes",
    "clean_message",
    "clean_number",
    "numbers_again",
]


Clean: TypeAlias = Callable[[str], str]
"""A function that returns the redacted text."""

BlockT = TypeVar("BlockT", bound=object)

_LONG = 10**12
"""Integers of this size or larger may be card numbers. All detectors get them."""

_OPAQUE = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "signature"})
"""Fields that a provider must get back unchanged. Only the provider can read them."""


def clean_json(
    value: JsonValue, clean: Clean, keep: frozenset[str] = frozenset(), *, numbers: bool = True
) -> JsonValue:
    """Return JSON data with every text redacted, keys included; the same object if unchanged.

    A number that is redacted becomes a text. Keys that become equal are numbered.

    Args:
        value: The data.
        clean: Redacts a text.
        keep: Keys whose values stay unchanged.
        numbers: Whether all numbers are checked, or only integers that may be card numbers. Turn
            it off for data whose numbers somebody else relies on.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        items = [clean_json(one, clean, keep, numbers=numbers) for one in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if isinstance(value, dict):
        return _clean_object(value, clean, keep, numbers)
    return clean_number(value, clean, short=numbers)


def clean_number(value: Any, clean: Clean, *, short: bool) -> Any:
    """Return a number, or its replacement; `short` says whether short ones are checked."""
    if type(value) is int and abs(value) >= _LONG:
        text = str(value)
    elif short and type(value) in (int, float):
        text = NumberText(value)
    else:
        return value
    cleaned = clean(text)
    return value if cleaned == text else cleaned


_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def numbers_again(
    revealed: dict[str, JsonValue], redacted: Mapping[str, JsonValue], schema: Mapping[str, Any]
) -> dict[str, JsonValue]:
    """Return the arguments of a tool, with numbers where it refuses the texts they became.

    Args:
        revealed: The arguments with the original values, all of which are texts; may be changed.
        redacted: The arguments that `clean_json` made them from.
        schema: The schema of the tool's arguments.
    """
    for error in problems_of(bounded(schema), revealed):
        *above, key = error.absolute_path or [None]
        new, old = cast(Any, revealed), cast(Any, redacted)
        try:
            for part in above:
                new, old = new[part], old[part]
            value, before = new[key], old[key]
        except (KeyError, IndexError):  # a key was redacted
            continue
        if isinstance(value, str) and value != before and _NUMBER.fullmatch(value):
            new[key] = json.loads(value)
    return revealed


def _clean_object(
    value: dict[str, JsonValue], clean: Clean, keep: frozenset[str], numbers: bool
) -> dict[str, JsonValue]:
    cleaned: dict[str, JsonValue] = {}
    same = True
    for key, one in value.items():
        name = clean(key)
        item = one if key in keep else clean_json(one, clean, keep, numbers=numbers)
        same = same and name == key and item is one
        number = 2
        while name in cleaned:
            name, number = f"{clean(key)} ({number})", number + 1
        cleaned[name] = item
    return value if same else cleaned


def clean_json_bytes(data: bytes, clean: Clean, *, numbers: bool) -> bytes:
    """Return JSON redacted like `clean_json`; the same bytes if nothing changed."""
    value = json.loads(data)
    cleaned = clean_json(value, clean, numbers=numbers)
    if cleaned is value or cleaned == value:
        return data
    return json.dumps(cleaned, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def clean_call(call: ToolCall, clean: Clean) -> ToolCall:
    """Return a call with redacted arguments; its id stays, because the result refers to it."""
    args = cast("dict[str, JsonValue]", clean_json(call.args, clean))
    name = clean(call.name)
    invalid = None if call.invalid is None else clean(call.invalid)
    if args is call.args and name == call.name and invalid == call.invalid:
        return call
    return changed(call, args=args, name=name, invalid=invalid)


def clean_message(message: Any, clean: Clean) -> Any:
    """Return a redacted message, or a redacted write that removes one."""
    match message:
        case HumanMessage():
            content = _clean_content(message.content, clean)
            return message if content is message.content else changed(message, content=content)
        case AIMessage():
            blocks = _clean_blocks(message.content, clean)
            return message if blocks is message.content else changed(message, content=blocks)
        case ToolMessage():
            return _clean_result(message, clean)
        case RemoveMessage():
            return message
        case _:
            return message


def _clean_result(message: ToolMessage, clean: Clean) -> ToolMessage:
    content = _clean_content(message.content, clean)
    artifact = clean_json(message.artifact, clean)
    name = clean(message.name)
    if content is message.content and artifact is message.artifact and name == message.name:
        return message
    return changed(message, content=content, artifact=artifact, name=name)


def _clean_content(content: Content, clean: Clean) -> Content:
    if isinstance(content, str):
        cleaned = clean(content)
        return content if cleaned == content else cleaned
    return _clean_blocks(content, clean)


def _clean_blocks(blocks: tuple[BlockT, ...], clean: Clean) -> tuple[BlockT, ...]:
    """Return redacted blocks; adjacent texts are joined where a match spans them."""
    cleaned: list[Any] = []
    for is_text, group in groupby(blocks, key=lambda one: isinstance(one, TextBlock)):
        if is_text:
            cleaned += _clean_texts([*group], clean)
        else:
            cleaned += [_clean_block(one, clean) for one in group]
    if len(cleaned) == len(blocks) and all(a is b for a, b in zip(cleaned, blocks, strict=True)):
        return blocks
    return tuple(cleaned)


def _clean_texts(blocks: Sequence[Any], clean: Clean) -> list[TextBlock]:
    texts = [one.text for one in blocks]
    cleaned = [clean(text) for text in texts]
    if len(blocks) > 1:
        joined = "".join(cleaned)
        whole = clean(joined)
        if whole != joined:
            return [TextBlock(whole)]
    return [
        one if text == one.text else TextBlock(text)
        for one, text in zip(blocks, cleaned, strict=True)
    ]


def _clean_block(block: Any, clean: Clean) -> AnswerBlock | DocumentBlock:
    match block:
        case ToolCall():
            return clean_call(block, clean)
        case ThinkingBlock(thinking):
            cleaned = clean(thinking)
            # The signature is valid only for the old text: the provider would refuse a new one.
            return block if cleaned == thinking else ThinkingBlock(cleaned)
        case ProviderBlock(provider, data):
            cleaned_data = cast(
                "dict[str, JsonValue]", clean_json(data, clean, _OPAQUE, numbers=False)
            )
            return block if cleaned_data is data else ProviderBlock(provider, cleaned_data)
        case DocumentBlock(name=name):
            cleaned = clean(name)
            return block if cleaned == name else changed(block, name=cleaned)
        case _:
            return block


class Vault(Protocol):
    """Vault: stores original values by token, for a thread and its copies."""

    async def keep(self, scope: str, values: Mapping[str, str]) -> None:
        """Store values by token. A token that exists already has the same value.

        Raises:
            HarnessError: They could not be stored. The run ends before a token is written.
        """
        ...

    async def find(self, scope: str, tokens: Iterable[str]) -> Mapping[str, str]:
        """Return the values of those tokens that are known."""
        ...


class StoreVault:
    """Vault in a long-term store. Models never see its values.

    Args:
        store: The store. Use another file or server than the journal's: anyone who can read both
            can reverse the tokens.
        namespace: Namespace for the values.
    """

    def __init__(self, store: Store, namespace: Namespace = ("redaction",)) -> None:
        self._store = store
        self._namespace = namespace

    async def keep(self, scope: str, values: Mapping[str, str]) -> None:
        """Store values by token."""
        from ..store.base import Put

        place = (*self._namespace, scope)
        await self._store.batch(
            [
                Put(place, token, {"value": value}, index=False, ttl=None)
                for token, value in values.items()
            ]
        )

    async def find(self, scope: str, tokens: Iterable[str]) -> Mapping[str, str]:
        """Return the values of those tokens that are known."""
        from ..store.base import Get, Item

        wanted = list(dict.fromkeys(tokens))
        place = (*self._namespace, scope)
        found = await self._store.batch([Get(place, one) for one in wanted])
        values: dict[str, str] = {}
        for token, item in zip(wanted, found, strict=True):
            value = item.value.get("value") if isinstance(item, Item) else None
            if isinstance(value, str):
                values[token] = value
        return values
