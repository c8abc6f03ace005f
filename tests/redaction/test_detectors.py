from __future__ import annotations

import re
import time
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError
from deep_agent_mcp.harness.redaction.detectors import BUILTIN
from deep_agent_mcp.harness.redaction.detectors.custom import CallableDetector, RegexDetector
from deep_agent_mcp.harness.redaction.engine import EngineDetector
from deep_agent_mcp.harness.redaction.rules import Keys, PIIDetectionError, Redactor, Strategy
from tests.redaction.samples import HARMLESS, SECRETS
from tests.redaction.test_streams import ALL, pieces_of_text, redactor, rule, texts

EVERY = [(name, value) for name, values in SECRETS.items() for value in values]
CORE = re.compile(r"[A-Za-z0-9]{4,}")


@pytest.mark.parametrize(("name", "value"), EVERY)
def test_a_value_is_found_whole_wherever_it_stands(name: str, value: str) -> None:
    for around in ("{}", "x {} y", "({}),", "is:{};", '{{"a":"{}"}}', "{}.\nNext"):
        cleaned = redactor(rule(name))(around.format(value))
        assert f"[REDACTED_{name.upper()}]" in cleaned, around
        left = cleaned.replace(f"[REDACTED_{name.upper()}]", "")
        assert not [one for one in CORE.findall(value) if one in left and one not in around], around


@pytest.mark.parametrize(
    ("name", "text"), [(name, one) for name, several in HARMLESS.items() for one in several]
)
def test_what_only_looks_like_one_stays(name: str, text: str) -> None:
    assert redactor(rule(name))(text) == text


@pytest.mark.parametrize(
    "text",
    [
        'api_key = "Zx81kQ9dLm27PqR4"',
        "API-KEY: Zx81kQ9dLm27PqR4",
        '{"client_secret":"Zx81kQ9dLm27PqR4"}',
        "Authorization: Bearer Zx81kQ9dLm27PqR4",
        "AWS_SECRET_ACCESS_KEY=Zx81kQ9dLm27PqR4",
    ],
)
def test_a_random_value_that_is_called_a_key_is_one(text: str) -> None:
    cleaned = redactor(rule("api_key"))(text)
    assert "Zx81kQ9dLm27PqR4" not in cleaned
    assert cleaned == text.replace("Zx81kQ9dLm27PqR4", "[REDACTED_API_KEY]")


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("email", "ann@example.org", "ann@****.org"),
        ("credit_card", "4111 1111 1111 1111", "**** **** **** 1111"),
        ("credit_card", "378282246310005", "************0005"),
        ("ip", "192.168.17.23", "*.*.*.23"),
        ("ip", "2001:db8::8a2e", "****:8a2e"),
        ("mac_address", "00:1A:2b:3c:4d:5e", "**:**:**:**:**:5e"),
        ("url", "https://example.com/x", "[MASKED_URL]"),
        ("phone", "+49 30 1234567", "****4567"),
        ("private_key", SECRETS["private_key"][0], "[MASKED_PRIVATE_KEY]"),
    ],
)
def test_a_mask_keeps_the_part_that_people_know_it_by(name: str, value: str, masked: str) -> None:
    assert redactor(rule(name, "mask"))(f"a {value} b") == f"a {masked} b"


def test_a_private_key_without_its_end_is_hidden_to_the_end_of_the_text() -> None:
    cut = "see -----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7"
    assert redactor(rule("private_key"))(cut) == "see [REDACTED_PRIVATE_KEY]"


def test_a_card_beside_other_numbers_is_hidden_whole() -> None:
    cards = redactor(rule("credit_card"))
    assert "1111" not in cards("4111 1111 1111 1111 123 12/27")
    assert "1111" not in cards("no 12 4111 1111 1111 1111")


def test_a_card_in_an_address_goes_with_the_address() -> None:
    url, card = rule("url", "mask"), rule("credit_card", "mask")
    text = "see https://shop.example/pay?card=4111111111111111&x=secret-path now"
    for both in (redactor(url, card), redactor(card, url)):
        assert both(text) == "see [REDACTED_URL] now"  # no mask shows a part of either


def test_matches_that_overlap_are_one_and_a_mask_shows_nothing_of_the_other() -> None:
    text = "4111111111111111@example.com"
    both = redactor(rule("email", "mask"), rule("credit_card"))
    assert both(text) == "[REDACTED_EMAIL]"
    assert redactor(rule("email", "mask"))(text) == "4111111111111111@****.com"


def test_one_that_blocks_blocks_what_overlaps() -> None:
    both = redactor(rule("url"), rule("credit_card", "block"))
    with pytest.raises(PIIDetectionError, match="credit_card"):
        both("https://x.example/4111111111111111")


def test_of_partly_overlapping_matches_the_longer_names_the_whole() -> None:
    first = rule("first", detector=RegexDetector("abcd"))
    second = rule("second", "mask", RegexDetector("cdefgh"))
    assert redactor(first, second)("xabcdefghx") == "x[REDACTED_SECOND]x"
    assert redactor(second, first)("xabcdefghx") == "x[REDACTED_SECOND]x"


@given(
    st.lists(pieces_of_text, max_size=6).map(" ".join),
    st.sampled_from(["redact", "mask", "hash", "tokenize"]),
)
def test_what_is_clean_stays_as_it_is(text: str, strategy: Strategy) -> None:
    one = redactor(*(rule(name, strategy) for name in BUILTIN))
    cleaned = one(text)
    assert one(cleaned) == cleaned


