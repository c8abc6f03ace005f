"""Unified diffs: what they say, and that no text makes them slow."""

from __future__ import annotations

import time

import pytest

from deep_agent_mcp.server.studio.diffs import diff_of


def test_changes_far_from_each_other_are_hunks_of_their_own():
    before = "".join(f"{n}\n" for n in range(30))
    after = before.replace("3\n4\n", "3\nfour\n", 1).replace("25\n", "")
    found = diff_of(before.encode(), after.encode())
    assert found.text.count("@@ -") == 2
    assert "-4\n+four\n" in found.text
    assert (found.added, found.removed) == (1, 2)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (None, b"a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
        (b"a\n", None, "@@ -1 +0,0 @@\n-a\n"),
        (b"a", b"a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        (b"same\n", b"same\n", ""),
        (b"a\x0c\n", b"a\x0cb\n", "@@ -1 +1 @@\n-a\x0c\n+a\x0cb\n"),
        (b"", b"x", "@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"),
    ],
)
def test_new_deleted_and_unended_files(before: bytes | None, after: bytes | None, text: str):
    assert diff_of(before, after).text == text


def test_what_is_no_text_is_said_to_be_binary():
    assert diff_of(b"\x00\x01", b"text").binary
    assert diff_of(None, b"\xff\xfe").binary


def test_large_texts_without_a_common_line_take_no_time():
    before = "".join(f"a{n % 97}\n" for n in range(50_000)).encode()
    after = "".join(f"b{n % 89}\n" for n in range(50_000)).encode()
    began = time.process_time()
    found = diff_of(before, after)
    assert time.process_time() - began < 1
    assert (found.added, found.removed, found.cut) == (50_000, 50_000, True)
