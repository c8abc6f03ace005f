"""The snippets of a page of the documentation, section by section."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class DocPage:
    """A page whose snippets shall run as they are written.

    A section may use what the first one defines, and nothing of the others.

    Attributes:
        titles: Of its sections, in order.
        lines: How long it is.
    """

    def __init__(self, name: str) -> None:
        self.path = Path(__file__).parents[1] / "docs" / name
        page = self.path.read_text(encoding="utf-8")
        starts = [found.start() for found in re.finditer(r"^## ", page, re.MULTILINE)]
        self.lines = len(page.splitlines())
        self._sections: dict[str, tuple[int, str]] = {}
        for start, end in zip(starts, [*starts[1:], len(page)], strict=True):
            text = page[start:end]
            title = text.splitlines()[0].removeprefix("## ")
            self._sections[title] = (page[:start].count("\n"), text)
        self.titles = list(self._sections)

    def text(self, title: str) -> str:
        return self._sections[title][1]

    def without_snippet(self) -> list[str]:
        """Return the titles of the sections that show no code."""
        return [one for one in self.titles if not BLOCK.search(self.text(one))]

    def run(self, title: str, change: Callable[[str], str] = lambda code: code) -> dict[str, Any]:
        """Run the first section and this one; return what they define."""
        names: dict[str, Any] = {"__name__": self.path.stem}
        for one in dict.fromkeys((self.titles[0], title)):
            self._run(one, names, change)
        return names

    def _run(self, title: str, names: dict[str, Any], change: Callable[[str], str]) -> None:
        line, text = self._sections[title]
        for block in BLOCK.finditer(text):
            above = line + text[: block.start(1)].count("\n")
            # Places in errors are those of the page.
            code = "\n" * above + change(block[1])
            exec(compile(code, str(self.path), "exec", dont_inherit=True), names)
