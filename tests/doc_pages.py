"""Pages of the documentation, and their snippets."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(
    r"(?:^<!-- fragment: (?P<why>[^\n]*) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A fenced block of a page.

    Attributes:
        page: The file.
        line: Line number of the start of its code, from 1.
        language: The word after the fence.
        code: Its content.
        why: Reason why it is a fragment that cannot run alone; empty if it can.
    """

    page: Path
    line: int
    language: str
    code: str
    why: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"

    def run(self) -> dict[str, Any]:
        """Run the snippet unchanged in an empty namespace; return its names."""
        names: dict[str, Any] = {"__name__": self.page.stem}
        code = "\n" * (self.line - 1) + self.code  # errors then show line numbers of the page
        exec(compile(code, str(self.page), "exec", dont_inherit=True), names)
        return names

    def run_as_a_program(self) -> None:
        """Run the snippet unchanged in a new process."""
        command = [sys.executable, "-"]
        done = subprocess.run(command, input=self.code, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{self}: {done.stderr}"


def snippets(page: Path) -> Iterator[Snippet]:
    """Yield the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text[: found.start("code")].count("\n") + 1
        code = found["code"]
        if found["indent"]:
            code = re.sub(f"^{found['indent']}", "", code, flags=re.MULTILINE)
        yield Snippet(page, line, found["language"], code, found["why"] or "")


class DocPage:
    """A page of `docs/`, split into sections.

    Attributes:
        path: The file.
        titles: Titles of its sections, in order.
    """

    def __init__(self, name: str) -> None:
        self.path = ROOT / "docs" / name
        page = self.path.read_text(encoding="utf-8")
        starts = [found.start() for found in re.finditer(r"^## ", page, re.MULTILINE)]
        self._sections: dict[str, tuple[int, str]] = {}
        for start, end in zip(starts, [*starts[1:], len(page)], strict=True):
            text = page[start:end]
            title = text.splitlines()[0].removeprefix("## ")
            self._sections[title] = (page[:start].count("\n"), text)
        self.titles = list(self._sections)

    def text(self, title: str) -> str:
        return self._sections[title][1]

    def run(self, title: str) -> dict[str, Any]:
        """Run the Python snippets of a section; return the names of the last one."""
        first, text = self._sections[title]
        names: dict[str, Any] = {}
        for one in snippets(self.path):
            if one.language == "python" and first < one.line <= first + text.count("\n"):
                names = one.run()
        return names
