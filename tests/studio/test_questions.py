"""What waits for a person is shown over all threads, and whole before it is decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from tests.studio.looking import looking, script

pytestmark = pytest.mark.anyio

EDIT = {"name": "edit_file", "args": {"path": "/a.txt", "old_string": "two", "new_string": "2"}}
READ = {"name": "read_file", "args": {"path": "/a.txt"}}
LONG = "".join(f"line {n}\n" for n in range(3_000))
WRITE = {"name": "write_file", "args": {"path": "/new.txt", "content": LONG}}
RUNS = script(
    edit=[
        {"text": "First I read.", "tool_calls": [READ]},
        {"text": "I change the second line.", "tool_calls": [EDIT]},
        {"text": "Done."},
    ],
    write=[{"tool_calls": [WRITE]}, {"text": "Written."}],
)
ASKS = ("edit_file", "write_file")


async def test_questions_of_all_threads_come_with_who_asks_and_why_longest_waiting_first(
    tmp_path: Path,
):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        (server.root / "a.txt").write_text("one\ntwo\nthree\n")
        first = await server.call("task", goal="edit it")
        second = await server.call("task", goal="write it")
        page = await server.read("inbox://questions?limit=1")
        assert (page["total"], len(page["questions"])) == (2, 1)
        (asked,) = page["questions"]
        assert asked["run_id"] == first["run_id"]
        assert (asked["tool"], asked["asked_by"]) == ("edit_file", ["main"])
        assert asked["why"] == "I change the second line."
        assert asked["rule"] == "Tool execution requires approval: edit_file"
        assert json.loads(asked["args_json"]) == EDIT["args"]
        rest = await server.read(f"inbox://questions?after={page['next']}")
        (later,) = rest["questions"]
        assert later["run_id"] == second["run_id"]
        assert rest["next"] is None
        assert later["args_json"] is None  # too long for a list
        assert later["args_chars"] > 20_000
        await server.call("reply", run_id=first["run_id"], decision="approve")
        after = await server.read("inbox://questions")
        assert after["total"] == 1
        assert after["version"] != page["version"]


async def test_a_question_shows_whole_arguments_and_the_file_before_and_after(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        (server.root / "a.txt").write_text("one\ntwo\nthree\n")
        edit = await server.question((await server.call("task", goal="edit it"))["run_id"])
        preview = edit["preview"]
        assert (preview["before"], preview["after"]) == ("one\ntwo\nthree\n", "one\n2\nthree\n")
        assert preview["diff"] == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        assert (preview["added"], preview["removed"], preview["problem"]) == (1, 1, None)
        assert "path" in edit["tool_about"]["parameters"]["properties"]
        write = await server.question((await server.call("task", goal="write it"))["run_id"])
        assert json.loads(write["args_json"]) == WRITE["args"]
        assert write["preview"]["before"] is None
        assert write["preview"]["after"] == LONG
        assert write["preview"]["added"] == 3_000


async def test_a_preview_says_why_the_edit_would_fail_as_the_file_is_now(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        (server.root / "a.txt").write_text("one\ntwo\n")
        run_id = (await server.call("task", goal="edit it"))["run_id"]
        (server.root / "a.txt").write_text("one\nzwei\n")
        assert "old_string is not in it" in (await server.question(run_id))["preview"]["problem"]
        (server.root / "a.txt").unlink()
        assert "no file /a.txt" in (await server.question(run_id))["preview"]["problem"]


async def test_an_unknown_question_or_run_says_what_to_read(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run_id = (await server.call("task", goal="write it"))["run_id"]
        with pytest.raises(MCPError, match=f"read run://{run_id}/questions"):
            await server.read(f"run://{run_id}/questions/int_x")
        with pytest.raises(MCPError, match="no run 'run_x'"):
            await server.read("run://run_x/questions")
        with pytest.raises(MCPError, match="limit='0' cannot be used"):
            await server.read("inbox://questions?limit=0")


async def test_nothing_is_approved_that_was_not_shown_whole(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await server.call("task", goal="write it")
        run_id, question = run["run_id"], await server.question(run["run_id"])
        assert run["pending"][0]["args_chars"] == question["args_chars"]
        assert f'wait(run_id="{run_id}", answer_offset=1)' in run["next"]
        for answer in (
            {"decision": "approve"},
            {"answers": {question["id"]: "approve"}},
            {"answers": {question["id"]: {"decision": "approve", "digest": "0" * 32}}},
        ):
            assert "Nothing was stored" in await server.said("reply", run_id=run_id, **answer)
        assert not (server.root / "new.txt").exists()
        # The tool shows them all, page by page, and ends with what approves them.
        seen, page = "", await server.call("wait", run_id=run_id, answer_offset=1)
        while "arguments continue" in page["next"]:
            seen += page["arguments"]
            offset = int(page["next"].partition("answer_offset=")[2].partition(")")[0])
            page = await server.call("wait", run_id=run_id, answer_offset=offset)
        seen += page["arguments"]
        assert question["args_json"] in seen
        digest = seen.rpartition("digest: ")[2].strip()
        assert digest == question["digest"]
        decided = {question["id"]: {"decision": "approve", "digest": digest}}
        done = await server.call("reply", run_id=run_id, answers=decided)
        assert done["status"] == "done"
        assert (server.root / "new.txt").read_text() == LONG


async def test_what_was_not_seen_may_still_be_rejected_or_edited(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        first = await server.call("task", goal="write it")
        done = await server.call("reply", run_id=first["run_id"], decision="reject")
        assert done["status"] == "done"
        second = await server.call("task", goal="write it")
        question = await server.question(second["run_id"])
        edited = {"decision": "edit", "args": {"path": "/new.txt", "content": "short"}}
        answers = {question["id"]: edited}
        await server.call("reply", run_id=second["run_id"], answers=answers)
        assert (server.root / "new.txt").read_text() == "short"


@pytest.mark.parametrize("tool", ["write_file", "ls"], ids=["its own tool", "another tool"])
async def test_unseen_arguments_do_not_pass_as_an_edit_of_nothing_but_the_tool(
    tmp_path: Path, tool: str
):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run_id = (await server.call("task", goal="write it"))["run_id"]
        question = await server.question(run_id)
        answers = {question["id"]: {"decision": "edit", "tool": tool}}
        refused = await server.said("reply", run_id=run_id, answers=answers)
        assert "Nothing was stored" in refused and "were not shown whole" in refused
        assert f'"tool": "{tool}", "digest": "…"' in refused
        assert not (server.root / "new.txt").exists()
        assert (await server.question(run_id))["id"] == question["id"]
