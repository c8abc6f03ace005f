"""The file tools as a model sees them, over every backend."""

import base64
import codecs
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deep_agent_mcp.harness.backends.base import FileError
from deep_agent_mcp.harness.errors import AgentBuildError, ToolError
from deep_agent_mcp.harness.loop.hooks.requests import ToolCallOutcome, ToolCallRequest
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    ImageBlock,
    TextBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.tools.tool import InvalidArguments
from tests.backends.workbench import BACKENDS, Bench, make_backend, opened

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture(params=BACKENDS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with opened(request.param, tmp_path) as made:
        yield made


def body(answer: str) -> str:
    return answer.partition("]\n")[2]


def next_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Parse the call that an answer offers, as a model would repeat it."""
    header = text.splitlines()[0]
    found = re.search(r"next: (\w+)\((.*)\)\]$", header)
    if found is None:
        return None
    pairs = re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\w+)(?:, |$)', found[2])
    return found[1], {name: json.loads(value) for name, value in pairs}


async def read_all(bench: Bench, path: str, **args: Any) -> str:
    text = ""
    call: tuple[str, dict[str, Any]] | None = ("read_file", {"path": path, **args})
    while call is not None:
        answer = await bench.call(call[0], **call[1])
        assert len(answer) < 9_000
        text += body(answer)
        call = next_call(answer)
    return text


# read_file


async def test_a_read_has_one_header_line_then_verbatim_text(bench: Bench):
    await bench.seed("/a.txt", b"one\n  two\n")
    assert await bench.call("read_file", path="/a.txt") == "[/a.txt lines 1-2 of 2]\none\n  two\n"


async def test_a_page_names_the_next(bench: Bench):
    await bench.seed("/a.txt", b"0\n1\n2\n3")
    answer = await bench.call("read_file", path="/a.txt", offset=1, limit=2)
    assert answer == '[/a.txt lines 2-3 of 4; next: read_file(path="/a.txt", offset=3)]\n1\n2\n'
    answer = await bench.call("read_file", path="/a.txt", offset=3)
    assert answer == "[/a.txt lines 4-4 of 4]\n3"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"line {number}\n" for number in range(5_000)),
        "x" * 20_000 + "\nshort\n" + "y" * 8_000 + "\n" + "z" * 7_999,
        "a" * 7_000 + "\n" + "b" * 7_000 + "\n\n" + "c" * 30_000,
        "\n" * 9_000,
    ],
)
async def test_pages_put_together_are_the_file(bench: Bench, text: str):
    await bench.seed("/a.txt", text.encode())
    read = await read_all(bench, "/a.txt")
    # A page that ends inside of a line carries no line end, all others do.
    assert read.replace("\n", "") == text.replace("\n", "")
    assert sorted(read.split("\n"), key=len)[-1] == sorted(text.split("\n"), key=len)[-1]


async def test_empty_files_and_ends_are_said(bench: Bench):
    await bench.seed("/e", b"")
    await bench.seed("/a", b"x\n")
    assert await bench.call("read_file", path="/e") == "[/e is empty]"
    assert "past the end" in await bench.call("read_file", path="/a", offset=5)
    assert "past the end" in await bench.call("read_file", path="/a", column=5)


async def test_wrong_page_arguments_are_refused(bench: Bench):
    await bench.seed("/a", b"x\n")
    for args in ({"offset": -1}, {"limit": 0}, {"column": -1}, {"lines": 3}):
        with pytest.raises(InvalidArguments, match="read_file was not run"):
            await bench.call("read_file", path="/a", **args)


async def test_unusual_encodings_and_line_ends_are_said(bench: Bench):
    await bench.seed("/w", "ä\r\nb\r\n".encode("latin-1"))
    answer = await bench.call("read_file", path="/w")
    assert answer == "[/w lines 1-2 of 2; CRLF line ends, latin-1, kept by edit_file]\nä\nb\n"


async def test_images_are_shown_and_other_binaries_named(bench: Bench):
    await bench.seed("/p.png", PNG)
    await bench.seed("/x", b"\0\1\2")
    content = (await bench.result("read_file", path="/p.png")).content
    assert content == (
        TextBlock("[/p.png: image/png, 28 bytes]"),
        ImageBlock("image/png", base64.b64encode(PNG).decode()),
    )
    assert "binary file of 3 bytes" in await bench.call("read_file", path="/x")
    await bench.seed("/big.png", PNG + b"\0" * 4_000_000)
    assert "too large to show" in await bench.call("read_file", path="/big.png")


async def test_a_missing_file_names_what_is_near(bench: Bench):
    await bench.seed("/docs/plan.md", b"x")
    with pytest.raises(FileError, match=r"Near it: /docs/plan\.md"):
        await bench.call("read_file", path="/docs/plans.md")
    with pytest.raises(FileError, match=r'start with ls\(path="/"\)'):
        await bench.call("read_file", path="/nowhere/plan.md")
    with pytest.raises(FileError, match=r'See ls\(path="/"\)'):
        await bench.call("edit_file", path="/zzz", old_string="a", new_string="b")


# write_file


async def test_a_write_creates_then_replaces(bench: Bench):
    result = await bench.result("write_file", path="a/b.txt", content="ä\r\n")
    assert result.content == "Wrote /a/b.txt: 4 bytes, a new file."
    facts = {"path": "/a/b.txt", "bytes": 4, "created": True, "added": 1, "removed": 0}
    assert result.artifact == facts
    result = await bench.result("write_file", path="/a/b.txt", content="")
    assert result.content == "Wrote /a/b.txt: 0 bytes, replaced."
    facts = {"path": "/a/b.txt", "bytes": 0, "created": False}
    known = {"added": 0, "removed": 1}  # a store does not read what it replaces
    assert result.artifact in (facts, {**facts, **known})
    assert await bench.data("/a/b.txt") == b""


async def test_text_that_is_no_text_is_refused(bench: Bench):
    with pytest.raises(ToolError, match="surrogate"):
        await bench.call("write_file", path="/a", content="x\ud800")
    assert {one.path for one in await bench.files().ls("/")} == bench.mounts


# edit_file


async def edit(bench: Bench, old: str, new: str, **args: Any) -> str:
    return await bench.call("edit_file", path="/f", old_string=old, new_string=new, **args)


async def test_an_edit_needs_a_read_first(bench: Bench):
    await bench.seed("/f", b"a")
    with pytest.raises(ToolError, match=r'Call read_file\(path="/f"\) first'):
        await edit(bench, "a", "b")
    assert await bench.data("/f") == b"a"
    await bench.call("read_file", path="/f")
    assert await edit(bench, "a", "b") == "Edited /f: 1 replacement, the first in line 1."
    assert await edit(bench, "b", "c") == "Edited /f: 1 replacement, the first in line 1."
    assert await bench.data("/f") == b"c"


async def test_a_written_file_can_be_edited_at_once(bench: Bench):
    await bench.call("write_file", path="/f", content="a")
    await edit(bench, "a", "b")
    assert await bench.data("/f") == b"b"


async def test_an_edit_of_a_file_that_somebody_changed_is_refused(bench: Bench):
    await bench.seed("/f", b"a\n")
    await bench.call("read_file", path="/f")
    await bench.seed("/f", b"a\ntheirs\n")
    with pytest.raises(FileError, match="somebody else changed it") as caught:
        await edit(bench, "a", "b")
    assert caught.value.code == "changed"
    assert await bench.data("/f") == b"a\ntheirs\n"
    await bench.call("read_file", path="/f")
    await edit(bench, "a", "b")
    assert await bench.data("/f") == b"b\ntheirs\n"


async def test_replacements_are_counted(bench: Bench):
    await bench.seed("/f", b"x\na a\na\n")
    await bench.call("read_file", path="/f")
    with pytest.raises(ToolError, match=r"there 3 times \(lines 2, 2, 3\).*replace_all"):
        await edit(bench, "a", "b")
    result = await bench.result(
        "edit_file", path="/f", old_string="a", new_string="b", replace_all=True
    )
    assert result.content == "Edited /f: 3 replacements, the first in line 2."
    lines = {"added": 2, "removed": 2}
    assert result.artifact == {"path": "/f", "replacements": 3, "line": 2, **lines}
    assert await bench.data("/f") == b"x\nb b\nb\n"


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("", "x", "old_string is empty"),
        ("one", "one", "are the same"),
        ("three\n", "x", "without the newline at the end"),
        ("two", "x", None),
        ("    two\nthree", "x", "Line 2 is like its first line, but its indentation differs"),
        ("  two\nfour", "x", "Line 2 is like its first line, but the lines after it differs"),
        ("onne!", "x", "The nearest is line 1: 'one'"),
        ("qqqqqqqqqq", "x", "Nothing is like it"),
        ("\n\n\n", "x", "Read the file again"),
    ],
)
async def test_an_edit_that_cannot_be_made_says_why(
    bench: Bench, old: str, new: str, hint: str | None
):
    await bench.seed("/f", b"one\n  two\nthree")
    await bench.call("read_file", path="/f")
    if hint is None:
        await edit(bench, old, new)
        return
    with pytest.raises(ToolError, match=re.escape(hint)):
        await edit(bench, old, new)
    assert await bench.data("/f") == b"one\n  two\nthree"


async def test_binary_files_are_not_edited(bench: Bench):
    await bench.seed("/f", b"a\0")
    await bench.call("read_file", path="/f")
    with pytest.raises(ToolError, match="not text"):
        await edit(bench, "a", "b")


async def test_characters_the_files_encoding_does_not_have_are_refused(bench: Bench):
    await bench.seed("/f", b"caf\xe9")
    await bench.call("read_file", path="/f")
    with pytest.raises(ToolError, match="stored as latin-1, which has no '→'"):
        await edit(bench, "caf", "→")
    await edit(bench, "fé", "fés")
    assert await bench.data("/f") == b"caf\xe9s"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc", b"a\r\nB\r\nB2\r\nc"),
        (b"a\rb\rc", b"a\rB\rB2\rc"),
        (codecs.BOM_UTF8 + b"a\nb\nc", codecs.BOM_UTF8 + b"a\nB\nB2\nc"),
        (
            codecs.BOM_UTF16_LE + "a\r\nb\r\nc\r\n".encode("utf-16-le"),
            codecs.BOM_UTF16_LE + "a\r\nB\r\nB2\r\nc\r\n".encode("utf-16-le"),
        ),
        (b"\xe9\r\nb\r\n\xe9", b"\xe9\r\nB\r\nB2\r\n\xe9"),
        (b"a\r\nb\nc\r\nd\r\n", b"a\r\nB\r\nB2\nc\r\nd\r\n"),
    ],
)
async def test_edits_keep_every_other_byte(bench: Bench, before: bytes, after: bytes):
    await bench.seed("/f", before)
    await bench.call("read_file", path="/f")
    await edit(bench, "b\n", "B\nB2\n")
    assert await bench.data("/f") == after


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    left=st.text(alphabet="ab \r\nä", max_size=30),
    right=st.text(alphabet="ab \r\nä", max_size=30),
    codec=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
)
async def test_an_edit_leaves_the_bytes_around_it(left: str, right: str, codec: str):
    bench = Bench(make_backend("state", Path("/")), Path("/"))
    await bench.seed("/f", (left + "OLD" + right).encode(codec))
    await bench.call("read_file", path="/f")
    await edit(bench, "OLD", "NEW!")
    assert await bench.data("/f") == (left + "NEW!" + right).encode(codec)


async def test_two_changes_of_one_file_in_one_answer_do_not_overwrite_each_other(bench: Bench):
    await bench.seed("/f", b"a b")
    await bench.call("read_file", path="/f")
    calls = (
        ToolCall("c1", "edit_file", {"path": "/f", "old_string": "a", "new_string": "A"}),
        ToolCall("c2", "edit_file", {"path": "f", "old_string": "b", "new_string": "B"}),
        ToolCall("c3", "write_file", {"path": "/g", "content": ""}),
    )
    bench.apply({"messages": [AIMessage(calls)]})
    await bench.result("edit_file", _id="c1", **calls[0].args)
    with pytest.raises(ToolError, match="call c1 of the same answer changes it"):
        await bench.result("edit_file", _id="c2", **calls[1].args)
    await bench.result("write_file", _id="c3", **calls[2].args)
    assert await bench.data("/f") == b"A b"


# ls, glob, grep


async def test_ls_lists_with_sizes(bench: Bench):
    await bench.seed("/b/d/x", b"1")
    await bench.seed("/b/a", b"12")
    result = await bench.result("ls", path="b")  # paths count from the root
    assert result.content == "[/b: entries 1-2 of 2]\n/b/d/\n/b/a (2 bytes)"
    assert result.artifact == {
        "path": "/b",
        "total": 2,
        "entries": [
            {"path": "/b/d", "is_dir": True},
            {"path": "/b/a", "is_dir": False, "size": 2},
        ],
    }


async def test_an_empty_root_is_listed(bench: Bench):
    listed = await bench.call("ls")
    assert listed == ("[/: entries 1-2 of 2]\n/b/\n/s/" if bench.mounts else "[/: no entries]")


async def test_long_lists_come_in_pages_that_skip_nothing(bench: Bench):
    names = [f"/directory/file {number:04}.txt" for number in range(200)]
    await bench.seed_all(dict.fromkeys(names, b"word\n"))
    await in_pages(bench, names, "ls", path="/directory")
    await in_pages(bench, names, "glob", pattern="*.txt")
    await in_pages(bench, names, "grep", pattern="word", output_mode="content", ignore_case=True)


async def in_pages(bench: Bench, names: list[str], name: str, **arguments: Any) -> None:
    """Follow a call from page to page: all names come, each once."""
    seen: list[str] = []
    pages = 0
    call: tuple[str, dict[str, Any]] | None = (name, arguments)
    while call is not None:
        pages += 1
        result = await bench.result(call[0], **call[1])
        artifact: Any = result.artifact
        assert isinstance(result.content, str)
        assert len(result.content) < 9_000 and len(json.dumps(artifact)) < 9_000
        seen += [row["path"] for row in artifact.get("entries", artifact.get("results"))]
        call = next_call(result.content)
        assert (call is None) == ("next" not in artifact)
    assert sorted(seen) == names
    assert pages > 1


async def test_grep_modes(bench: Bench):
    await bench.seed("/a.py", b"x = 1\ny = 2\nX = 3\n")
    await bench.seed("/b.md", b"x = 4\n")
    assert (await bench.call("grep", pattern="x =")).splitlines()[1:] == ["/a.py", "/b.md"]
    counted = await bench.call("grep", pattern="x =", output_mode="count", ignore_case=True)
    assert counted.splitlines()[1:] == ["/a.py: 2", "/b.md: 1"]
    result = await bench.result("grep", pattern=r"^\w =", glob="*.py", output_mode="content")
    assert result.artifact == {
        "total": 3,
        "truncated": False,
        "results": [
            {"path": "/a.py", "line": 1, "text": "x = 1"},
            {"path": "/a.py", "line": 2, "text": "y = 2"},
            {"path": "/a.py", "line": 3, "text": "X = 3"},
        ],
    }
    assert str(result.content).splitlines()[2] == "/a.py:2: y = 2"
    assert await bench.call("grep", pattern="zz") == "[no files with matches for 'zz' in /]"


async def test_searches_that_found_more_than_they_keep_say_so(bench: Bench):
    await bench.seed("/a", b"x\n" * 1_500)
    result = await bench.result("grep", pattern="x", output_mode="content")
    artifact: Any = result.artifact
    assert artifact["truncated"] and "of 1000 or more; next: " in str(result.content)
    assert (await bench.call("grep", pattern="x", output_mode="count")).endswith("/a: 1500")


async def test_odd_names_stay_on_one_line(bench: Bench):
    await bench.seed("/s/a\nb", b"x")
    assert await bench.call("ls", path="/s") == '[/s: entries 1-1 of 1]\n"/s/a\\nb" (1 bytes)'


# the tools themselves


async def test_data_fits_the_schema_that_the_tool_promises(bench: Bench):
    await bench.seed("/f", b"x\n")
    await bench.call("read_file", path="/f")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("ls", {}),
        ("write_file", {"path": "/g", "content": "x"}),
        ("edit_file", {"path": "/f", "old_string": "x", "new_string": "y"}),
        ("glob", {"pattern": "*"}),
        ("grep", {"pattern": "."}),
        ("grep", {"pattern": ".", "output_mode": "content"}),
        ("grep", {"pattern": ".", "output_mode": "count"}),
        ("grep", {"pattern": "nothing"}),
    ]
    for name, args in calls:
        schema = bench.tool(name).output_schema
        assert schema is not None
        jsonschema.validate((await bench.result(name, **args)).artifact, schema)
    # A document goes out as text only: some clients would show nothing but the data.
    assert bench.tool("read_file").output_schema is None
    assert (await bench.result("read_file", path="/f")).artifact is None


async def test_hints_are_stated_and_schemas_are_flat(bench: Bench):
    hints = {
        tool.name: (tool.read_only, tool.destructive, tool.idempotent, tool.open_world)
        for tool in bench.middleware.tools
    }
    reads = (True, False, True, False)
    assert hints == {
        "ls": reads,
        "read_file": reads,
        "write_file": (False, True, True, False),
        "edit_file": (False, True, False, False),
        "glob": reads,
        "grep": reads,
    }
    for tool in bench.middleware.tools:
        text = json.dumps(tool.parameters)
        assert "anyOf" not in text and "$ref" not in text and "runtime" not in text
        properties: Any = tool.parameters["properties"]
        undescribed = {name for name, one in properties.items() if "description" not in one}
        assert undescribed <= {"content", "new_string", "replace_all", "ignore_case"}
        assert tool.description and tool.title


async def test_tools_can_be_left_out(tmp_path: Path):
    backend = make_backend("state", tmp_path)
    middleware = FilesystemMiddleware(backend, tools=("ls", "read_file"))
    assert [tool.name for tool in middleware.tools] == ["ls", "read_file"]
    for wrong in (("ls",), ("read_file", "rm"), ()):
        with pytest.raises(AgentBuildError, match="file tools are"):
            FilesystemMiddleware(backend, tools=wrong)


async def test_the_policy_sees_canonical_paths(tmp_path: Path):
    bench = Bench(make_backend("descriptors", tmp_path), tmp_path)
    seen: list[Any] = []

    async def gate(request: ToolCallRequest) -> ToolCallOutcome:
        seen.append(request.call.args["path"])
        return ToolCallOutcome(ToolMessage(request.call.id, ""))

    for path in (f"{tmp_path}/a/b", "a//b", "\\a\\b", "../x", 5):
        call = ToolCall("c", "read_file", {"path": path})
        await bench.middleware.wrap_tool_call(ToolCallRequest(call, None, bench.runtime), gate)
    other = ToolCall("c", "other", {"path": "a//b"})
    await bench.middleware.wrap_tool_call(ToolCallRequest(other, None, bench.runtime), gate)
    assert seen == ["/a/b", "/a/b", "/a/b", "../x", 5, "a//b"]


# eviction


def kept_at(shown: str) -> str:
    """Return the file that a preview names."""
    found = re.search(r"/large_tool_results/[^ ;\"]+\.txt", shown)
    assert found is not None, shown
    return found[0]


async def evicted(bench: Bench, content: Any, call_id: str = "toolu_1", **options: Any) -> Any:
    call = ToolCall(call_id, options.pop("name", "search"), {})
    message = ToolMessage(call_id, content, call.name, artifact={"all": "of it"})
    outcome = ToolCallOutcome(message, options)
    return await bench.middleware.evict(ToolCallRequest(call, None, bench.runtime), outcome)


async def test_long_results_move_to_a_file(bench: Bench):
    text = "".join(f"{number}\n" for number in range(20_000))
    outcome = await evicted(bench, text, todos=["kept"])
    bench.apply(dict(outcome.writes))
    path = kept_at(outcome.message.text)
    assert path.startswith("/large_tool_results/toolu_1_")
    assert await bench.data(path) == text.encode()
    assert outcome.update["todos"] == ["kept"]
    shown = outcome.message.text
    assert len(shown) < 6_000 and outcome.message.artifact is None
    assert f'read on with read_file(path="{path}")' in shown
    assert "\n0\n1\n" in shown and shown.endswith("\n19999\n")
    assert await read_all(bench, path) == text


async def test_short_results_and_the_file_tools_are_left_alone(bench: Bench):
    outcome = await evicted(bench, "x" * 60_000)
    assert outcome.message.text == "x" * 60_000 and outcome.message.artifact is not None
    outcome = await evicted(bench, "x" * 60_001, name="read_file")
    assert outcome.message.text == "x" * 60_001


async def test_images_of_a_long_result_stay(bench: Bench):
    image = ImageBlock("image/png", "AAAA")
    outcome = await evicted(bench, (TextBlock("x" * 70_000), image, TextBlock("y")))
    assert outcome.message.content[1:] == (image,)
    assert len(outcome.message.text) < 6_000


async def test_files_that_the_call_wrote_itself_are_kept(bench: Bench):
    if not bench.backend.description.startswith("Files live in this thread"):
        pytest.skip("only files of the thread are part of the update")
    outcome = await evicted(bench, "x" * 70_000, files={"/mine": None})
    assert set(outcome.update["files"]) == {"/mine"}
    assert set(dict(outcome.writes)["files"]) == {kept_at(outcome.message.text)}


async def test_a_call_id_that_is_used_again_keeps_both_results(bench: Bench):
    paths: list[str] = []
    for letter in "ab":
        outcome = await evicted(bench, letter * 70_000, "call_0")
        bench.apply(dict(outcome.writes))
        paths.append(kept_at(outcome.message.text))
    assert await bench.data(paths[0]) == b"a" * 70_000
    assert await bench.data(paths[1]) == b"b" * 70_000


@pytest.mark.parametrize("call_id", ["../../x", "", "..", "a/b", "ü" * 300, "\ud800"])
async def test_any_call_id_makes_a_file_in_its_directory(bench: Bench, call_id: str):
    outcome = await evicted(bench, "x" * 70_000, call_id)
    bench.apply(dict(outcome.writes))
    (entry,) = await bench.files().ls("/large_tool_results")
    assert entry.size == 70_000
    assert entry.path in outcome.message.text


async def test_a_result_that_cannot_be_kept_is_still_cut(bench: Bench):
    await bench.seed("/large_tool_results", b"a file in the way")
    outcome = await evicted(bench, "x" * 70_000)
    assert "could not be kept" in outcome.message.text
    assert len(outcome.message.text) < 6_000 and not outcome.writes
