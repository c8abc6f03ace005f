"""What a delegated run changed, and what it could not do, is in its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from mcp import Client
from mcp.client.extension import ClientExtension
from mcp.types import CallToolResult, ImageContent, Implementation, ResourceLink, TextContent

from deep_agent_mcp.harness.backends.file_tools.file_guards import counted_lines
from deep_agent_mcp.harness.checkpoint import EventLimits
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.messages.message import ImageBlock
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.runs import accounts
from deep_agent_mcp.server.runs.accounts import Account
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.threads import journals
from deep_agent_mcp.server.tools.account_texts import account_facts
from tests.e2e.task_client import Tasks, ask
from tests.shell.support import need_bubblewrap

pytestmark = pytest.mark.anyio


def calls(**by_tool: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "args": args} for name, args in by_tool.items()]}


TODOS = [{"content": "write", "status": "completed"}, {"content": "publish"}]
SCRIPT = {
    "runs": [
        {
            "match": "busy",
            "agents": {
                "main": [
                    calls(
                        write_todos={"todos": TODOS},
                        write_file={"path": "/a.txt", "content": "one\ntwo\n"},
                        read_file={"path": "/nothing.txt"},
                    ),
                    calls(
                        edit_file={"path": "/a.txt", "old_string": "two", "new_string": "2\n3"},
                        task={"description": "be busy below"},
                        write_file={"path": "/secret.txt", "content": "x"},
                    ),
                    {"text": "All written."},
                ],
                "general-purpose": [
                    calls(
                        write_file={"path": "/b.md", "content": "# b\n"},
                        edit_file={"path": "/old.txt", "old_string": "b", "new_string": "B\nb2"},
                    ),
                    calls(read_file={"path": "/old.txt"}),
                    calls(edit_file={"path": "/old.txt", "old_string": "b", "new_string": "B\nb2"}),
                    {"text": "Written."},
                ],
            },
        },
        {
            "match": "many",
            "agents": {
                "main": [
                    {
                        "tool_calls": [
                            {"name": "write_file", "args": {"path": f"/{n}.txt", "content": "x"}}
                            for n in range(12)
                        ]
                    },
                    {"text": "Many."},
                ]
            },
        },
        {
            "match": "commands",
            "agents": {
                "main": [
                    calls(
                        execute={"command": "echo x > made.txt; echo z >> old.txt; rm again.txt"}
                    ),
                    calls(write_file={"path": "/workspace/again.txt", "content": "new\n"}),
                    calls(execute={"command": "true", "background": True}),
                    {"text": "All run."},
                ]
            },
        },
        {"match": "rest", "agents": {"main": [{"text": "Nothing to do."}]}},
    ],
}
POLICY = '[[rule]]\naction = "deny"\ntool = "write_file"\npath = "/secret.txt"\nreason = "no"\n'


@asynccontextmanager
async def client_of(
    place: Path,
    mode: Any = "auto",
    *,
    name: str = "claude-code",
    extensions: Sequence[ClientExtension] = (),
    **more: Any,
) -> AsyncIterator[Client]:
    script, policy = place / "script.yaml", place / "policy.toml"
    script.write_text(yaml.safe_dump(SCRIPT, sort_keys=False), encoding="utf-8")
    policy.write_text(POLICY, encoding="utf-8")
    given = {"state_dir": str(place / "state"), "model": f"scripted:{script}", **more}
    given["policy"] = [str(policy)]
    with anyio.fail_after(60):
        async with (
            create_app(load_settings(given, {})) as app,
            Client(
                app.server,
                mode=mode,
                client_info=Implementation(name=name, version="1"),
                extensions=[*extensions],
            ) as client,
        ):
            yield client


def text_of(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


def links_of(result: CallToolResult) -> list[ResourceLink]:
    return [one for one in result.content if isinstance(one, ResourceLink)]


@pytest.mark.parametrize("rooted", [False, True])
async def test_an_answer_says_what_was_changed_and_what_was_not_done(
    rooted: bool, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    place: dict[str, Any] = {"root": str(root)} if rooted else {}
    async with client_of(tmp_path, **place) as client:
        first = await client.call_tool("write_file", {"path": "/old.txt", "content": "a\nb\n"})
        facts = first.structured_content
        assert facts is not None and (facts["added"], facts["removed"]) == (2, 0)
        thread_id = facts["thread_id"]
        done = await client.call_tool("task", {"goal": "be busy", "thread_id": thread_id})
        data = done.structured_content
        assert data is not None and data["answer"] == "All written."
        paths = [one["path"] for one in data["changes"]]  # calls of one answer end in any order
        assert sorted(data["changes"], key=lambda one: one["path"]) == [
            {"path": "/a.txt", "how": "new", "added": 3, "removed": 0},
            {"path": "/b.md", "how": "new", "added": 1, "removed": 0},
            {"path": "/old.txt", "added": 2, "removed": 1},
        ]
        assert data["not_done"]["failed_calls"] == {"read_file": 1, "edit_file": 1}
        assert data["not_done"]["open_todos"] == ["publish"]
        (refused,) = data["not_done"]["refused"]
        assert refused.startswith("write_file was refused and did not run")
        text = text_of(done)
        shown = {"/a.txt": "new, +3 -0", "/b.md": "new, +1 -0", "/old.txt": "+2 -1"}
        assert f"Changed: {', '.join(f'{path} ({shown[path]})' for path in paths)}." in text
        assert "Calls that failed: read_file 1, edit_file 1." in text
        assert "Todos left open: publish." in text and refused in text
        for link, path in zip(links_of(done), paths, strict=True):
            assert link.uri == f"thread://{thread_id}/files{path}"
            assert (await client.read_resource(link.uri)).contents
        assert (await client.call_tool("wait", {"run_id": data["run_id"]})).content == done.content
    async with client_of(tmp_path, **place) as client:  # a later server knows the same
        again = await client.call_tool("wait", {"run_id": data["run_id"]})
        assert again.structured_content == data and again.content == done.content
        await client.call_tool("ls", {"thread_id": thread_id})  # what the todos are now is not
        moved_on = await client.call_tool("wait", {"run_id": data["run_id"]})
        assert moved_on.structured_content is not None
        assert moved_on.structured_content["changes"] == data["changes"]


async def test_an_answer_lists_what_commands_wrote_as_far_as_it_is_known(tmp_path: Path) -> None:
    need_bubblewrap()
    root = tmp_path / "root"
    (root / "node_modules").mkdir(parents=True)
    for name in ("old.txt", "again.txt", "same.txt"):
        (root / name).write_text("a\n")
    async with client_of(tmp_path, root=str(root), execute="bubblewrap") as client:
        done = await client.call_tool("task", {"goal": "run commands"})
    data = done.structured_content
    assert data is not None and data["answer"] == "All run."
    assert data["changes"] == [
        {"path": "/workspace/made.txt", "how": "new"},
        {"path": "/workspace/old.txt"},
        {"path": "/workspace/again.txt"},  # was there before, and was made anew
    ]
    assert data["changes_unlisted"] is True
    assert "Commands may have changed more files" in text_of(done)


async def test_an_answer_names_the_last_files_of_many_and_is_silent_about_nothing(
    tmp_path: Path,
) -> None:
    async with client_of(tmp_path) as client:
        many = await client.call_tool("task", {"goal": "write many"})
        data = many.structured_content
        assert data is not None and data["changes_more"] == 2
        assert [one["path"] for one in data["changes"]] == [f"/{n}.txt" for n in range(2, 12)]
        assert "and 2 more." in text_of(many) and len(links_of(many)) == 10
        none = (await client.call_tool("task", {"goal": "rest"})).structured_content
        assert none is not None and not {"changes", "not_done"} & none.keys()


async def test_an_answer_says_that_its_account_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "PAGE", 10)
    monkeypatch.setattr(accounts, "MOST_PAGES", 2)
    async with client_of(tmp_path) as client:
        many = await client.call_tool("task", {"goal": "write many"})
        data = many.structured_content
        assert data is not None and data["account_cut"] is True
        assert len(data.get("changes", ())) + data.get("changes_more", 0) < 12
        assert "this account is not complete" in text_of(many)
        rest = (await client.call_tool("task", {"goal": "rest"})).structured_content
        assert rest is not None and "account_cut" not in rest


@pytest.mark.parametrize("limits", [EventLimits(per_run=10), EventLimits(seconds=0.0)])
async def test_an_answer_says_that_events_are_no_longer_stored(
    limits: EventLimits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(SqliteCheckpointer, event_limits=limits)
    monkeypatch.setattr(journals, "SqliteCheckpointer", few)
    async with client_of(tmp_path) as client:
        many = await client.call_tool("task", {"goal": "write many"})
        data = many.structured_content
        assert data is not None and data["status"] == "done"
        assert len(data.get("changes", ())) + data.get("changes_more", 0) < 12
        assert data["account_cut"] is True
        assert "this account is not complete" in text_of(many)


def test_images_of_an_answer_are_content_that_clients_show() -> None:
    small, large = ImageBlock("image/png", "aGk="), ImageBlock("image/png", "A" * 1_000_000)
    (block,) = account_facts("thr_1", Account(media=(small, large))).blocks
    assert isinstance(block, ImageContent) and block.data == "aGk="


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (b"", b"a\nb\n", (2, 0)),
        (b"a\nb\n", b"", (0, 2)),
        (b"a\nb\nc\n", b"a\nx\ny\nc\n", (2, 1)),
        (b"a\nb\n", b"b\na\n", (1, 1)),
        (b"a\n", b"a", (1, 1)),
        (b"same\n", b"same\n", (0, 0)),
    ],
)
def test_lines_are_counted(before: bytes, after: bytes, counts: tuple[int, int]) -> None:
    assert counted_lines(before, after) == dict(zip(("added", "removed"), counts, strict=True))


def test_lines_of_what_is_no_text_are_not_counted() -> None:
    assert counted_lines(b"a\0b", b"a\n") == counted_lines(b"a", b"\0") == {}


async def test_a_client_that_may_not_know_links_is_sent_none(tmp_path: Path) -> None:
    async with client_of(tmp_path, name="mcp") as client:
        done = await client.call_tool("task", {"goal": "many"})
        assert "Changed: " in text_of(done) and not links_of(done)


@pytest.mark.parametrize(("name", "links"), [("mcp", 0), ("claude-code", 10)])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_results_of_tasks_have_links_for_the_same_clients(
    mode: str, name: str, links: int, tmp_path: Path
) -> None:
    tasks = Tasks()
    async with client_of(tmp_path, mode, name=name, extensions=[tasks]) as client:
        done = await client.call_tool("task", {"goal": "many"})
        assert bool(tasks.created) is (mode == "auto")
        if mode == "legacy":
            assert done.structured_content is not None
            task_id = done.structured_content["run_id"]
            shown = await ask(client.session, "tasks/result", task_id)
            done = CallToolResult.model_validate(shown)
        assert "Changed: " in text_of(done) and len(links_of(done)) == links
