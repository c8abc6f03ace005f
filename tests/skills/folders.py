"""Shorthands that write skills and subagents to disk like editors."""

import os
from pathlib import Path


def skill_text(name: str, description: str = "Does it. Use when it is needed.", body: str = "Do."):
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"


def write_skill(source: Path, name: str, text: str | None = None, **fields: str) -> Path:
    path = source / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(skill_text(name, **fields) if text is None else text, encoding="utf-8")
    return path


def save(path: Path, content: str | bytes) -> None:
    """Save in place."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def remove(path: Path) -> None:
    path.unlink()


def save_by_rename(path: Path, text: str) -> None:
    """Save like editors that write a new file and rename it to the old name."""
    fresh = path.with_name(f".{path.name}.tmp")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
