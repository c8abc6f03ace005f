"""The skills that ship: they load, speak only of tools and files that exist, and stay short."""

import re
from pathlib import Path

import pytest

from deep_agent_mcp.harness.skills import SkillRegistry

SOURCE = Path(__file__).parents[2] / "skills"
TOOLS = {
    "write_todos", "ls", "read_file", "write_file", "edit_file", "glob", "grep", "skill", "task",
    "shell", "execute",
}  # fmt: skip
OTHER_WORDS = {
    # fields of a skill
    "name", "description", "license", "compatibility", "metadata",
    # fields and states of a todo
    "pending", "in_progress", "completed", "id", "merge",
    # parts of examples
    "since", "until", "and", "or",
    # programs of the system, and functions of SQL
    "cut", "count", "substr",
}  # fmt: skip

REGISTRY = SkillRegistry([SOURCE])
NAMES = [
    "data-tables", "migrating-code", "organising-notes", "planning-with-todos",
    "reading-documents", "release-notes", "researching-with-subagents", "reviewing-changes",
    "writing-skills", "writing-tests",
]  # fmt: skip


def texts(name: str) -> str:
    directory = REGISTRY.get(name).directory
    return "\n".join(path.read_text(encoding="utf-8") for path in directory.rglob("*.md"))


@pytest.mark.parametrize("name", NAMES)
def test_a_description_says_when_not_to_use_it(name: str):
    assert re.search(r"\bNot for\b", REGISTRY.get(name).description)


def test_all_load_without_errors():
    assert not REGISTRY.errors
    assert list(REGISTRY.skills) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_words_in_code_marks_are_tools_that_exist(name: str):
    words = set(re.findall(r"`([a-z_]+)(?:\([^`]*\))?`", texts(name)))
    assert words & TOOLS
    assert words - TOOLS - OTHER_WORDS == set()


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_mentioned_exist_and_all_files_are_mentioned(name: str):
    skill = REGISTRY.get(name)
    mentioned = set(re.findall(r"`((?:assets|references|scripts)/\w+\.\w+)`", skill.body))
    assert mentioned == {file.path for file in skill.files} - {"SKILL.md"}


@pytest.mark.parametrize("name", NAMES)
def test_they_fit_into_one_answer_and_one_description(name: str):
    skill = REGISTRY.get(name)
    assert 60 <= len(skill.path.read_text(encoding="utf-8").splitlines()) <= 100
    assert len(skill.body) < 8_000
    assert "Use when" in skill.description
    assert len(skill.description) <= 450
