"""Edits of Codex's TOML: comments and other tables stay as they are."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.server.install.documents import TomlError, remove_table, set_table

ENTRY = {"command": "/bin/deep", "args": ["serve"], "tool_timeout_sec": 300}

CONFIG = """\
# my settings
model = "gpt-5"   # the good one

[mcp_servers.github]
command = "npx"
args = [
    "-y",
    "github", # theirs
]

[mcp_servers.github.env]
TOKEN = "a # b"

[tui]
theme = 'dark'
notes = '''
[mcp_servers.deep-agent]
is only text here
'''
"""


def test_a_new_table_is_appended_and_nothing_before_it_changes() -> None:
    changed = set_table(CONFIG, "mcp_servers", "deep-agent", ENTRY)
    assert changed.startswith(CONFIG)
    assert changed[len(CONFIG) :] == (
        '\n[mcp_servers.deep-agent]\ncommand = "/bin/deep"\nargs = ["serve"]\n'
        "tool_timeout_sec = 300\n"
    )
    assert set_table(changed, "mcp_servers", "deep-agent", ENTRY) == changed


def test_what_was_added_can_be_taken_out_again() -> None:
    changed = set_table(CONFIG, "mcp_servers", "deep-agent", ENTRY)
    assert remove_table(changed, "mcp_servers", "deep-agent").rstrip("\n") == CONFIG.rstrip("\n")


def test_our_table_is_changed_in_place_and_keeps_what_others_added() -> None:
    text = CONFIG.replace(
        "[tui]",
        '[mcp_servers.deep-agent] # ours\ncommand = "/old" # where\nenabled = true\n\n'
        '[mcp_servers.deep-agent.env]\nA = "1"\n\n[tui]',
    )
    changed = set_table(text, "mcp_servers", "deep-agent", {**ENTRY, "env": {"B": "2"}})
    assert tomllib.loads(changed)["mcp_servers"]["deep-agent"] == {
        **ENTRY,
        "enabled": True,
        "env": {"A": "1", "B": "2"},
    }
    for kept in ("# ours", "# where", "# the good one", '"github", # theirs', "theme = 'dark'"):
        assert kept in changed
    assert list(tomllib.loads(changed)) == list(tomllib.loads(text))


def test_a_table_between_others_is_removed_with_the_tables_below_it() -> None:
    ours = '[mcp_servers.deep-agent]\ncommand = "/x"\n\n[mcp_servers.deep-agent.env]\nA = "1"\n\n'
    text = CONFIG.replace("[tui]", ours + "[tui]")
    left = remove_table(text, "mcp_servers", "deep-agent")
    assert tomllib.loads(left) == tomllib.loads(CONFIG)
    assert "# theirs" in left
    assert "deep-agent]\nis only text" in left


def test_tables_out_of_order_are_left_in_their_order() -> None:
    text = (
        "[mcp_servers.a]\ncommand = 'a'\n[tui]\nx = 1\n[mcp_servers.deep-agent]\ncommand = 'd'\n"
        "[other]\ny = 2\n[mcp_servers.b]\ncommand = 'b'\n"
    )
    left = remove_table(text, "mcp_servers", "deep-agent")
    assert list(tomllib.loads(left)["mcp_servers"]) == ["a", "b"]
    changed = set_table(text, "mcp_servers", "deep-agent", {"command": "e"})
    assert changed == text.replace("'d'", '"e"')


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { a = { command = 'a' } }\n",
        "[mcp_servers]\na = { command = 'a' }\n",
        "mcp_servers.a.command = 'a'\n",
        "",
        "# nothing yet",
        "\ufeff# with a mark\r\nx = 1\r\n",
    ],
)
def test_groups_are_found_however_they_are_written(text: str) -> None:
    changed = set_table(text, "mcp_servers", "deep-agent", ENTRY)
    before = tomllib.loads(text.removeprefix("\ufeff")).get("mcp_servers", {})
    after = tomllib.loads(changed.removeprefix("\ufeff"))["mcp_servers"]
    assert after == {**before, "deep-agent": ENTRY}
    if "\r" in text:
        assert changed.count("\n") == changed.count("\r\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a\n", "at line 1"),
        ("a = 1\na = 2\n", "line 2"),
        ("mcp_servers = 3\n", "mcp_servers is not a table"),
    ],
)
def test_what_cannot_be_edited_is_refused(text: str, words: str) -> None:
    with pytest.raises(TomlError, match=words):
        set_table(text, "mcp_servers", "deep-agent", ENTRY)


_names = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3)
_comments = st.sampled_from(
    ["", "# one\n", "\n\n", "x = 1 # two\n", 's = """\n[mcp_servers.q]\n"""\n']
)


@given(_names, st.lists(_comments, min_size=4, max_size=4), st.booleans())
def test_all_other_tables_survive_adding_and_removing(
    names: list[str], between: list[str], ends: bool
) -> None:
    parts = [between[0]]
    for name, gap in zip(names, between[1:], strict=False):
        parts.append(f"[mcp_servers.{name}]\ncommand = '{name}'\n\n[{name}]\n{gap}")
    text = "".join(parts) if ends else "".join(parts).rstrip("\n")
    changed = set_table(text, "mcp_servers", "ours", ENTRY)
    assert changed.startswith(text)
    assert tomllib.loads(changed)["mcp_servers"]["ours"] == ENTRY
    left = tomllib.loads(remove_table(changed, "mcp_servers", "ours"))
    assert left == tomllib.loads(text) or left == {**tomllib.loads(text), "mcp_servers": {}}
