"""Frontmatter: what is accepted, and that every refusal says where and what is expected."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.definitions.frontmatter import DefinitionError, Frontmatter, decode

PATH = Path("agents/x.md")


def parse(data: str | bytes) -> Frontmatter:
    data = data.encode() if isinstance(data, str) else data
    return Frontmatter.parse(decode(data, PATH), PATH)


def test_fields_become_json_and_the_rest_is_the_body():
    parsed = parse(
        "---\nname: x\nmetadata: {a: [1, 2.5, true, null]}\n---\n\n# Title\n\n---\nend\n"
    )
    assert parsed.fields == {"name": "x", "metadata": {"a": [1, 2.5, True, None]}}
    assert parsed.body == "# Title\n\n---\nend"


def test_who_changes_fields_changes_them_for_nobody_else():
    """What was parsed once is not parsed again, but each has fields of its own."""
    text = "---\nname: x\nmetadata: {a: [1]}\n---\n"
    metadata: Any = parse(text).fields["metadata"]
    metadata["a"].append(2)
    assert parse(text).fields["metadata"] == {"a": [1]}


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf---\nname: x\n---\nbody",
        b"---\r\nname: x\r\n---\r\nbody\r\n",
        b"---  \nname: x\n--- \nbody",
        b"---\rname: x\r---\rbody",
    ],
)
def test_marks_and_line_ends_of_every_platform_are_understood(data: bytes):
    parsed = parse(data)
    assert (parsed.fields, parsed.body) == ({"name": "x"}, "body")


def test_dates_stay_as_they_were_written():
    assert parse("---\nwhen: 2026-11-21\n---\n").fields == {"when": "2026-11-21"}


def test_a_dashed_line_inside_a_value_does_not_end_the_frontmatter():
    assert parse("---\nd: |\n  a\n  ---\n  b\n---\nbody").fields == {"d": "a\n---\nb\n"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "must begin with frontmatter"),
        ("# Title\n---\nname: x\n---\n", 1, "must begin with frontmatter"),
        ("\n---\nname: x\n---\n", 1, "must begin with frontmatter"),
        ("---\nname: x\n", 1, "not closed"),
        ("---\n---\nbody", 2, "key: value"),
        ("---\n- a\n---\n", 2, "key: value"),
        ("---\nname: x\ndescription: Note: this\n---\n", 3, "in quotes"),
        ("---\nname: x\n\tb: y\n---\n", 3, "not valid YAML"),
        ("---\nname: x\nname: y\n---\n", 3, "'name' appears twice"),
        ("---\na: &x [1]\nb: *x\n---\n", 3, "aliases"),
        ("---\na: !!python/object:os.system {}\n---\n", 2, "not valid YAML"),
        ("---\nname: x\na: !!binary aGk=\n---\n", 3, "a bytes is not allowed"),
        ("---\na: 1\nb: .inf\n---\n", 3, "infinite"),
        ("---\na:\n  1: x\n---\n", 2, "key 1 must be text"),
        ("---\nyes: x\n---\n", 2, "must be text"),
        ("---\na: \x00\n---\n", 2, "not valid YAML"),
        ("---\na: " + "[" * 5_000 + "\n---\n", 2, "nested too deeply"),
        ("---\na: " + "x" * 70_000 + "\n---\n", 1, "at most 64,000"),
    ],
)
def test_a_refusal_names_file_line_and_what_is_expected(text: str, line: int, words: str):
    with pytest.raises(DefinitionError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"{PATH}:{line}: ")
    assert words in str(caught.value)


def test_text_in_another_encoding_is_refused_with_its_line():
    with pytest.raises(DefinitionError, match=r"x\.md:3: not UTF-8"):
        parse("---\nname: x\ndescription: süß\n---\n".encode("latin-1"))


def test_a_file_over_the_cap_is_refused():
    with pytest.raises(DefinitionError, match="10,000,000"):
        parse(b"---\nname: x\n---\n" + b"x" * 10_000_000)


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("Read, Bash(git add:*) grep", ("Read", "Bash(git add:*)", "grep")),
        ("[read_file, grep]", ("read_file", "grep")),
        ("[]", ()),
        ("''", ()),
    ],
)
def test_lists_of_names_may_be_written_in_the_usual_ways(written: str, names: tuple[str, ...]):
    assert parse(f"---\ntools: {written}\n---\n").names("tools") == names


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_the_declared_error(noise: bytes):
    try:
        parse(b"---\n" + noise + b"\n---\nbody")
    except DefinitionError as error:
        assert str(error).startswith(str(PATH))
