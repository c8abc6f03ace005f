"""What is redacted inside of values, and what two rules or two runs make of the same thing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    DocumentBlock,
    HumanMessage,
    ProviderBlock,
    ToolMessage,
)
from deep_agent_mcp.harness.models.base import Delta
from deep_agent_mcp.harness.redaction.detectors.custom import CallableDetector, RegexDetector
from deep_agent_mcp.harness.redaction.engine import EngineDetector
from deep_agent_mcp.harness.redaction.rules import Keys, PIIDetectionError, Redactor, Strategy
from deep_agent_mcp.harness.redaction.streams import DeltaStream, JsonStream
from deep_agent_mcp.harness.redaction.values import clean_json, clean_message
from tests.redaction.test_streams import redactor, rule

CARDS = redactor(rule("credit_card"))


@pytest.mark.parametrize("number", [4222222222222, 4111111111111111, -4111111111111111])
def test_a_card_that_is_written_as_a_number_is_found(number: int) -> None:
    sign = "-" if number < 0 else ""
    cleaned = {"n": [f"{sign}[REDACTED_CREDIT_CARD]"]}
    assert clean_json({"n": [number]}, CARDS) == cleaned
    stream = JsonStream(CARDS)
    text = json.dumps({"n": [number]})
    assert json.loads("".join((*map(stream.feed, text), stream.close()))) == cleaned


@pytest.mark.parametrize("value", [422222222222, True, 4.111111111111111e15, None])
def test_other_numbers_stay_numbers(value: bool | float | None) -> None:
    assert clean_json(value, CARDS) is value


@pytest.mark.parametrize("value", [123456789, -123456789, 123456789.5, "123456789"])
@pytest.mark.parametrize(
    ("strategy", "hidden"),
    [
        ("redact", r"\[REDACTED_SSN\]"),
        ("mask", r"\*\*\*\*"),
        ("hash", "<ssn_hash:[0-9a-f]{8}>"),
        ("tokenize", "<ssn_ref:[a-p]{16}>"),
    ],
)
def test_what_an_own_pattern_finds_is_hidden_in_numbers_too(
    value: float | str, strategy: Strategy, hidden: str
) -> None:
    clean = redactor(rule("ssn", strategy, RegexDetector(r"\b\d{9}\b")), rule("credit_card"))
    whole = clean_json({"n": [value, 7, 2.5, True]}, clean)
    assert re.fullmatch(rf"\{{'n': \['-?{hidden}(\.5)?', 7, 2.5, True\]\}}", repr(whole))
    stream = JsonStream(clean)
    text = json.dumps({"n": [value, 7, 2.5, True]})
    assert json.loads("".join((*map(stream.feed, text), stream.close()))) == whole


def test_a_number_that_an_own_pattern_blocks_is_refused() -> None:
    clean = redactor(rule("ssn", "block", RegexDetector(r"\b\d{9}\b")))
    for value in (123456789, 123456789.5, "123456789"):
        with pytest.raises(PIIDetectionError, match="ssn"):
            clean_json([value], clean)
        stream = JsonStream(clean)
        with pytest.raises(PIIDetectionError, match="ssn"):
            stream.feed(json.dumps([value]))


def test_a_function_gets_numbers_as_text_and_an_analyser_does_not() -> None:
    seen: list[str] = []

    def note(text: str) -> list[tuple[int, int]]:
        seen.append(text)
        return []

    class Engine:
        def analyze(self, text: str, language: str, entities: object = None) -> list[Any]:
            seen.append(f"engine {text}")
            return []

    own = rule("own", detector=CallableDetector(note))
    people = rule("person", detector=EngineDetector(Engine()))
    assert clean_json([1999, 0.5, 4222222222222], redactor(own, people))
    assert seen == ["1999", "0.5", "4222222222222", "engine 4222222222222"]


def test_the_numbers_of_a_providers_block_stay_numbers() -> None:
    found = {"text": "123456789", "start_char_index": 123456789}
    message = AIMessage((ProviderBlock("anthropic", found),))
    clean = redactor(rule("ssn", detector=RegexDetector(r"\d{9}")))
    (block,) = clean_message(message, clean).content
    assert block.data == {**found, "text": "[REDACTED_SSN]"}


def test_the_name_of_a_document_is_looked_at_too() -> None:
    document = DocumentBlock("aGk=", "application/pdf", name="to ann@example.com")
    message = HumanMessage((document,))
    cleaned = clean_message(message, redactor(rule("email")))
    assert cleaned.content == (replace(document, name="to [REDACTED_EMAIL]"),)


def test_the_name_of_a_tool_that_a_model_made_up_is_looked_at_too() -> None:
    result = ToolMessage("c1", "there is no such tool", name="ann@example.com", status="error")
    assert clean_message(result, redactor(rule("email"))).name == "[REDACTED_EMAIL]"


@pytest.mark.parametrize(
    "key", ["encrypted_content", "encrypted_index", "encrypted_stdout", "signature"]
)
def test_of_a_providers_block_all_but_what_only_the_provider_can_read_is_looked_at(
    key: str,
) -> None:
    found = {"title": "ann@example.com", key: "ann@example.com"}
    message = AIMessage((ProviderBlock("anthropic", {"content": [found]}),))
    (block,) = clean_message(message, redactor(rule("email"))).content
    assert block.data == {"content": [{"title": "[REDACTED_EMAIL]", key: "ann@example.com"}]}


def test_of_matches_that_overlap_no_part_is_left_though_one_rule_found_them() -> None:
    found = CallableDetector(lambda text: [(0, 6), (3, 9)])
    masked = replace(rule("own", "mask", found), mask=lambda value: value[-4:])
    assert redactor(masked)("abcdefghi") == "[REDACTED_OWN]"
    alone = replace(masked, detector=CallableDetector(lambda text: [(0, 6)]))
    assert redactor(alone)("abcdefghi") == "cdefghi"


def test_hashes_do_not_tell_that_two_rules_have_found_the_same() -> None:
    keys, anything = Keys("00" * 16), CallableDetector(lambda text: [(0, len(text))])
    one, other = (rule(name, "hash", anything) for name in ("one", "other"))
    hashes = {Redactor([each], keys)("value").partition(":")[2] for each in (one, other)}
    assert len(hashes) == 2


class SlowVault:
    """A vault that takes its time."""

    def __init__(self) -> None:
        self.asked, self.go_on = anyio.Event(), anyio.Event()
        self.kept: dict[str, str] = {}

    async def keep(self, scope: str, values: Mapping[str, str]) -> None:
        self.asked.set()
        await self.go_on.wait()
        self.kept.update(values)

    async def find(self, scope: str, tokens: object) -> Mapping[str, str]:
        return self.kept


@pytest.mark.anyio
async def test_nobody_goes_on_while_another_still_stores_the_value_of_a_token() -> None:
    vault, keys, seen = SlowVault(), Keys("00" * 16), list[int]()
    emails = Redactor([replace(rule("email", "tokenize"), vault=vault)], keys)
    emails("ann@example.com")

    async def store() -> None:
        await keys.store()
        seen.append(len(vault.kept))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(store)
            await vault.asked.wait()
            group.start_soon(store)
            await anyio.wait_all_tasks_blocked()
            vault.go_on.set()
    assert seen == [1, 1]


@pytest.mark.anyio
async def test_a_token_made_while_others_are_stored_is_stored_the_next_time() -> None:
    vault, keys = SlowVault(), Keys("00" * 16)
    emails = Redactor([replace(rule("email", "tokenize"), vault=vault)], keys)
    emails("ann@example.com")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(keys.store)
            await vault.asked.wait()
            emails("bob@example.com")
            vault.go_on.set()
    assert [*vault.kept.values()] == ["ann@example.com"]
    await keys.store()
    assert [*vault.kept.values()] == ["ann@example.com", "bob@example.com"]
    assert keys.made == {}


def test_the_name_of_a_tool_is_clean_in_the_stream_of_its_arguments() -> None:
    stream = DeltaStream(redactor(rule("email")))
    (piece,) = stream.feed(Delta("tool_args", "{}", "c1", "ann@example.com"))
    assert (piece.tool_name, piece.text) == ("[REDACTED_EMAIL]", "{}")


def test_what_a_stream_holds_goes_on_before_the_next_kind_of_piece_begins() -> None:
    stream = DeltaStream(redactor(rule("email")))
    assert [one.text for one in stream.feed(Delta("thinking", "ask ann@example"))] == ["ask "]
    kinds = [(one.kind, one.text) for one in stream.feed(Delta("text", "I ask. "))]
    assert kinds == [("thinking", "ann@example"), ("text", "I ask. ")]
