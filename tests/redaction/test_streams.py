"""What a stream lets through is what the rules make of the whole text, however it is cut."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deep_agent_mcp.harness.models.base import Delta
from deep_agent_mcp.harness.redaction import Detector
from deep_agent_mcp.harness.redaction.detectors import BUILTIN
from deep_agent_mcp.harness.redaction.detectors.custom import CallableDetector, RegexDetector
from deep_agent_mcp.harness.redaction.rules import Keys, PIIDetectionError, Redactor, Rule, Strategy
from deep_agent_mcp.harness.redaction.streams import DeltaStream, JsonStream, TextStream
from deep_agent_mcp.harness.redaction.values import clean_json
from tests.redaction.samples import SECRETS

PLACES = frozenset({"input", "output", "tools"})


def rule(name: str, strategy: Strategy = "redact", detector: Detector | None = None) -> Rule:
    found = detector or BUILTIN[name]
    mask = getattr(found, "mask", lambda value: "****")
    return Rule(name, found, strategy, PLACES, mask)  # type: ignore[arg-type]


def redactor(*rules: Rule) -> Redactor:
    return Redactor(rules, Keys("00" * 16))


ALL = redactor(*map(rule, BUILTIN))

pieces_of_text = st.sampled_from(
    [one for values in SECRETS.values() for one in values]
    + ["\n", " ", ", ", "x", "7", "-", ".", "@", ":", "/", "key: ", "api_key=", "tel ", "(", "…"]
    + [
        "http://",
        "www.",
        "-----BEGIN ",
        "2001:",
        "DE",
        "+1 ",
        "4111 ",
        "00:",
        "é",
        "中文",
        '"',
        "\\",
    ]
)
texts = st.lists(pieces_of_text | st.text(max_size=4), max_size=10).map("".join)


def streamed(stream: TextStream | JsonStream, text: str, cuts: Sequence[int]) -> str:
    out: list[str] = []
    place = 0
    for size in cuts:
        out.append(stream.feed(text[place : place + size]))
        place += size
        if place >= len(text):
            break
    out.append(stream.feed(text[place:]))
    return "".join([*out, stream.close()])


@given(texts, st.lists(st.integers(1, 7), max_size=200))
@example("a 4111 1111 1111 1111 12/25", [1] * 40)
@example("ip:fe80::1: x", [1] * 20)
@example("+1 555 123 4567 2024 and", [2] * 20)
@example("www.example.org/start\x1fann@example.comwww.0\x850", [1] * 50)
@example("www.example.org/a\u2003b/\u200bc", [1] * 30)
def test_any_cut_gives_the_same_text(text: str, cuts: Sequence[int]) -> None:
    assert streamed(TextStream(ALL), text, cuts) == ALL(text)


@given(texts, st.lists(st.integers(1, 5), max_size=80), st.sampled_from(sorted(BUILTIN)))
def test_so_it_is_with_each_detector_alone(text: str, cuts: Sequence[int], name: str) -> None:
    alone = redactor(rule(name, "mask"))
    assert streamed(TextStream(alone), text, cuts) == alone(text)


@given(
    st.text(alphabet="EMP-12 X\nab", max_size=40),
    st.lists(st.integers(1, 5), max_size=40),
    st.sampled_from([r"EMP-\d+(?:-X)?", r"EMP \d+( X)?", r"(?s)E.*?X", r"a[^b]+b", r"\d+(?= X)"]),
)
def test_and_with_expressions(text: str, cuts: Sequence[int], pattern: str) -> None:
    own = redactor(rule("own", detector=RegexDetector(pattern)))
    assert streamed(TextStream(own), text, cuts) == own(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"K\x0aL", "K\nL"),
        (r"K\u000aL", "K\nL"),
        (r"K\U0000000aL", "K\nL"),
        (r"K\012L", "K\nL"),
        (r"K\N{LINE FEED}L", "K\nL"),
        (r"K[\x00-\x7f]L", "K\nL"),
        (r"K[\t-z]L", "K\nL"),
        (r"K[\a-z]L", "K\nL"),
        (r"K[!-\u3000]L", "K\u2003L"),
        (r"K\fL", "K\fL"),
        (r"K\x20L", "K L"),
        ("K\u00a0L", "K\u00a0L"),
        (r"K\SL", "K\x1cL"),
        (r"(?:secret){e<=1}", "my sec\nret"),
        (r"(?:secret){i<=1}", "my sec ret"),
        (r"^K\d", "x\nK1"),
        (r"\AK\d", "x\nK1"),
        (r"K\d$", "K1\nx"),
        (r"K\d(?!$)", "K1\nx"),
        (r"(?m)^K\d$", "x\nK1\nxK2\nK3x"),
    ],
)
def test_what_an_expression_reaches_over_is_held(pattern: str, text: str) -> None:
    own = redactor(rule("own", detector=RegexDetector(pattern)))
    for size in (1, 2, 3):
        assert streamed(TextStream(own), text, [size] * len(text)) == own(text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"EMP\.\d{4,8}",
        r"[€$]\d+(?:\.\d\d)?",
        r"[A-Za-z\u00c0-\u024f]+\d",
        r"(\w)\1\d",
        r"key\[\S+\]",
    ],
)
def test_an_expression_without_white_space_holds_no_more_than_a_word(pattern: str) -> None:
    stream = TextStream(redactor(rule("own", detector=RegexDetector(pattern))))
    assert stream.feed("Some words go ") == "Some words go "
    assert stream.feed("on ") == "on "


@pytest.mark.parametrize(
    "pattern", [r"EMP \d+", r"EMP\ \d+", r"a.*b", r"(?m)^EMP\d+$", "a\tb", r"[ -~]+x"]
)
def test_an_expression_within_a_line_holds_no_more_than_that(pattern: str) -> None:
    stream = TextStream(redactor(rule("own", detector=RegexDetector(pattern))))
    assert stream.feed("Some words.\nGo") == "Some words.\n"


json_values = st.recursive(
    texts
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([4111111111111111, 1700000000000, None, True, 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from("abc"), json_values),
    st.booleans(),
    st.lists(st.integers(1, 6), max_size=300),
    st.sampled_from([ALL, redactor(rule("own", detector=RegexDetector(r"\d\d")))]),
)
def test_arguments_stay_json_and_are_what_is_stored(
    args: dict[str, object], ascii_only: bool, cuts: Sequence[int], clean: Redactor
) -> None:
    raw = json.dumps(args, ensure_ascii=ascii_only)
    seen = streamed(JsonStream(clean), raw, cuts)
    assert json.loads(seen, object_pairs_hook=_pairs) == _as_pairs(clean_json(args, clean))  # type: ignore[arg-type]


def _pairs(pairs: list[tuple[str, object]]) -> list[tuple[str, object]]:
    return [(_plain(key), value) for key, value in pairs]


def _plain(key: str) -> str:
    return key.rpartition(" (")[0] if key.endswith(")") and key[-2:-1].isdigit() else key


def _as_pairs(value: object) -> object:
    if isinstance(value, dict):
        return [(_plain(key), _as_pairs(one)) for key, one in value.items()]
    return [_as_pairs(one) for one in value] if isinstance(value, list) else value


def test_arguments_that_are_no_json_are_cleaned_too() -> None:
    stream = DeltaStream(ALL)
    text = '{"to": "ann@example.com", "x'
    out = [one for piece in text for one in stream.feed(Delta("tool_args", piece, "1", "send"))]
    out += stream.close()
    assert "".join(one.text for one in out) == '{"to": "[REDACTED_EMAIL]", "x'
    assert {(one.tool_call_id, one.tool_name) for one in out} == {("1", "send")}


def test_words_go_on_as_they_are_complete() -> None:
    stream = TextStream(ALL)
    assert [stream.feed(one) for one in ["Write ", "to ann@exa", "mple.com", " now"]] == [
        "Write ",
        "to ",
        "",
        "[REDACTED_EMAIL] ",
    ]
    assert stream.close() == "now"


def test_kinds_do_not_run_into_each_other() -> None:
    stream = DeltaStream(ALL)
    out = [*stream.feed(Delta("thinking", "ann@exa")), *stream.feed(Delta("text", "mple.com"))]
    assert [(one.kind, one.text) for one in [*out, *stream.close()]] == [
        ("thinking", "ann@exa"),
        ("text", "mple.com"),
    ]


def test_what_is_blocked_never_begins_to_appear() -> None:
    stream = TextStream(redactor(rule("credit_card", "block")))
    seen = stream.feed("my card: 4111 1111 11")
    with pytest.raises(PIIDetectionError) as raised:
        seen += stream.feed("11 1111 thanks")
    assert seen == "my card: "
    assert "1111" not in str(raised.value)


def test_a_function_sees_whole_texts_unless_its_matches_stay_in_a_line() -> None:
    def names(text: str) -> list[tuple[int, int]]:
        place = text.find("Ann Lee")
        return [(place, place + 7)] if place >= 0 else []

    whole = TextStream(redactor(rule("name", detector=CallableDetector(names))))
    assert [whole.feed("I am Ann"), whole.feed(" Lee\n"), whole.close()] == [
        "", "", "I am [REDACTED_NAME]\n",
    ]  # fmt: skip
    lines = TextStream(redactor(rule("name", detector=CallableDetector(names, boundary="line"))))
    assert [lines.feed("I am Ann"), lines.feed(" Lee\nSo"), lines.close()] == [
        "", "I am [REDACTED_NAME]\n", "So",
    ]  # fmt: skip


@pytest.mark.parametrize("char", ["a", "1", " ", "1 ", "-", "é", "\\u0040"])
def test_a_long_answer_in_small_pieces_takes_time_in_proportion(char: str) -> None:
    def seconds(size: int) -> float:
        stream = DeltaStream(ALL)
        begun = time.perf_counter()
        for _ in range(size):
            stream.feed(Delta("tool_args", char, "1", "t"))
        stream.close()
        return time.perf_counter() - begun

    seconds(100)
    assert seconds(16_000) < 12 * seconds(4_000) + 0.5


def test_of_a_match_that_began_in_what_has_gone_on_already_the_rest_is_hidden() -> None:
    class Hasty:
        """Says too soon that nothing is open."""

        def find(self, text: str) -> list[tuple[int, int]]:
            end = text.find("!")
            return [] if end < 0 else [(text.index("secret"), end)]

        def open_from(self, text: str) -> int:
            return len(text)

    stream = TextStream(redactor(rule("own", detector=Hasty())))
    assert [stream.feed("my secret is "), stream.feed("42!"), stream.close()] == [
        "my secret is ", "[REDACTED_OWN]!", "",
    ]  # fmt: skip
