"""Where each detector ends: the longest and shortest that count, and what stands right beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from deep_agent_mcp.harness.errors import MiddlewareError
from deep_agent_mcp.harness.redaction.detectors.custom import CallableDetector
from deep_agent_mcp.harness.redaction.engine import EngineDetector
from deep_agent_mcp.harness.redaction.rules import Keys, Redactor
from deep_agent_mcp.harness.redaction.streams import ScreenedStore, TextStream
from deep_agent_mcp.harness.store.base import Namespace, Put
from deep_agent_mcp.harness.store.memory import MemoryStore
from tests.redaction.samples import IBANS
from tests.redaction.test_streams import redactor, rule, streamed

LONGEST = max(IBANS, key=len)


@pytest.mark.parametrize("value", IBANS)
def test_the_account_numbers_of_every_country_are_found(value: str) -> None:
    groups = " ".join(value[place : place + 4] for place in range(0, len(value), 4))
    for text in (value, value.lower(), groups):
        assert redactor(rule("iban"))(f"to {text}, please") == "to [REDACTED_IBAN], please"
        shorter = f"to {text[:-1]}, please"
        assert redactor(rule("iban"))(shorter) == shorter


def test_a_printed_account_number_is_held_until_it_is_whole() -> None:
    one = redactor(rule("iban"))
    text = "to " + " ".join(IBANS[-1][at : at + 4] for at in range(0, len(IBANS[-1]), 4)) + " now"
    assert streamed(TextStream(one), text, [1] * len(text)) == one(text) == "to [REDACTED_IBAN] now"


@pytest.mark.parametrize(
    "value",
    [
        "a@x.org",
        "a@" + "x" * 63 + ".org",
        "a@example." + "o" * 63,
        "a@example.de",
        "a" * 64 + "@" + ".".join(["x" * 60] * 4) + ".org",
    ],
)
def test_short_and_long_addresses_are_found_whole(value: str) -> None:
    one = redactor(rule("email"))
    assert one(f"to {value} now") == "to [REDACTED_EMAIL] now"
    assert streamed(TextStream(one), f"to {value} now", [7] * 200) == "to [REDACTED_EMAIL] now"


@pytest.mark.parametrize("text", ["see @example.com", "@example.org wrote", "a@b.c", "a@.org"])
def test_half_an_address_is_none(text: str) -> None:
    assert redactor(rule("email"))(text) == text


def test_an_address_after_much_of_the_same_word_is_held() -> None:
    one = redactor(rule("email"))
    text = "a" * 300 + "@" + ".".join(["x" * 60] * 4) + ".org"
    assert streamed(TextStream(one), text, [3] * 300) == one(text) == "[REDACTED_EMAIL]"


@pytest.mark.parametrize(
    "value",
    [
        "4111 1111 1111 1111 003",
        "4111 1111 1111 1111 00",
        "3782 822463 10005",
        "378282 2463 10005",
        "630400 0000000000000",
    ],
)
def test_a_card_alone_is_found_however_it_is_grouped(value: str) -> None:
    assert redactor(rule("credit_card"))(f"no {value}.") == "no [REDACTED_CREDIT_CARD]."


@pytest.mark.parametrize(
    "value", ["4111 1111 1111 1111 003", "3782 822463 10005", "630400 0000000000000"]
)
def test_a_card_is_found_beside_others_as_it_is_printed(value: str) -> None:
    assert redactor(rule("credit_card"))(f"12 {value} 7") == "12 [REDACTED_CREDIT_CARD] 7"


def test_an_odd_group_of_digits_in_a_row_of_numbers_is_no_card() -> None:
    text = "7 4111 11111111 1111 rows"
    assert redactor(rule("credit_card"))(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("at ::1 now", "at [REDACTED_IP] now"),
        ("at fe80::1%e now", "at [REDACTED_IP] now"),
        ("at :fe80::1: now", "at :[REDACTED_IP]: now"),
        ("at 1:2:3:4:5:6:7:8 now", "at [REDACTED_IP] now"),
        ("at 1:2:3:4:5:6:7 now", "at 1:2:3:4:5:6:7 now"),
        ("at fe80::1. Now", "at [REDACTED_IP]. Now"),
        ("at fe80::1:xyz", "at [REDACTED_IP]:xyz"),
        ("at 2001:db8::/32", "at [REDACTED_IP]/32"),
        ("at 2001:db8::: down", "at [REDACTED_IP]: down"),
        ("at a:: and ::", "at a:: and ::"),
    ],
)
def test_an_address_is_found_beside_colons_and_stops(text: str, clean: str) -> None:
    assert redactor(rule("ip"))(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "+1234567",
        "+123456789012345",
        "00123456789",
        "030 123456",
        "030 12 34 56 78",
        "030 123 456 789",
        "0301 12345678",
    ],
)
def test_short_and_long_numbers_of_telephones_are_found_whole(text: str) -> None:
    assert redactor(rule("phone"))(f"tel {text}, ok") == "tel [REDACTED_PHONE], ok"


@pytest.mark.parametrize("text", ["030 1234", "030 12345678901", "202-555-01234", "0012345678"])
def test_numbers_that_no_telephone_has_stay(text: str) -> None:
    assert redactor(rule("phone"))(f"no {text}, ok") == f"no {text}, ok"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("00:1a:2b:3c:4d:5e:6f:70", True),
        ("001a.2b3c.4d5e.", True),
        ("x001a.2b3c.4d5e", False),
        ("1.001a.2b3c.4d5e", False),
        ("001a.2b3c.4d5e.6f70", False),
    ],
)
def test_hardware_addresses_stand_alone(text: str, found: bool) -> None:
    assert ("[REDACTED_MAC_ADDRESS]" in redactor(rule("mac_address"))(f"at {text} now")) is found


def test_private_keys_in_a_stream_are_held_and_what_is_between_them_goes_on() -> None:
    block = "-----BEGIN A B C D PRIVATE KEY-----\nMIIE\n-----END A B C D PRIVATE KEY-----"
    one = redactor(rule("private_key"))
    text = f"a {block} b - c {block} d ----- e -----BEGIN PRIVATE KEY-----\nMI"
    clean = "a [REDACTED_PRIVATE_KEY] b - c [REDACTED_PRIVATE_KEY] d ----- e [REDACTED_PRIVATE_KEY]"
    for size in (1, 7):
        assert streamed(TextStream(one), text, [size] * len(text)) == one(text) == clean
    stream = TextStream(one)
    assert stream.feed(f"a {block} b") == "a [REDACTED_PRIVATE_KEY] b"
    assert stream.feed(" -----BEGIN PRIVATE KEY-----\nMI") == " "


def test_of_a_long_line_only_the_last_part_is_looked_at_again() -> None:
    looked: list[int] = []

    def find(text: str) -> list[tuple[int, int]]:
        looked.append(len(text))
        return []

    own = rule("own", detector=CallableDetector(find, boundary="word"))
    stream = TextStream(redactor(own))
    passed = [stream.feed("words of a line ") for _ in range(1_000)]
    assert "".join([*passed, stream.close()]) == "words of a line " * 1_000
    assert 4_000 <= max(looked) <= 4_100


@dataclass
class Result:
    start: int
    end: int
    score: float = 1.0
    entity_type: str = "PERSON"


class Analyzer:
    def __init__(self, *results: Result) -> None:
        self.results = results
        self.asked: list[tuple[str, list[str] | None]] = []

    def analyze(
        self, text: str, language: str, entities: list[str] | None = None
    ) -> Sequence[Result]:
        self.asked.append((text, entities))
        return self.results


def test_an_analyser_is_asked_for_its_entities_and_not_about_nothing() -> None:
    engine = Analyzer(Result(0, 3, 0.5), Result(4, 4), Result(5, 7, 0.49))
    people = redactor(rule("person", detector=EngineDetector(engine, ("PERSON",))))
    assert people("Ann is in") == "[REDACTED_PERSON] is in"
    assert people(" \n") == " \n"
    assert engine.asked == [("Ann is in", ["PERSON"])]
    redactor(rule("any", detector=EngineDetector(engine)))("Ann is in")
    assert engine.asked[-1] == ("Ann is in", None)


@pytest.mark.parametrize("wrong", [Result(2, 99), Result(-1, 2), Result(3, 2)])
def test_an_analyser_that_returns_nonsense_lets_nothing_through(wrong: Result) -> None:
    with pytest.raises(MiddlewareError, match="nothing was let through"):
        redactor(rule("person", detector=EngineDetector(Analyzer(wrong))))("Ann Lee")


class Order:
    """A vault and a store that note what comes when."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    async def keep(self, scope: str, values: object) -> None:
        self.noted.append("vault")

    async def find(self, scope: str, tokens: object) -> dict[str, str]:
        return {}

    async def put(self, namespace: Namespace, key: str, value: object, **more: object) -> None:
        self.noted.append("item")

    async def batch(self, operations: object) -> list[None]:
        self.noted.append("item")
        return []