@given(texts)
def test_matches_are_in_order_and_do_not_overlap(text: str) -> None:
    matches = ALL.find(text)
    assert all(a.end <= b.start for a, b in pairwise(matches))
    assert all(0 <= one.start < one.end <= len(text) for one in matches)


def test_equal_values_have_equal_hashes_in_a_thread_and_others_in_another() -> None:
    emails = [rule("email", "hash")]
    here, there = Redactor(emails, Keys("aa")), Redactor(emails, Keys("bb"))
    assert here("ann@example.com") == here("ann@example.com")
    assert re.fullmatch(r"<email_hash:[0-9a-f]{8}>", here("ann@example.com"))
    assert here("ann@example.com") not in (there("ann@example.com"), here("bob@example.com"))


HOSTILE = [
    "a", "1", " ", "1 ", "-", "@", "a@", "a.", ".", ":", "::", "a:", "0:", "/", "www.", "http://",
    "a@a.", "+1", "+1 ", "(0", "DE89 ", "DE", "eyJ", "sk-", "token ", "secret=", "-----BEGIN ",
    "-----BEGIN PRIVATE KEY-----", "00:", "aa-", "0.0.0.", "é", "x@x.co", "4111 1111 ", "A1 ",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_texts_take_time_in_proportion(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        begun = time.thread_time()
        ALL(text)
        ALL.open_from(text)
        return time.thread_time() - begun

    seconds(1_000)
    assert seconds(80_000) < 20 * min(seconds(10_000), seconds(10_000)) + 0.1


def test_an_expression_that_takes_too_long_hides_the_text() -> None:
    slow = redactor(rule("own", detector=RegexDetector(r"(a|a?)+b")))
    begun = time.thread_time()
    assert slow("a" * 5_000 + "!b") == "[REDACTED_OWN]"
    assert time.thread_time() - begun < 2


def test_many_slow_texts_together_take_a_bounded_time_and_none_is_let_through() -> None:
    detector = RegexDetector(r"(a|a?)+b|secret\d")
    slow = redactor(rule("own", detector=detector))
    started = time.thread_time()
    for number in range(40):
        assert slow(f"{number} " + "a" * 5_000 + "!b") == "[REDACTED_OWN]"
    assert time.thread_time() - started < 5, "each may take 0.25 s, all of them a second"
    # What is fast is looked at as ever.
    assert slow("say secret7 and " + "word " * 20_000).startswith("say [REDACTED_OWN] and word")
    refusing = redactor(rule("own", "block", detector))
    for _ in range(8):
        with pytest.raises(PIIDetectionError):
            refusing("a" * 5_000 + "!b")


def test_an_expression_that_is_none_is_refused_when_it_is_given() -> None:
    with pytest.raises(AgentBuildError, match="not a regular expression"):
        RegexDetector("(")
    with pytest.raises(AgentBuildError, match="matches nothing"):
        RegexDetector("x*")


def test_a_function_may_return_pairs_mappings_or_objects() -> None:
    @dataclass
    class Found:
        start: int
        end: int

    for one in ((2, 4), {"type": "x", "value": "cd", "start": 2, "end": 4}, Found(2, 4)):
        found = redactor(rule("own", detector=CallableDetector(lambda text, one=one: [one])))
        assert found("abcdef") == "ab[REDACTED_OWN]ef"


@pytest.mark.parametrize("wrong", [[(2, 99)], [(-1, 2)], ["ab"], [None], 7])
def test_a_function_that_returns_nonsense_lets_nothing_through(wrong: object) -> None:
    with pytest.raises(MiddlewareError):
        redactor(rule("own", detector=CallableDetector(lambda text: wrong)))("abc")  # type: ignore[arg-type,return-value]


def test_a_detector_that_raises_lets_nothing_through_and_its_error_says_nothing() -> None:
    def broken(text: str) -> list[tuple[int, int]]:
        raise ValueError(f"cannot read {text}")

    with pytest.raises(MiddlewareError) as raised:
        redactor(rule("own", detector=CallableDetector(broken)))("hunter2")
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None


@dataclass
class RecognizerResult:
    entity_type: str
    start: int
    end: int
    score: float


class AnalyzerEngine:
    """Has the interface of Presidio's engine."""

    def analyze(
        self, text: str, language: str, entities: list[str] | None = None
    ) -> list[RecognizerResult]:
        assert language == "de"
        found = [
            RecognizerResult("PERSON", one.start(), one.end(), 0.85)
            for one in re.finditer("Ann Lee", text)
        ]
        found += [
            RecognizerResult("LOCATION", one.start(), one.end(), 0.3)
            for one in re.finditer("Rome", text)
        ]
        return [one for one in found if entities is None or one.entity_type in entities]


def test_an_analyser_is_plugged_in() -> None:
    engine = EngineDetector(AnalyzerEngine(), ["PERSON", "LOCATION"], language="de")
    names = redactor(rule("person", detector=engine), rule("email"))
    assert names("Ann Lee <ann@example.com> in Rome") == (
        "[REDACTED_PERSON] <[REDACTED_EMAIL]> in Rome"
    )
    sure = EngineDetector(AnalyzerEngine(), language="de", score=0.2, boundary="line")
    assert redactor(rule("entity", detector=sure))("in Rome") == "in [REDACTED_ENTITY]"
