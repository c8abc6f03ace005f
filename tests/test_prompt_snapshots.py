"""What models are told, word for word, by configuration: `tests/snapshots/*.txt`.

A changed text shows up in review as a changed file. To accept what the code says now:

    UPDATE_SNAPSHOTS=1 pytest tests/test_prompt_snapshots.py
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.file_tools.tools import ALL_FILE_TOOLS
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.middleware.context.summarization import SummarizationMiddleware
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.skills import SkillsMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.loop.models import Turns, says
from tests.skills.folders import write_skill

pytestmark = pytest.mark.anyio

SNAPSHOTS = Path(__file__).parent / "snapshots"


def default(model: Turns, root: Path) -> Agent:
    return create_deep_agent(model)


def equipped(model: Turns, root: Path) -> Agent:
    write_skill(root / "skills", "reviewing", description="How to review. Use before a review.")
    (root / "AGENTS.md").write_text("Use tabs.")
    return create_deep_agent(
        model,
        system_prompt="You look after one repository.",
        backend=DirectoryBackend(root),
        skills=SkillRegistry([root / "skills"]),
        memory=MemoryFiles([root / "AGENTS.md"]),
    )


def reader(model: Turns, root: Path) -> Agent:
    files = FilesystemMiddleware(
        StateBackend(), tools=("ls", "read_file", "grep"), evict_chars=None
    )
    return create_agent(model, middleware=[files])


def everything(model: Turns, root: Path) -> Agent:
    write_skill(root / "skills", "style", description="How we write.", body="Be brief.")
    return create_agent(
        model,
        middleware=[
            FilesystemMiddleware(StateBackend(), tools=ALL_FILE_TOOLS),
            SkillsMiddleware(SkillRegistry([root / "skills"]), pinned=["style"]),
            SummarizationMiddleware(compact_tool=True),
        ],
    )


@pytest.mark.parametrize(
    "make", [default, equipped, reader, everything], ids=lambda one: one.__name__
)
async def test_a_model_is_told_what_the_snapshot_says(
    make: Callable[[Turns, Path], Agent], tmp_path: Path
):
    model = Turns(says("ok"))
    await make(model, tmp_path).ainvoke("Hello")
    text = shown(model.requests[0]).replace(str(tmp_path), "<root>")
    path = SNAPSHOTS / f"{make.__name__}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"see {__name__} for how to accept a change"


def shown(request: ChatRequest) -> str:
    parts = [f"=== system: {one.name}\n{one.text}" for one in request.system]
    for one in request.tools:
        assert isinstance(one, ToolSpec)
        schema = json.dumps(one.parameters, indent=1, ensure_ascii=False)
        parts.append(f"=== tool: {one.name}\n{one.description}\n--- arguments\n{schema}")
    return "\n\n".join(parts) + "\n"
