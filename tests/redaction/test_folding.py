"""Values in other digits and widths are found where they stand."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.redaction import folded
from tests.redaction.samples import SECRETS
from tests.redaction.test_streams import redactor, rule

DIGITS = [
    chr(zero)
    for zero in range(128, sys.maxunicode)
    if chr(zero).isdecimal() and folded(chr(zero)) == "0"
]
"""The zeros of all scripts: their other digits follow them."""

WIDE = {code: code + 0xFEE0 for code in range(33, 127)}
NUMBERS = [
    (name, value)
    for name in ("credit_card", "phone", "iban", "ip", "mac_address", "email")
    for value in SECRETS[name]
]


def in_digits_of(zero: str, text: str) -> str:
    return text.translate({48 + number: ord(zero) + number for number in range(10)})


def test_a_card_number_is_found_in_the_digits_of_every_script() -> None:
    for zero in DIGITS:
        text = in_digits_of(zero, "card 4111 1111 1111 1111, thanks")
        assert redactor(rule("credit_card"))(text) == "card [REDACTED_CREDIT_CARD], thanks", zero


@pytest.mark.parametrize(("name", "value"), NUMBERS)
def test_a_value_of_full_width_is_found(name: str, value: str) -> None:
    text = f"see {value.translate(WIDE)} there"
    assert redactor(rule(name))(text) == redactor(rule(name))(f"see {value} there")


@pytest.mark.parametrize("dash", "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d")
def test_any_dash_or_space_may_stand_between_groups(dash: str) -> None:
    for between in (dash, *"\u00a0\u2003\u2007\u2009\u202f\u3000"):
        text = between.join(["4111", "1111", "1111", "1111"])
        assert redactor(rule("credit_card"))(text) == "[REDACTED_CREDIT_CARD]"


@pytest.mark.parametrize("digits", ["⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉", "⓪①②③④⑤⑥⑦⑧⑨", "0⑴⑵⑶⑷⑸⑹⑺⑻⑼"])
def test_raised_lowered_and_circled_digits_are_digits(digits: str) -> None:
    text = "card 4111111111111111".translate({48 + at: one for at, one in enumerate(digits)})
    assert redactor(rule("credit_card"))(text) == "card [REDACTED_CREDIT_CARD]"


@pytest.mark.parametrize("between", "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")
def test_what_nobody_sees_hides_no_card_number(between: str) -> None:
    for groups in (["4111", "1111", "1111", "1111"], [*"4111111111111111"]):
        text = f"{between.join(groups)}{between}, thanks"
        said = redactor(rule("credit_card"))(text)
        assert said == f"[REDACTED_CREDIT_CARD]{between}, thanks"
        assert "1111" in redactor(rule("credit_card", "mask"))(text)


def test_a_masked_card_shows_its_last_four_digits() -> None:
    mask = redactor(rule("credit_card", "mask"))
    assert mask("4111 1111 1111 1111".translate(WIDE)).endswith("1111")


@given(st.text())
def test_a_folded_text_has_the_same_length_and_ascii_stays(text: str) -> None:
    plain = folded(text)
    assert len(plain) == len(text)
    assert all(new == old for new, old in zip(plain, text, strict=True) if old.isascii())
    assert folded(plain) == plain
