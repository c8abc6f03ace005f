import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware.file_search import FilesystemFileSearchMiddleware
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "old.py": "import os\nTODO = 1\n",
        "src/new.py": "def main():\n    pass  # TODO\n",
        "src/deep/page.ts": "const todo = 'TODO'\n",
        "src/deep/page.tsx": "nothing\n",
        ".hidden/notes.md": "TODO (hidden)\n",
        "README.md": "# Title\r\nTODO: ü\r\n",
    }
    root = tmp_path / "root"
    for number, (name, text) in enumerate(files.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        os.utime(path, (1_000 + number, 1_000 + number))
    (root / "image.bin").write_bytes(b"\0TODO\0\xff")
    os.utime(root / "image.bin", (1, 1))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("TODO secret")
    return root


async def answer(root: Path, name: str, /, **args: Any) -> ToolMessage:
    options = args.pop("options", {})
    middleware = FilesystemFileSearchMiddleware(root, **options)
    agent = create_agent(
        Turns(says("", call("a", name, **args)), says("ok")), middleware=[middleware]
    )
    result = await agent.ainvoke("Go")
    (message,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    if message.status == "success":
        (tool,) = [one for one in middleware.tools if one.name == name]
        jsonschema.validate(message.artifact, tool.output_schema or {})
    return message


async def rows(root: Path, name: str, /, **args: Any) -> list[Any]:
    message = await answer(root, name, **args)
    assert message.status == "success", message.text
    artifact: Any = message.artifact
    for row in artifact["results"]:
        assert row["path"] in message.text
    return artifact["results"]


async def paths(root: Path, name: str, /, **args: Any) -> list[str]:
    return [row["path"] for row in await rows(root, name, **args)]


async def test_glob_finds_at_any_depth_newest_first(root: Path) -> None:
    assert await paths(root, "glob_search", pattern="*.py") == ["/src/new.py", "/old.py"]
    assert await paths(root, "glob_search", pattern="**/*.md") == [
        "/README.md",
        "/.hidden/notes.md",
    ]


async def test_glob_takes_braces_directories_and_patterns_from_the_root(root: Path) -> None:
    found = await paths(root, "glob_search", pattern="deep/*.{ts,tsx}", path="/src")
    assert found == ["/src/deep/page.tsx", "/src/deep/page.ts"]
    assert await paths(root, "glob_search", pattern="/src/*.py") == ["/src/new.py"]
    assert await paths(root, "glob_search", pattern="*.py", path=str(root / "src")) == [
        "/src/new.py"
    ]


async def test_grep_returns_files_lines_or_counts(root: Path) -> None:
    found = await paths(root, "grep_search", pattern="TODO")
    assert sorted(found) == [
        "/.hidden/notes.md",
        "/README.md",
        "/old.py",
        "/src/deep/page.ts",
        "/src/new.py",
    ]
    lines = await rows(root, "grep_search", pattern="TODO.*ü$", output_mode="content")
    assert lines == [{"path": "/README.md", "line": 2, "text": "TODO: ü"}]
    counts = await rows(
        root, "grep_search", pattern="[tT]", path="/old.py", include="", output_mode="count"
    )
    assert counts == [{"path": "/old.py", "count": 2}]


async def test_grep_looks_only_into_included_files(root: Path) -> None:
    found = await paths(root, "grep_search", pattern="TODO", include="*.{py,md}", path="/src")
    assert found == ["/src/new.py"]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("glob_search", {"pattern": "../outside/*.py"}),
        ("glob_search", {"pattern": "src/../../*"}),
        ("glob_search", {"pattern": "..\\outside\\*"}),
        ("glob_search", {"pattern": "~/*"}),
        ("glob_search", {"pattern": "*.py", "path": "../outside"}),
        ("glob_search", {"pattern": "*.py", "path": "~"}),
        ("glob_search", {"pattern": "*.py", "path": "C:\\outside"}),
        ("grep_search", {"pattern": "TODO", "path": "/../outside"}),
        ("grep_search", {"pattern": "TODO", "include": "../outside/*"}),
        ("grep_search", {"pattern": "("}),
        ("glob_search", {"pattern": " "}),
        ("glob_search", {"pattern": "*", "path": "/nowhere"}),
    ],
)
async def test_ways_out_and_nonsense_are_errors_for_the_model(
    root: Path, name: str, args: dict[str, str]
) -> None:
    message = await answer(root, name, **args)
    assert message.status == "error"
    assert "secret" not in message.text


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
async def test_links_that_lead_out_are_not_followed(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    (root / "link.py").symlink_to(root.parent / "outside" / "secret.py")
    assert "/link.py" not in await paths(root, "glob_search", pattern="**/*.py")
    assert not any("link" in one for one in await paths(root, "grep_search", pattern="secret"))
    for args in ({"path": "/link"}, {"path": "/link.py"}):
        message = await answer(root, "grep_search", pattern="secret", **args)
        assert "TODO secret" not in message.text
        assert message.status == "error"


async def test_an_absolute_path_of_the_machine_leads_nowhere_outside(root: Path) -> None:
    outside = root.parent / "outside"
    message = await answer(root, "glob_search", pattern="*.py", path=str(outside))
    assert message.status == "error"
    message = await answer(root, "glob_search", pattern=f"{outside.as_posix()}/*.py")
    assert "secret" not in str(message.artifact)


async def all_pages(root: Path, name: str, **args: Any) -> list[Any]:
    """Return all rows, page by page as each answer says."""
    seen: list[Any] = []
    while True:
        message = await answer(root, name, **args, offset=len(seen))
        artifact: Any = message.artifact
        assert len(message.text) < 10_000
        seen += artifact["results"]
        if "next" not in artifact:
            assert not artifact["truncated"]
            assert artifact["total"] == len(seen)
            return seen
        assert artifact["next"].startswith(f"{name}(")
        assert artifact["next"].endswith(f"offset={len(seen)})")
        assert artifact["next"] in message.text


async def test_results_come_in_pages_one_after_the_other_past_every_cap(root: Path) -> None:
    many = root / "many"
    many.mkdir()
    for number in range(1_050):
        (many / f"file{number:04}.txt").write_text("needle\n")
    wide: dict[str, Any] = {"options": {"page_chars": 9_000}}
    names = {f"/many/file{number:04}.txt" for number in range(1_050)}
    found = await all_pages(root, "glob_search", pattern="*.txt", **wide)
    assert {row["path"] for row in found} == names and len(found) == 1_050
    lines = await all_pages(root, "grep_search", pattern="needle", output_mode="content", **wide)
    assert [row["path"] for row in lines] == sorted(names)
    first = await answer(root, "grep_search", pattern="needle", output_mode="content")
    artifact: Any = first.artifact
    assert artifact["truncated"]
    assert " of 1000 or more; next: " in first.text


async def test_where_no_more_is_looked_for_the_answer_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.harness.backends.file_tools.results.MAX_RESULTS", 2)
    monkeypatch.setattr("deep_agent_mcp.harness.backends.file_tools.results.MOST", 3)
    found = await answer(root, "glob_search", pattern="*", offset=2)
    assert "no more are looked for: narrow the search" in found.text


async def test_large_files_are_not_looked_into(root: Path) -> None:
    (root / "large.txt").write_text("TODO\n" + "x" * 3_000)
    small = {"max_file_size_mb": 0.002}
    assert "/large.txt" not in await paths(root, "grep_search", pattern="TODO", options=small)
    assert "/large.txt" in await paths(root, "grep_search", pattern="TODO")


def test_wrong_arguments_are_refused_when_the_agent_is_built(tmp_path: Path) -> None:
    with pytest.raises(AgentBuildError, match="not a directory"):
        FilesystemFileSearchMiddleware(tmp_path / "gone")
    with pytest.raises(AgentBuildError, match="positive"):
        FilesystemFileSearchMiddleware(tmp_path, max_file_size_mb=0)


def test_the_tools_say_that_they_change_nothing(tmp_path: Path) -> None:
    tools = FilesystemFileSearchMiddleware(tmp_path).tools
    assert [one.name for one in tools] == ["glob_search", "grep_search"]
    assert all(one.read_only and one.idempotent and not one.open_world for one in tools)
    assert "runtime" not in str(tools[0].parameters)
