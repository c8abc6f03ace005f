"""Programs that run others: looks up which words of a command are commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..._internal.records import record

__all__ = ["Program", "code_in", "is_assignment"]

_SAYS = ("--version", "-V", "--help", "-h")
_SET = re.compile(r"[A-Za-z_][\w.-]*[+:?!]*=")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|[\d#?@*!$-])")


_CODE = re.compile(r"`|\$[(\[{]")
_ESCAPED = re.compile(r"\\(?:[xuU]([0-9A-Fa-f]{1,8})|([0-7]{1,4}))")


def code_in(word: str) -> str:
    r"""Return a word as a shell reads it once more if that may run something, or nothing.

    `a[$(rm)]` is code, `a[$x]` is not; `\x24` stands for `$`, as for `printf` and in `$'…'`.
    """
    text = _ESCAPED.sub(_unescaped, word)
    return text if _CODE.search(_VARIABLE.sub("", text)) else ""


def _unescaped(escaped: re.Match[str]) -> str:
    number = int(escaped[1], 16) if escaped[1] else int(escaped[2], 8)
    return chr(number) if 0x20 <= number < 0x7F else " "


def is_assignment(word: str) -> bool:
    """Whether a word is `NAME=VALUE`."""
    return _SET.match(word) is not None


@record
class Program:
    """How a program runs others, or writes what a later one runs.

    Attributes:
        runs: It runs what one of its words names: `sudo rm`, `xargs rm`, `sh -c 'rm x'`.
        takes: For one that runs: options that take the next word, which names no program then.
        operands: For one that runs: how many words precede the program, as in `timeout 5 rm`.
        appends: It gives that program words that are not in the line.
        joins: It makes its words one line that a shell reads again.
        shell: It reads commands, also through a pipe.
        language: Its words may be code in which other programs are named.
        options: Options with which it runs others, or writes, by their beginning.
        phrases: Words in order with which it runs what follows: `git bisect run`.
        assigns: Arguments `NAME=VALUE` change what it runs.
        evaluates: Words, by their beginning, with which the shell reads the others once more, as
            arithmetic or as a variable with an index, and so runs `$(rm)` in them; `""` for always.
        unseen: Options with which it runs what no word names.
        script: What its first operand must be like to be harmless; None where it is no code.
    """

    runs: bool = False
    takes: Sequence[str] = ()
    operands: int = 0
    appends: bool = False
    joins: bool = False
    shell: bool = False
    language: bool = False
    options: Sequence[str] = ()
    phrases: Sequence[tuple[str, ...]] = ()
    assigns: bool = False
    evaluates: Sequence[str] = ()
    unseen: Sequence[str] = ()
    script: re.Pattern[str] | None = None

    def may_evaluate(self, words: Sequence[str | None]) -> bool:
        """Whether the shell may read these arguments once more; None is one that may be any."""
        return _any_begins(words, self.evaluates)

    def has_unseen(self, words: Sequence[str | None]) -> bool:
        """Whether it may run what no word names; None is a word that may be any."""
        return _any_begins(words, self.unseen)

    def has_option(self, word: str) -> bool:
        """Whether a word may be one of the options: glued, shortened, among others, or `!`."""
        options = self.options
        if not options or word[:1] not in ("-", "+", "!"):
            return False
        if word[0] == "!" or word.startswith(tuple(options)):
            return True
        if word.startswith("--"):
            name = word.partition("=")[0]
            return len(name) > 2 and any(one.startswith(name) for one in options)
        letters = {one[1] for one in options if len(one) == 2 and one[0] == word[0]}
        return not letters.isdisjoint(word[1:])

    def takes_more(self) -> bool:
        """Whether some words would make it run others, though it does not run what it is given."""
        ways = (self.options, self.phrases, self.assigns, self.language)
        return not self.runs and any(ways)

    def reads_code(self, words: Sequence[str]) -> bool:
        """Whether a language with these arguments takes its code from its input."""
        if not self.language or any(word in _SAYS for word in words):
            return False
        return all(word.startswith("-") for word in words)

    def tolerates(self, operand: str) -> bool:
        """Whether its first operand is harmless."""
        return self.script is None or self.script.fullmatch(operand) is not None

    def operand(self, words: Sequence[str], skipped: int) -> int | None:
        """Return where the program stands that it is given, after so many operands of its own."""
        at = 0
        while at < len(words):
            word = words[at]
            if word in self.takes:
                at += 1
            elif not word.startswith("-") and not is_assignment(word):
                if not skipped:
                    return at
                skipped -= 1
            at += 1
        return None

    def phrase_ends(self, words: Sequence[str]) -> Iterator[int]:
        """Yield where phrases end; options, and words after them, may come between."""
        for phrase in self.phrases:
            places = [-1]
            for part in phrase:
                places = [
                    here
                    for place in places
                    for here in _following(words, place + 1)
                    if words[here].lower() == part
                ]
            yield from places


def _any_begins(words: Sequence[str | None], beginnings: Sequence[str]) -> bool:
    """Whether a word begins so, or may."""
    if not beginnings:
        return False
    return any(word is None or word.startswith(tuple(beginnings)) for word in words)


def _following(words: Sequence[str], start: int) -> Iterator[int]:
    """Yield where the next word that is no option may be."""
    for here in range(start, len(words)):
        yield here
        after_option = here > start and words[here - 1].startswith("-")
        if not words[here].startswith("-") and not after_option:
            return
