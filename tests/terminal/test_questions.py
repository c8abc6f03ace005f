"""Calls that need approval, as they are shown at the terminal."""

import json
from collections.abc import Mapping
from typing import Any

from deep_agent_mcp.server.studio.diffs import diff_of
from deep_agent_mcp.server.terminal.questions import WholeQuestion, shown
from deep_agent_mcp.server.terminal.states import Question

COMMAND = {"kind": "command", "command": "make", "cwd": "/workspace"}


def seen(tool: str, args: Mapping[str, Any], preview: Mapping[str, Any]) -> str:
    question = Question("int_1", "", "main", tool, json.dumps(args))
    return shown(WholeQuestion(question, preview)).plain


def written(before: bytes | None, after: str, **more: Any) -> str:
    """Return how the terminal shows a call of `write_file`."""
    preview = {"kind": "file", "path": "/a.py", "exists": before is not None}
    diff = diff_of(before, after.encode()).to_json()
    return seen("write_file", {"path": "/a.py", "content": after, **more}, preview | diff)


def test_an_added_line_stays_one_line_whatever_characters_are_in_it() -> None:
    said = written(b"one()\n", "one()\n# tidy\r-import os\u2028 same()\x0c@@ -1 +1 @@\n")
    assert "\n+# tidy[U+000D]-import os[U+2028] same()[U+000C]@@ -1 +1 @@\n" in said


def test_line_endings_of_windows_are_line_ends() -> None:
    assert "\n-one()\n+two()\n" in written(b"one()\r\n", "two()\r\n")


def test_a_diff_that_is_cut_is_replaced_by_the_whole_arguments() -> None:
    said = written(b"a line of the old file\n" * 20_000, "import os\nos.abort()\n")
    assert "The diff is too long to show" in said
    assert "content: \n    import os\n    os.abort()\n" in said
    assert "-a line" not in said


def test_a_new_file_is_called_new_and_an_overwritten_binary_is_not() -> None:
    assert "(a new file)" in written(None, "text\n")
    assert "(a new file)" not in written(b"\0", "text\n")


def test_arguments_beside_a_command_are_shown() -> None:
    args = {"command": "make", "cwd": "/workspace", "background": True, "as_user": "root"}
    said = seen("execute", args, COMMAND)
    assert said.endswith("  $ make\n  in /workspace\n  background: true\n  as_user: root\n")


def test_arguments_beside_a_change_of_a_file_are_shown() -> None:
    assert written(None, "text\n", mode="0777").endswith("\n+text\n  mode: 0777\n")
