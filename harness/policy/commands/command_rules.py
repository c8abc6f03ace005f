"""Patterns of command lines: words, each a glob, that a simple command begins with.

Allowing is exact: the line has no doubt, the program is the one named, and no word that the rule
leaves open makes it run another one, as far as `program_table` knows. Denying and asking err on the
other side; see `suspects`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from ..errors import PolicyError
from ..patterns import name_pattern
from .command_lines import Argv
from .command_wrappers import known_program, last_name
from .possible_commands import PossibleCommands
from .programs import is_assignment

__all__ = ["CommandPattern"]

_OPERATORS = re.compile(r"[;&|<>$`()\n]")
_GLOB = re.compile(r"[*?\[\\]")
_READ_AGAIN = re.compile(r"[$`\\\[]")
_PLAIN = re.compile(r"[\w./:@%+=,-]*")


class CommandPattern:
    """Words that a simple command begins with, each of them a glob.

    Args:
        text: Such as `git status` or `npm run *`.
        allows: Whether the rule allows.

    Raises:
        PolicyError: The text is no simple command, or would allow a program to run any other.
    """

    def __init__(self, text: str, *, allows: bool) -> None:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise PolicyError(f"command {text!r}: {error}") from error
        if not words or not words[0] or _OPERATORS.search(text):
            raise PolicyError(
                f"command {text!r} must be the beginning of one simple command, such as "
                "'git status', without ; & | < > $ ` or parentheses"
            )
        if allows and not _names_what_runs(words):
            raise PolicyError(
                f"command {text!r} would allow everything, because {words[0]} runs other programs; "
                f"name one, such as '{text} NAME'"
            )
        self._words = words
        self._exact = [name_pattern(word) for word in words]
        self._loose = [name_pattern(word.lower()) for word in words]
        self._globs = frozenset(at for at, word in enumerate(words) if _GLOB.search(word))
        self._plain = None if self._globs else tuple(words)
        self._literal = None if 0 in self._globs else words[0]

    def allows(self, argv: Argv) -> bool:
        """Whether a command of a line without doubt is this one, and cannot be more."""
        count = len(self._exact)
        if self._plain is not None:
            if argv[:count] != self._plain:
                return False
        elif not self._fits(argv, count):
            return False
        words = [word for word in argv if word is not None]
        if len(words) < len(argv):
            return False
        inner = list(_programs(words[:count]))
        programs = [one for at in inner if (one := known_program(words[at]))]
        if any(one.appends for one in programs) and any(one.takes_more() for one in programs):
            return False
        return not any(self._does_more(words, at) for at in inner)

    def _fits(self, argv: Argv, count: int) -> bool:
        return len(argv) >= count and all(
            word is not None and pattern.match(word)
            for pattern, word in zip(self._exact, argv[:count], strict=True)
        )

    def _does_more(self, words: Sequence[str], at: int) -> bool:
        """Whether words that the rule does not fix make a program run others."""
        program = known_program(words[at])
        if program is None:
            return False
        rest = range(at + 1, len(words))
        free = {here for here in rest if here >= len(self._words) or here in self._globs}
        if program.runs:  # the rule names what it runs; a glob could still be an option
            return (
                at in self._globs
                or any(words[here].startswith("-") for here in free & self._globs)
                or (program.joins and not all(_PLAIN.fullmatch(words[here]) for here in free))
            )
        fixed = [words[here] for here in rest if here not in free]
        if program.language:
            if any(word == "-" or not word.startswith("-") for word in fixed):
                return False  # what follows is for the script
            if program.reads_code(words[at + 1 :]):
                return True
        if any(program.has_option(words[here]) for here in free):
            return True
        if program.may_evaluate(words[at + 1 :]):
            return any(_READ_AGAIN.search(words[here]) for here in free)
        if program.assigns and any(is_assignment(words[here]) for here in free):
            return True
        if any(at + 1 + end in free for end in program.phrase_ends(words[at + 1 :])):
            return True
        script = next((here for here in rest if not words[here].startswith("-")), None)
        return script in free and not program.tolerates(words[script])

    def may_be(self, suspects: PossibleCommands) -> bool:
        """Whether the command may be among those, as far as can be seen."""
        if self._literal is not None and not suspects.unknown:
            literal = self._literal.lower()
            if literal not in suspects.programs:
                return False
        return any(self._found(argv, anywhere) for argv, anywhere in suspects.commands)

    def _found(self, argv: Argv, anywhere: bool) -> bool:
        for at, program in enumerate(argv if anywhere else argv[:1]):
            if program is None:
                return True
            lower = program.lower()
            if self._loose[0].match(lower) or self._loose[0].match(last_name(lower)):
                return self._goes_on(argv[at + 1 :])  # what follows later begins here too
        return False

    def _goes_on(self, rest: Argv) -> bool:
        wanted = 1
        for word in rest:
            if wanted == len(self._loose):
                break
            if word is None or self._loose[wanted].match(word.lower()):
                wanted += 1
        return wanted == len(self._loose)


def _names_what_runs(words: Sequence[str]) -> bool:
    """Whether the beginning of a command says which program runs in the end."""
    at = 0
    while True:
        program = known_program(words[at])
        if program is None:
            return True
        rest = words[at + 1 :]
        if program.runs:
            following = program.operand(rest, program.operands)
        else:
            ends = list(program.phrase_ends(rest))
            if not ends:
                return True
            inner = program.operand(rest[ends[0] + 1 :], 0)
            following = None if inner is None else ends[0] + 1 + inner
        if following is None or _GLOB.search(rest[following]):
            return False
        at += 1 + following


def _programs(words: Sequence[str]) -> Iterator[int]:
    """Yield where programs may stand in the beginning of a command."""
    yield 0
    program = known_program(words[0])
    if program is not None and (program.runs or any(True for _ in program.phrase_ends(words[1:]))):
        yield from range(1, len(words))
