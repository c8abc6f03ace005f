"""What is wrong with the operator's files is in the log: at the start, and when they are saved."""

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.reload import FileReports
from deep_agent_mcp.server.settings.sources import load_settings
from tests.skills.folders import save

pytestmark = pytest.mark.anyio


async def seen(caplog: pytest.LogCaptureFixture, text: str) -> int:
    """Wait until the log holds a text; return how often."""
    with anyio.fail_after(60):
        while not (count := sum(text in one.getMessage() for one in caplog.records)):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    return count


async def test_broken_files_are_reported_at_the_start_and_when_they_are_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    skill, agent = tmp_path / "skills/one/SKILL.md", tmp_path / "agents/two.md"
    memory, later = tmp_path / "AGENTS.md", tmp_path / "agents/three.md"
    for folder in (skill.parent, agent.parent):
        folder.mkdir(parents=True)
    save(skill, "no frontmatter")
    save(agent, "none here either")
    save(memory, b"\xff")
    given: dict[str, Any] = {
        "state_dir": str(tmp_path / "state"),
        "skills": [str(tmp_path / "skills")],
        "agents": str(tmp_path / "agents"),
        "memory": [str(memory)],
    }
    async with create_app(load_settings(given, {})):
        assert await seen(caplog, str(skill)) == 1
        assert await seen(caplog, str(agent)) == 1
        assert await seen(caplog, f"{memory}:1: not UTF-8") == 1
        save(later, "broken")
        assert await seen(caplog, str(later)) == 1
        save(agent, "---\nname: two\ndescription: Does it.\n---\nDo it.")
        assert await seen(caplog, f"{agent}: the problem with it is fixed") == 1
    # Whatever happened to other files: each problem is there once.
    problems = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    for path in (skill, agent, later):
        assert sum(str(path) in one for one in problems) == 1


def test_a_problem_is_said_again_only_when_it_is_another(caplog: pytest.LogCaptureFixture) -> None:
    reports = FileReports()
    for errors in ({"/a": "/a: one"}, {"/a": "/a: one"}, {"/a": "/a: two"}, {}, {"/a": "/a: one"}):
        reports.report("skills", errors)
    assert [one.getMessage() for one in caplog.records] == [
        "/a: one",
        "/a: two",
        "/a: the problem with it is fixed",
        "/a: one",
    ]


def test_a_memory_file_that_is_broken_from_the_beginning_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_bytes(b"\xff")
    files = MemoryFiles([path])
    for _ in range(3):
        files.reload()
    assert [one.getMessage() for one in caplog.records] == [
        f"memory: {path}:1: not UTF-8 text. Save the file as UTF-8."
    ]
