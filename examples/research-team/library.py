"""An MCP server over a directory of text files: `python library.py DIRECTORY`.

Its two tools have the shape that research agents expect: `search` finds documents, `fetch` returns
one. Replace the bodies to search something else, such as a wiki or a database.
"""

import re
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.types import ToolAnnotations
from typing_extensions import TypedDict

SOURCES = Path(sys.argv[1] if len(sys.argv) > 1 else "sources")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)

library = MCPServer("library")


class Hit(TypedDict):
    id: str
    title: str
    url: str
    excerpt: str


class Document(TypedDict):
    id: str
    url: str
    text: str


def documents() -> dict[str, str]:
    """Return all documents by their ids, which are their file names."""
    files = sorted([*SOURCES.glob("*.md"), *SOURCES.glob("*.txt")])
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def url_of(name: str, text: str) -> str:
    first = text.partition("\n")[0]
    return first.removeprefix("URL:").strip() if first.startswith("URL:") else name


@library.tool(annotations=READS)
def search(query: str) -> list[Hit]:
    """Find documents about a query, best first. Returns ids for `fetch`, with an excerpt each."""
    words = set(re.findall(r"\w{3,}", query.lower()))
    found: list[tuple[int, Hit]] = []
    for name, text in documents().items():
        paragraphs = text.split("\n\n")[1:]
        scores = [sum(word in one.lower() for word in words) for one in paragraphs]
        if any(scores):
            excerpt = paragraphs[scores.index(max(scores))].strip()[:300]
            title = next((one[2:] for one in text.splitlines() if one.startswith("# ")), name)
            hit = Hit(id=name, title=title, url=url_of(name, text), excerpt=excerpt)
            found.append((sum(scores), hit))
    found.sort(key=lambda one: -one[0])
    return [hit for _, hit in found[:8]]


@library.tool(annotations=READS)
def fetch(id: str) -> Document:  # noqa: A002 - the name that clients expect
    """Return the whole text of a document that `search` found."""
    all_documents = documents()
    if id not in all_documents:
        raise ValueError(f"There is no document {id!r}. Call `search` for ids.")
    return Document(id=id, url=url_of(id, all_documents[id]), text=all_documents[id])


if __name__ == "__main__":
    library.run("stdio")
