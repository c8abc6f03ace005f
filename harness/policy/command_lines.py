"""Command lines: the commands that a shell line would run, as far as its text shows.

`parse_line` splits a line into its simple commands. Anything that could make a shell run something
other than exactly these commands (substitutions, redirections into files, assignments, globs,
compound commands …) is a *doubt*: no rule allows a line with a doubt. Words are read the way POSIX
shells read them. `shlex` is not enough, because it does not keep what was quoted, and differs from
shells in line ends and continued lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias, cast

from pydantic import JsonValue

from .._internal.records import record
from .programs import code_in

__all__ = ["Argv", "Line", "line_of", "parse_line"]

Argv: TypeAlias = tuple[str | None, ...]
"""A program and its arguments; None means a word that only the shell knows."""

MAX_CHARS = 20_000

_COMMANDS = ("command", "cmd", "commands")
_BESIDE = ("args", "arguments", "argv", "env", "environment", "stdin", "input", "shell")

_UNUSUAL = re.compile(r"[^\x20-\x7e\t\n\u00a1-\uffff]|[\u2000-\u206f\u3000\u1680\ufeff\u00ad]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
_BRACKETS = re.compile(r"(\[\[?|\]\]?)(?=[\s;&|)]|$)")
_INNER = re.compile(r"\$\((?!\()|`")
_REDIRECTION = re.compile(r"<<<|<<-?|<>|<&|>>|>\||>&|<|>")
_COMPOUND = frozenset(
    {
        "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
        "in", "select", "function", "coproc", "time", "!", "{", "}", "[[", "]]",
    }
)  # fmt: skip


@record
class Line:
    """A command line.

    Attributes:
        text: The line as written.
        commands: Its simple commands, in order, without assignments and redirections.
        doubt: Why it may run something else, or empty.
        inner: Commands in its double quotes and backticks.
        held: Words that contain code as text, such as `'$(rm)'`, which runs when something
            evaluates them again.
        assigned: Assignments that contain such code, at least in part.
    """

    text: str
    commands: tuple[Argv, ...]
    doubt: str = ""
    inner: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()


@lru_cache(512)
def parse_line(text: str) -> Line:
    """Parse a line for a POSIX shell."""
    if len(text) > MAX_CHARS:
        return Line(text[:MAX_CHARS], ((None,),), f"it is longer than {MAX_CHARS} characters")
    return _Reader(text).line()


def _argv_line(argv: list[str]) -> Line:
    """Return a line for a program that is started without a shell."""
    text = " ".join(argv)
    doubt = "it holds a control character" if "\0" in text else ""
    return Line(text, (tuple(argv),) if argv else (), doubt)


class _Reader:
    """Parses one line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._commands: list[Argv] = []
        self._words: list[str | None] = []
        self._word: list[str] | None = None
        self._quoted = False
        self._known = True
        self._redirection = ""
        self._inner: list[str] = []
        self._inner_end = 0
        self._held: list[str] = []
        self._assigned: list[str] = []
        self._doubt = "it holds unusual characters" if _UNUSUAL.search(text) else ""

    def line(self) -> Line:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        self.end_command()
        return Line(
            self._text,
            tuple(self._commands),
            self._doubt,
            tuple(self._inner),
            tuple(self._held),
            tuple(self._assigned),
        )

    def _step(self, char: str) -> None:
        self._at += 1
        begins = self._word is None
        if char in _SPECIAL:
            _SPECIAL[char](self)
        elif begins and (bracket := _BRACKETS.match(self._text, self._at - 1)):
            self._doubts("it has a test")
            self._add(bracket[0])
            self._at = bracket.end()
        elif char in _EXPANDING:
            self._unknown(f"{char} may stand for other words", char)
        elif char == "~" and begins:
            self._unknown("~ stands for a directory", char)
        else:
            if char == "#" and begins:
                self._doubts("it has a comment")
            self._add(char)

    def _add(self, text: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(text)

    def _doubts(self, why: str) -> None:
        self._doubt = self._doubt or why

    def _unknown(self, why: str, text: str = "") -> None:
        self._doubts(why)
        self._known = False
        self._add(text)

    def expand(self) -> None:
        self._unknown("$ or ` stands for something else")
        begin = _INNER.match(self._text, self._at - 1)
        if begin and self._at > self._inner_end:
            partners = "case" not in self._text  # its parentheses have none
            end = _closing(self._text, begin.end()) if partners else len(self._text)
            self._inner.append(self._text[begin.end() : end])
            self._inner_end = end + 1

    def group(self) -> None:
        self._doubts("it has parentheses")
        self.end_command()

    def single(self) -> None:
        end = self._text.find("'", self._at)
        self._quoted = True
        if end < 0:
            self._doubts("a quotation does not end")
            end = len(self._text)
        self._add(self._text[self._at : end])
        self._at = end + 1

    def double(self) -> None:
        self._quoted = True
        self._add("")
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == '"':
                return
            if char in "$`":
                self.expand()
            elif char == "\\" and self._text[self._at : self._at + 1] in ("$", "`", '"', "\\"):
                self._add(self._text[self._at])
                self._at += 1
            elif char == "\\" and self._text[self._at : self._at + 1] == "\n":
                self._at += 1
            else:
                self._add(char)
        self._doubts("a quotation does not end")

    def escape(self) -> None:
        following = self._text[self._at : self._at + 1]
        self._at += 1
        if not following:
            self._doubts("it ends with a backslash")
        elif following != "\n":
            self._quoted = True
            self._add(following)

    def redirect(self) -> None:
        if self._text[max(0, self._at - 2) : self._at - 1] == "&":
            self._doubts("&> means different things to different shells")
        if self._word is not None and not self._quoted and "".join(self._word).isdigit():
            self._word = None  # the descriptor
        self.end_word()
        found = _REDIRECTION.match(self._text, self._at - 1)
        self._redirection = found[0] if found else "<"
        self._at = found.end() if found else self._at

    def end_word(self) -> None:
        if self._word is None:
            return
        word = "".join(self._word) if self._known else None
        quoted, raw = self._quoted, "".join(self._word)
        self._word, self._known, self._quoted = None, True, False
        code = code_in(raw)
        self._held += [code] if code else []
        if self._redirection:
            self._end_redirection(None if quoted else word)
        elif not self._words and _ASSIGNMENT.match(raw):
            self._doubts("it sets a variable")
            if code or raw.endswith("$"):  # another variable may have the rest
                self._assigned.append(code or raw)
        else:
            if not self._words and not quoted and raw in _COMPOUND:
                self._doubts(f"{raw} begins a compound command")
            self._words.append(word)

    def _end_redirection(self, target: str | None) -> None:
        kind, self._redirection = self._redirection, ""
        duplicate = kind in (">&", "<&") and target is not None
        if duplicate and (target == "-" or (target or "").isdigit()):
            return
        if kind in ("<", ">", ">>") and target == "/dev/null":
            return
        self._doubts(f"{kind} leads to or from a file")

    def end_command(self) -> None:
        self.end_word()
        if self._redirection:
            self._doubts("a redirection leads nowhere")
            self._redirection = ""
        if self._words:
            self._commands.append(tuple(self._words))
            self._words = []


def _closing(text: str, at: int) -> int:
    """Return the end of a substitution whose content begins there, or the end of the text."""
    if text[at - 1] == "`":
        end = re.compile(r"(?:[^`\\]|\\.)*", re.DOTALL).match(text, at)
        return end.end() if end else len(text)
    ends = [")"]
    while at < len(text):
        char, within = text[at], ends[-1]
        if char == "\\" and within != "'":
            at += 1
        elif char == within:
            ends.pop()
            if not ends:
                return at
        elif within != "'" and (char == '"' or (char == "'" and within == ")")):
            ends.append(char)
        elif char == "(" and (within == ")" or (within == '"' and text[at - 1] == "$")):
            ends.append(")")
        at += 1
    return len(text)


_EXPANDING = frozenset("*?[]{}")
_SPECIAL: Mapping[str, Callable[[_Reader], None]] = {
    **dict.fromkeys(" \t", _Reader.end_word),
    **dict.fromkeys("\n;&|", _Reader.end_command),
    **dict.fromkeys("()", _Reader.group),
    **dict.fromkeys("<>", _Reader.redirect),
    **dict.fromkeys("$`", _Reader.expand),
    "'": _Reader.single,
    '"': _Reader.double,
    "\\": _Reader.escape,
}


def line_of(args: Mapping[str, JsonValue]) -> Line | None:
    """Return the command line among the arguments of a call, or None."""
    given = [args[name] for name in _COMMANDS if args.get(name)]
    if not given:
        return None
    doubt = "" if len(given) == 1 else "there is more than one command argument"
    for name in _BESIDE:
        if args.get(name):
            doubt = f"the argument {name} changes what it runs"
    lines = [_one_line(value) for value in given]
    extra = args.get("args") or args.get("arguments")
    if isinstance(extra, list):
        words = tuple(one if isinstance(one, str) else None for one in extra)
        lines += [Line("", ((*argv, *words),)) for line in lines for argv in line.commands]
    if len(lines) == 1 and not doubt:
        return lines[0]
    return Line(
        "\n".join(line.text for line in lines),
        tuple(argv for line in lines for argv in line.commands),
        doubt or next((line.doubt for line in lines if line.doubt), ""),
        tuple(one for line in lines for one in line.inner),
        tuple(one for line in lines for one in line.held),
        tuple(one for line in lines for one in line.assigned),
    )


def _one_line(value: JsonValue) -> Line:
    if isinstance(value, str):
        return parse_line(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        words = cast(list[str], value)
        if any(" " in one for one in words[:1]):
            return Line("\n".join(words), parse_line("\n".join(words)).commands, "it is a list")
        return _argv_line(words)
    return Line(json.dumps(value), ((None,),), "it is not a text")
