"""Hostile calls: arguments for each tool with the maximum length, number, depth or width.

They are written as JSON text, because client libraries cannot send all valid messages.
"""

from __future__ import annotations

import base64
import codecs
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["HUGE", "KINDS", "HostileCall", "calls_of", "calls_on_files", "hostile_files"]

HUGE = 13 << 20
"""Bytes of a value; the limit for a message is 14 MiB."""


@dataclass(frozen=True, slots=True)
class HostileCall:
    """A call of a tool.

    Attributes:
        tool: Its name.
        argument: The hostile argument.
        kind: Kind of its value.
        arguments: Function that returns all arguments as JSON text, without braces.
        reads: A file to read first, in the thread of the call.
    """

    tool: str
    argument: str
    kind: str
    arguments: Callable[[], bytes]
    reads: str = ""

    @property
    def name(self) -> str:
        """Name of the call for people."""
        return f"{self.tool}({self.argument}: {self.kind})"


def _text(unit: str, start: str = "") -> Callable[[int], bytes]:
    data, first = unit.encode(), start.encode()
    return lambda size: b'"' + first + data * (size // len(data)) + b'"'


def _list(item: str) -> Callable[[int], bytes]:
    data = item.encode()
    return lambda size: b"[" + (data + b",") * (size // (len(data) + 1)) + data + b"]"


def _random_text(size: int) -> bytes:
    return b'"' + base64.b64encode(random.Random(1).randbytes(size // 4 * 3)) + b'"'


def _members(size: int) -> bytes:
    return b"{" + b",".join(b'"%d":0' % one for one in range(size // 10)) + b"}"


KINDS: Mapping[str, Callable[[int], bytes]] = {
    "one letter": _text("a"),
    "four-byte characters": _text("😀"),
    "one four-byte character": _text("a", "😀"),
    "expanding characters": _text("ﷺ"),
    "control characters": _text("\\u0001"),
    "line ends": _text("\\n"),
    "quotes": _text("'\\\""),
    "slashes": _text("/"),
    # The maximum length of a file's text.
    "fewer quotes": lambda size: _text("'\\\"")(min(size, 12_500_000)),
    "random text": lambda size: _random_text(min(size, 8 << 20)),
    "braces": _text("{a,"),
    "stars": _text("**/"),
    "parentheses": _text("("),
    "short braces": lambda _: _text("{a,b}")(300),
    "short repeats": lambda _: _text("(a{1,9}){1,9}")(600),
    "short stars": lambda _: _text("*?a")(900),
    "many lists": _list("[]"),
    "many objects": _list("{}"),
    "many texts": _list('""'),
    "many members": _members,
    "few lists": lambda _: _list("[]")(14_000),
    "few objects": lambda _: _list("{}")(14_000),
    "few todos": lambda _: _list('{"content":"a"}')(40_000),
    "few members": lambda _: _members(60_000),
    "levels": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "few levels": lambda _: b"[" * 150 + b"]" * 150,
    "many digits": lambda size: b"9" * min(size, 1 << 20),
    "some digits": lambda _: b"9" * 4_000,
    "many decimals": lambda size: b"0." + b"1" * size,
    "a large number": lambda _: b"1000000000000000000",
    "a negative number": lambda _: b"-1",
}


def calls_of(tools: Sequence[Mapping[str, Any]], size: int = HUGE) -> Iterator[HostileCall]:
    """Yield a call for each kind of value of each argument of each tool, and an unknown argument.

    Args:
        tools: The tools from `tools/list`.
        size: Bytes of the larger values.
    """
    for tool in tools:
        schema = tool["inputSchema"]
        for argument in [*schema["properties"], "unknown"]:
            others = [one for one in schema.get("required", ()) if one != argument]
            rest = "".join(f',"{one}":{json.dumps(_ordinary(one))}' for one in others).encode()
            for kind, make in KINDS.items():
                arguments = partial(_arguments, argument, make, size, rest)
                yield HostileCall(tool["name"], argument, kind, arguments)


def _arguments(argument: str, make: Callable[[int], bytes], size: int, rest: bytes) -> bytes:
    return b'"' + argument.encode() + b'":' + make(size) + rest


def _ordinary(argument: str) -> Any:
    return [{"content": "a"}] if argument == "todos" else "x"


LARGEST_FILE = 16 << 20
"""Bytes of the largest file that is read; edited files have at most half of it."""


def _contents(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and content of files of this size. Most have a single `b`, at their end."""
    units = {"one_line": b"a", "empty_lines": b"\n", "two_ends": b"\r\n", "short_lines": b"ab\n"}
    units |= {"latin": b"\xe9", "returns": b"\r", "ends": b"a\r\n"}
    for name, unit in units.items():
        yield name, unit * ((size - 1) // len(unit)) + b"b"
    for name, wide in (("wide", "😀"), ("wider", "ł")):
        yield name, b"a" * (size - 5) + wide.encode() + b"b"
    yield "wide_ends", b"a\r\n" * ((size - 5) // 3) + "😀b".encode()
    yield "wide_mark", codecs.BOM_UTF8 + b"a" * (size - 8) + "😀b".encode()
    yield "two_bytes", codecs.BOM_UTF16_LE + b"a\0" * (size // 2 - 2) + b"b\0"
    yield "binary", random.Random(1).randbytes(size)


def hostile_files(
    root: Path, files: int = 20_000, largest: int = LARGEST_FILE, kinds: Sequence[str] = ()
) -> list[str]:
    """Write files that are costly to read, and return the paths of the large ones.

    Args:
        root: Directory for the files.
        files: Number of additional small files.
        largest: Bytes of the large files; edited files have half of it.
        kinds: Kinds of large files; all kinds if empty.
    """
    contents: list[str] = []
    for prefix, size in (("", largest), ("editable_", largest // 2)):
        for name, data in _contents(size):
            if not kinds or name in kinds:
                (root / f"{prefix}{name}").write_bytes(data)
                contents.append(f"{prefix}{name}")
    with (root / "sparse").open("wb") as file:
        file.truncate(2 << 30)
    (root / ".gitignore").write_text("*.o\n" * 50_000)
    many = root / "many"
    many.mkdir()
    for number in range(files):
        (many / f"{'n' * 100}{number}").write_bytes(b"x")
    return [os.fspath(root / name) for name in (*contents, "sparse")]


def calls_on_files(paths: Sequence[str], root: str) -> Iterator[HostileCall]:
    """Yield calls that work on the files of `hostile_files`."""

    def call(tool: str, what: str, **arguments: Any) -> HostileCall:
        text = json.dumps(arguments)[1:-1].encode()
        reads = arguments["path"] if tool == "edit_file" else ""
        return HostileCall(tool, "path", what, lambda: text, reads)

    for path in paths:
        name = os.path.basename(path)
        yield call("read_file", name, path=path)
        yield call("read_file", f"{name}, far down", path=path, offset=1_000_000, limit=10**9)
        edits = {"old_string": "a", "new_string": "b"}
        yield call("edit_file", name, path=path, **edits)
        yield call("edit_file", f"{name}, all of it", path=path, replace_all=True, **edits)
        ends = {"old_string": "\n", "new_string": "\n\n", "replace_all": True}
        yield call("edit_file", f"{name}, its line ends", path=path, **ends)
        one = {"old_string": "b", "new_string": "c"}
        yield call("edit_file", f"{name}, its end", path=path, **one)
        yield call(
            "edit_file", f"{name}, its end, widened", path=path, **(one | {"new_string": "😀"})
        )
    yield call("ls", "many files", path=f"{root}/many")
    yield call("glob", "all files", pattern="**/*", path=root)
    yield call("glob", "stars", pattern="n*" * 300, path=root)
    yield call("glob", "ignored files", pattern="*", path=root, skip_ignored=True)
    for pattern in ("a", "x", ".*", "(a*)*b", "a{1,900}", r"\w+\s*\w+$"):
        for mode in ("files", "content", "count"):
            yield call("grep", f"{pattern}, {mode}", pattern=pattern, path=root, output_mode=mode)