@pytest.mark.anyio
async def test_the_value_of_a_token_is_stored_before_the_item_that_names_it() -> None:
    order, keys = Order(), Keys("00" * 16)
    emails = Redactor([replace(rule("email", "tokenize"), vault=order)], keys)
    store = ScreenedStore(order, emails, keys)  # type: ignore[arg-type]
    await store.put(("n",), "one", {"to": "ann@example.com"})
    await store.batch([Put(("n",), "two", {"to": "bob@example.com"})])
    assert order.noted == ["vault", "item", "vault", "item"]


@pytest.mark.anyio
async def test_a_value_that_no_store_takes_is_refused_by_the_store_itself() -> None:
    plain, keys = MemoryStore(), Keys("00" * 16)
    screened = ScreenedStore(plain, redactor(rule("email")), keys)
    said: list[str] = []
    for store in (plain, screened):
        with pytest.raises(Exception, match="value") as raised:
            await store.put(("n",), "one", ["ann@example.com"])  # type: ignore[arg-type]
        said.append(f"{type(raised.value)} {raised.value}")
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("credit_card", separator.join(["4111", "1111", "1111", "1111"]))
            for separator in "\u00a0\u2009\u202f\u2010\u2011"
        ),
        ("iban", LONGEST[:4] + "".join(f" {one}" for one in LONGEST[4:])),
        ("ip", "2001:0db8:85a3:0000:0000:8a2e:0370:7334%wide-area-interface-17.4"),
        ("mac_address", "00-1A-2B-3C-4D-5E-6F-70"),
        ("url", "WWW.Example.org"),
        ("phone", "+49\u00a030\u00a01234567"),
        ("url", "postgres://user:" + "p" * 300 + "@db.internal:5432/main"),
    ],
)
def test_what_is_written_in_an_odd_way_is_held_in_a_stream_until_it_is_whole(
    name: str, value: str
) -> None:
    one, text = redactor(rule(name)), f"to {value} now"
    assert one(text) == f"to [REDACTED_{name.upper()}] now"
    for size in (1, 5):
        assert streamed(TextStream(one), text, [size] * len(text)) == one(text)
