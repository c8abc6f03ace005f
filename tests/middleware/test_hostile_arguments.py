"""Whatever a model writes as a path, pattern or text, it is answered, and nothing leads outside."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.base import Backend
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware.file_search import FilesystemFileSearchMiddleware
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.store.memory import MemoryStore
from tests.loop.models import Turns, call

SECRET = "plums and 4711"
PARTS = [
    *("a", "b.txt", "..", ".", "", "~", "*", "**", "{a,b}", "{", "[", "]", "[!a]", "?", "\\", "C:"),
    *("\0", "\n", "ü", "%2e%2e", "a" * 300, " ", "-rf", "$HOME", "!x", "@(a|b)", "|", "("),
    *("(a+)+$", "secret", "link", "outside", "/etc/passwd"),
]
texts = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=6).map("/".join),
    st.lists(st.sampled_from(PARTS), max_size=6).map("".join),
    st.text(max_size=12),
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": texts,
        "pattern": texts,
        "glob": texts,
        "include": texts,
        "content": texts,
        "old_string": texts,
        "new_string": texts,
        "offset": st.integers(-1, 10**20),
        "limit": st.integers(-1, 10**20),
        "column": st.integers(-1, 10**20),
        "replace_all": st.booleans(),
        "ignore_case": st.booleans(),
        "skip_ignored": st.booleans(),
        "output_mode": st.sampled_from(["content", "count", "files", "files_with_matches", "x"]),
    },
)
NAMES = ("ls", "read_file", "write_file", "edit_file", "delete_file", "glob", "grep",
         "glob_search", "grep_search")  # fmt: skip
NEEDS: dict[str, dict[str, Any]] = {
    "write_file": {"path": "/a", "content": ""},
    "edit_file": {"path": "/b.txt", "old_string": "x", "new_string": "y"},
    "read_file": {"path": "/a"},
    "delete_file": {"path": "/nope"},
    "glob": {"pattern": "*"},
    "grep": {"pattern": "x"},
    "glob_search": {"pattern": "*"},
    "grep_search": {"pattern": "x"},
}
TAKES = {
    "ls": {"path", "offset"},
    "read_file": {"path", "offset", "limit", "column"},
    "write_file": {"path", "content"},
    "edit_file": {"path", "old_string", "new_string", "replace_all"},
    "delete_file": {"path"},
    "glob": {"pattern", "path", "skip_ignored", "offset"},
    "grep": {"pattern", "path", "glob", "output_mode", "ignore_case", "skip_ignored", "offset"},
    "glob_search": {"pattern", "path", "offset"},
    "grep_search": {"pattern", "path", "include", "output_mode", "offset"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("hostile")
    (base / "outside").mkdir()
    (base / "outside" / "secret").write_text(SECRET)
    root = base / "root"
    (root / "a").mkdir(parents=True)
    (root / "b.txt").write_text("x\ny\n")
    if os.name != "nt":
        (root / "link").symlink_to(base / "outside")
    return root


def backend_of(which: int, root: Path) -> Backend:
    disk = DirectoryBackend(root, ripgrep=which != 1)
    store = StoreBackend(MemoryStore(), ("files",))
    mounted = CompositeBackend(StateBackend(), {"/a": disk, "/s": store})
    return (disk, disk, StateBackend(), store, mounted)[which]


def agent_of(which: int, root: Path) -> Agent:
    files = FilesystemMiddleware(
        backend_of(which, root),
        tools=("ls", "read_file", "write_file", "edit_file", "delete_file", "glob", "grep"),
    )
    return create_agent(Turns(), middleware=[files, FilesystemFileSearchMiddleware(root)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sampled_from(NAMES), arguments, st.integers(0, 4))
@example("grep", {"path": "/link/secret", "pattern": "plums"}, 0)
@example("glob", {"pattern": "/link/*"}, 1)
@example("write_file", {"path": "/link/secret", "content": "gone"}, 0)
@example("delete_file", {"path": "/link/secret"}, 1)
@example("read_file", {"path": "link/secret"}, 4)
@example("grep_search", {"pattern": "(a+)+$", "include": "*.{txt"}, 0)
@example("glob_search", {"pattern": "{" * 40 + "a" + "}" * 40}, 0)
@example("glob", {"pattern": "{1..100000}"}, 2)
@example("read_file", {"path": "/b.txt", "offset": 10**20}, 0)
def test_every_call_of_a_file_tool_is_answered_and_stays_inside(
    root: Path, name: str, given_arguments: dict[str, Any], which: int
) -> None:
    taken = {key: value for key, value in given_arguments.items() if key in TAKES[name]}
    made = call("c", name, **{**NEEDS.get(name, {}), **taken})

    async def drive() -> ToolMessage:
        with anyio.fail_after(60):
            result = await agent_of(which, root).adrive([made])
        assert result.error is None, result.error
        (message,) = result.results
        return message

    message = anyio.run(drive)
    assert message.status in ("success", "error")
    assert SECRET not in message.text
    assert SECRET not in repr(message.artifact)
    assert len(message.text) < 12_000
    assert (root.parent / "outside" / "secret").read_text() == SECRET
    assert sorted(one.name for one in (root.parent / "outside").iterdir()) == ["secret"]
    assert sorted(one.name for one in root.parent.iterdir()) == ["outside", "root"]
