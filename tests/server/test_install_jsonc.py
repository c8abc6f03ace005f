"""Edits of JSON with comments: everything but our entry stays as it is, byte for byte."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.server.install.jsonc import (
    append_item,
    parse,
    remove_item,
    remove_member,
    set_member,
)
from deep_agent_mcp.server.install.jsonc_reader import JsoncError

# --- documents written in every way ----------------------------------------------------------

_words = st.text(string.ascii_letters + ' äß☃\\"/{}[],:', max_size=8)
_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), _words
)
_comments = st.sampled_from(["", "", "", "/* } , { */", '/*\n  "x": 1,\n*/', '// ] } , "a" {\n'])
_gaps = st.builds(
    lambda before, comment, after: before + comment + after,
    st.sampled_from(["", " ", "\n", "\n  ", "\t", "\n\n\t"]),
    _comments,
    st.sampled_from(["", " ", "\n    "]),
)


@st.composite
def _written(draw: st.DrawFn, depth: int = 0) -> tuple[str, Any]:
    """A value in some style, and what it means."""
    kind = draw(st.sampled_from(["scalar", "object", "array"])) if depth < 3 else "scalar"
    if kind == "scalar":
        value = draw(_scalars)
        return json.dumps(value, ensure_ascii=draw(st.booleans())), value
    count = draw(st.integers(0, 3))
    return draw(_container(kind, [f"k{number}" for number in range(count)], depth))


@st.composite
def _container(draw: st.DrawFn, kind: str, keys: list[str], depth: int) -> tuple[str, Any]:
    def gap() -> str:
        return draw(_gaps)

    parts: list[str] = []
    values: list[Any] = []
    for number, key in enumerate(keys):
        text, value = draw(_written(depth + 1))
        values.append(value)
        name = f'"{key}"{gap()}:{gap()}' if kind == "object" else ""
        has_comma = number < len(keys) - 1 or draw(st.booleans())
        parts.append(gap() + name + text + gap() + ("," if has_comma else ""))
    body = "".join(parts) + gap()
    if kind == "object":
        return "{" + body + "}", dict(zip(keys, values, strict=True))
    return "[" + body + "]", values


@st.composite
def _documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An object with some members, among them maybe `servers`."""
    keys = draw(st.lists(st.sampled_from(["a", "servers", "z"]), unique=True))
    text, value = draw(
        _container("object", keys, 1).filter(
            lambda one: isinstance(one[1].get("servers", {}), dict)
        )
    )
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return mark + (draw(_gaps) + text + draw(_gaps)).replace("\n", newline), value


def _has_no_odd_servers(written: tuple[str, Any]) -> bool:
    return isinstance(written[1].get("servers", {}), dict)


ENTRY = {"command": "/bin/deep", "args": ["serve", "--root", "/a b"], "env": {"K": "${K:-}"}}


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(char in rest for char in part)


@given(_documents())
def test_what_is_read_is_what_was_written(document: tuple[str, Any]) -> None:
    text, value = document
    assert parse(text) == value


@given(_documents())
def test_an_entry_is_added_and_nothing_else_changes(document: tuple[str, Any]) -> None:
    text, value = document
    changed = set_member(text, ("servers", "ours"), ENTRY)
    others = value.get("servers", {})
    assert parse(changed) == {**value, "servers": {**others, "ours": ENTRY}}
    # White space inside an empty object may go; every other character is still there, in order.
    assert is_subsequence("".join(text.split()), changed)
    assert set_member(changed, ("servers", "ours"), ENTRY) == changed


@given(_documents())
def test_what_is_added_can_be_taken_out_again(document: tuple[str, Any]) -> None:
    text, value = document
    if not value.get("servers"):
        return
    changed = set_member(text, ("servers", "ours"), ENTRY)
    again = remove_member(changed, ("servers", "ours"))
    assert parse(again) == value
    assert "".join(again.split()) == "".join(text.split())


@given(_documents(), st.data())
def test_any_member_can_be_removed(document: tuple[str, Any], data: st.DataObject) -> None:
    text, value = document
    if not value:
        return
    key = data.draw(st.sampled_from(sorted(value)))
    left = remove_member(text, (key,))
    assert parse(left) == {name: one for name, one in value.items() if name != key}
    assert is_subsequence("".join(left.split()), text)


@given(_documents(), st.data())
def test_any_value_can_be_replaced(document: tuple[str, Any], data: st.DataObject) -> None:
    text, value = document
    if not value:
        return
    key = data.draw(st.sampled_from(sorted(value)))
    assert parse(set_member(text, (key,), ENTRY)) == {**value, key: ENTRY}


# --- files as people have them ---------------------------------------------------------------

