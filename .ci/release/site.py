"""Builds the documentation site: `python .ci/release site [OUT]`.

The pages are those of `docs/` and the reference pages made from the code (`release.reference`).
The build is strict: it fails if a link is broken, if a page is missing from the navigation in
`mkdocs.yml`, or if a page loads something from another host. Run `pip install '.[docs]'` first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import yaml

from release.mcpb import asked_tools
from release.project import REPO
from release.reference import command_line, python_api, tools_page

__all__ = ["GENERATED", "build", "pages_in"]

GENERATED = ("reference/python-api.md", "reference/command-line.md", "reference/tools.md")
"""Pages that are made from the code when the site is built."""

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]*)(#[^)]*)?\)")
LOADED = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc="?(https?:)?//|<link[^>]*stylesheet[^>]*"""
                    r"""href="?(https?:)?//""")  # fmt: skip


def pages_in(nav: list[Any]) -> Iterator[str]:
    """Yield the pages that a navigation names."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, list):
                yield from pages_in(value)
            else:
                yield value


def build(out: Path) -> None:
    """Write the site into a directory.

    Raises:
        SystemExit: The pages are not as they must be; what is wrong has been printed.
    """
    config = yaml.safe_load((REPO / "mkdocs.yml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place:
        docs = Path(place, "docs")
        shutil.copytree(REPO / "docs", docs)
        for page in docs.rglob("*.md"):
            page.write_text(_inside(page, docs), encoding="utf-8")
        made = (python_api(), command_line(), tools_page(anyio.run(asked_tools)))
        for name, text in zip(GENERATED, made, strict=True):
            (docs / name).parent.mkdir(exist_ok=True)
            (docs / name).write_text(text, encoding="utf-8")
        _require_all(set(pages_in(config["nav"])), docs)
        Path(place, "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
        env = {**os.environ, "NO_COLOR": "1"}
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(ESCAPES.sub("", done.stdout) or done.stderr)
        site = Path(place, "site")
        _require_local(site)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(site, out)


def _inside(page: Path, docs: Path) -> str:
    """Return the text of a page whose links to files outside of `docs/` are names instead."""

    def shown(found: re.Match[str]) -> str:
        target = (page.parent / found[2]).resolve()
        if target.is_relative_to(docs.resolve()):
            return found[0]
        name = target.relative_to(docs.resolve().parent).as_posix()
        title = found[1].strip("`")
        return f"`{name}`" if title in name else f"{found[1]} (`{name}`)"

    return LINK.sub(shown, page.read_text(encoding="utf-8"))


def _require_all(named: set[str], docs: Path) -> None:
    there = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    if missing := sorted(there - named):
        raise SystemExit(f"mkdocs.yml: add these pages to `nav`: {', '.join(missing)}")
    if gone := sorted(named - there):
        raise SystemExit(f"mkdocs.yml: `nav` names pages that do not exist: {', '.join(gone)}")


def _require_local(site: Path) -> None:
    for page in site.rglob("*.html"):
        if found := LOADED.search(page.read_text(encoding="utf-8")):
            raise SystemExit(f"{page.relative_to(site)} loads from another host: {found[0]}")