WITH_COMMENTS = """\
// servers of this workspace
{
    /* asked once */
    "inputs": [
        { "id": "token", "type": "promptString", "password": true }, // for github
    ],
    "servers": {
        "github": { "type": "http", "url": "https://example.com/mcp" }, // theirs
        // local ones
        "files": {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "files"], // keep
        }, // last one
        // the end
    },
}
"""


def test_a_member_is_put_behind_the_last_comment_in_the_style_of_the_file() -> None:
    changed = set_member(WITH_COMMENTS, ("servers", "ours"), {"command": "x"})
    assert changed == WITH_COMMENTS.replace(
        "        // the end\n",
        '        // the end\n        "ours": {\n            "command": "x"\n        },\n',
    )
    assert remove_member(changed, ("servers", "ours")) == WITH_COMMENTS


def test_a_member_in_the_middle_goes_with_its_lines_and_leaves_comments() -> None:
    left = remove_member(WITH_COMMENTS, ("servers", "files"))
    assert left == WITH_COMMENTS.replace(
        '        "files": {\n            "type": "stdio",\n            "command": "npx",\n'
        '            "args": ["-y", "files"], // keep\n        }, // last one\n',
        "        // last one\n",
    )


def test_an_item_is_added_and_removed() -> None:
    item = {"id": "ours"}
    changed = append_item(WITH_COMMENTS, ("inputs",), item)
    assert parse(changed)["inputs"][-1] == item  # type: ignore[index, call-overload]
    assert remove_item(changed, ("inputs",), item) == WITH_COMMENTS


def test_files_on_one_line_stay_on_one_line() -> None:
    text = '{"mcpServers": {"a": {"command": "b"}}, "theme": "dark"}'
    changed = set_member(text, ("mcpServers", "ours"), {"command": "x"})
    assert changed == (
        '{"mcpServers": {"a": {"command": "b"}, "ours": {"command": "x"}}, "theme": "dark"}'
    )
    assert remove_member(changed, ("mcpServers", "ours")) == text


def test_line_ends_and_tabs_are_those_of_the_file() -> None:
    text = '\ufeff{\r\n\t"a": 1\r\n}\r\n'
    changed = set_member(text, ("b", "c"), {"d": [1]})
    assert changed == (
        '\ufeff{\r\n\t"a": 1,\r\n\t"b": {\r\n\t\t"c": {\r\n\t\t\t"d": [\r\n\t\t\t\t1\r\n'
        "\t\t\t]\r\n\t\t}\r\n\t}\r\n}\r\n"
    )


def test_a_comma_is_not_put_into_a_comment() -> None:
    changed = set_member('{\n  "a": 1 // one\n}', ("b",), 2)
    assert changed == '{\n  "a": 1, // one\n  "b": 2\n}'


def test_a_member_is_not_drawn_up_into_a_comment() -> None:
    left = remove_member('{\n  "a": 1, // one\n  "x": 2, "b": 3\n}', ("x",))
    assert parse(left) == {"a": 1, "b": 3}


def test_of_a_key_that_occurs_twice_the_last_counts_and_both_go() -> None:
    text = '{"s": {"x": 1, "y": 2, "x": 3}}'
    assert parse(text) == {"s": {"x": 3, "y": 2}}
    assert parse(set_member(text, ("s", "x"), 4)) == {"s": {"x": 4, "y": 2}}
    assert remove_member(text, ("s", "x")) == '{"s": {"y": 2}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1', "line 1, column 8: the document is incomplete"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3: a comma or }"),
        ('{"a": 1,, "b": 2}', "column 9: a name in double quotes"),
        ("{'a': 1}", "column 2: a name in double quotes"),
        ('{"a": undefined}', "'undefined' is not a JSON value"),
        ('{"a": "x\n"}', "this string is not closed on its line"),
        ('{"a": "\\q"}', "an escape that JSON does not know"),
        ('{"a": 1} /* x', "this comment is not closed"),
        ('{"a": 1} {}', "after the end of the document"),
        ('{"a": 01}', "'01' is not a JSON value"),
        ("{" * 2 + "[" * 5_000, "column 2"),
        ("[" * 5_000, "more than 200 levels"),
        ('{"a": ' + "9" * 5_000 + "}", "is not a JSON value"),
        ("<<<<<<< HEAD\n{}", "line 1, column 1"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(JsoncError) as refused:
        set_member(text, ("b",), 1)
    assert words in str(refused.value)


def test_long_strings_without_an_end_are_refused_at_once() -> None:
    with pytest.raises(JsoncError):
        parse('{"a": "' + "ab\\\\" * 200_000)


@pytest.mark.parametrize("text", ["[]", "1", '{"servers": []}', '{"servers": null}'])
def test_what_is_no_object_is_not_written_over(text: str) -> None:
    with pytest.raises(JsoncError, match="is not an object"):
        set_member(text, ("servers", "ours"), ENTRY)
