"""Command rules: patterns that are compared with everything a command line may run.

A pattern is the first words of a simple command, each a glob.

Rules that deny or ask apply to all commands that a line may run. They look inside `sudo`, `xargs`,
`sh -c`, options and code in the line, and treat a program that only the shell knows as any program.
This is only a guard rail, because programs that the line does not name stay unseen. So do not
rely on it: allow only what may run.

Rules that allow are exact: the line has no doubt, the program is the one named in the rule, and no
word that the rule leaves open makes it run another program, as far as `programs` knows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache

from .._internal.records import record
from .command_lines import Argv, Line, parse_line
from .patterns import PolicyError, name_pattern
from .programs import Program, code_in, is_assignment, known_program, last_name

__all__ = ["CommandPattern", "PossibleCommands", "possible_commands_of"]


_LOOSE = re.compile(r"[\s;&|<>()$`{}=!,]+")
_NO_NAME = re.compile(r"[^\w./+@%:-]+")
_LINE = re.compile(r"[\s;&|<>$`'\"\\]")
_ARITHMETIC = re.compile(r"\(\(|\[\[|\$[\[{]")
_RUNS_TEXT = re.compile(
    r"\b(?:BASH_(?:ENV|CMDS|ALIASES|FUNC_\w+)|PROMPT_COMMAND|PS[0124])\b|@P\}|\$\{\(|\bENV=\S*/"
)
"""Variables whose values a shell runs or uses to find programs; expansions that run values."""
_QUOTES = str.maketrans("", "", "'\"\\")
_INPUTS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_MAX_WORDS = 10_000
"""Of one command. A line of the most characters has no more, but their parts may be more."""

_MAX_DEPTH = 4
_MAX_GLUED = 256


@record
class PossibleCommands:
    """Commands that a command line may run.

    Attributes:
        commands: Programs with arguments; with True, the program may be any of the words.
        programs: Names of the programs, in lower case, with and without their directories.
        unknown: Whether it contains a program that only the shell knows.
    """

    commands: Sequence[tuple[Argv, bool]]
    programs: frozenset[str]
    unknown: bool


def possible_commands_of(line: Line | None) -> PossibleCommands:
    """Return the commands that a line may run."""
    commands = _possible_commands(line) if line is not None else ()
    words = {word for argv, anywhere in commands for word in (argv if anywhere else argv[:1])}
    names = {word.lower() for word in words if word is not None}
    return PossibleCommands(commands, frozenset({*names, *map(last_name, names)}), None in words)


def _possible_commands(
    line: Line, depth: int = 0, *, held: bool = False
) -> Sequence[tuple[Argv, bool]]:
    """Return the commands that a line may run; `held` tells whether it is inside code as text."""
    if depth > _MAX_DEPTH or _runs_text(line.text):
        return [((None,), False)]
    held = held or bool(line.held or line.assigned)
    found: list[tuple[Argv, bool]] = []
    for argv in line.commands:
        found += _of_command(argv, depth, held=held)
    for text in line.inner:
        found += _possible_commands(parse_line(text), depth + 1, held=held)
    is_read_again = bool(line.held) and _ARITHMETIC.search(line.text) is not None
    for text in line.held if is_read_again else line.assigned:
        found += _read_again(text, depth)
    if line.doubt:
        for text in (line.text.translate(_QUOTES), line.text):
            found += _anywhere([word for word in _LOOSE.split(text) if word])
    return found


@lru_cache(64)
def _runs_text(text: str) -> bool:
    """Whether a line contains such a name; asked for each command, with the text of the line."""
    return _RUNS_TEXT.search(text) is not None


def _of_command(argv: Argv, depth: int, *, held: bool) -> Iterator[tuple[Argv, bool]]:
    program = known_program(argv[0]) if argv[0] is not None else None
    yield from _evaluated(argv, program, depth, held=held)
    if program is None or not _may_run(argv, program):
        yield argv, False
        if program is not None and program.language and set(argv[1:]) <= {"-"}:
            yield (None,), False  # its code comes through a pipe
        return
    words = [part for word in argv[1:] for part in _parts(word, program)]
    yield from _anywhere([argv[0], *words])
    if program.has_unseen(argv[1:]) or any(_reads_script(argv, at) for at in range(len(argv))):
        yield (None,), False
    for word in words:
        if word is not None and _LINE.search(word):
            yield from _possible_commands(parse_line(word), depth + 1, held=held)
        if word is not None and (program.language or program.script):
            yield from _anywhere([name for name in _NO_NAME.split(word) if name])
    if last_name(argv[0] or "") == "eval":
        line = " ".join(one or "$" for one in argv[1:])
        yield from _possible_commands(parse_line(line), depth + 1, held=held)


def _anywhere(words: Sequence[str | None]) -> Iterator[tuple[Argv, bool]]:
    """Yield words of which each may be a program; too many count as an unknown program."""
    yield tuple(words[:_MAX_WORDS]), True
    if len(words) > _MAX_WORDS:
        yield (None,), False


def _evaluated(
    argv: Argv, program: Program | None, depth: int, *, held: bool
) -> Iterator[tuple[Argv, bool]]:
    """Yield the commands that run because the shell evaluates words of a command again."""
    yield from _read_again(argv[0] or "", depth)
    if program is None or not program.may_evaluate(argv[1:]):
        return
    for word in argv[1:]:
        yield from _read_again(word or "", depth)
    if held and None in argv and program.may_evaluate([one or "" for one in argv[1:]]):
        yield (None,), False  # the shell may insert the surrounding code there


def _read_again(text: str, depth: int) -> Sequence[tuple[Argv, bool]]:
    """Return the commands in a text that the shell evaluates again, as an index or arithmetic."""
    code = code_in(text)
    return _possible_commands(parse_line(code), depth + 1) if code else ()


def _may_run(argv: Argv, program: Program) -> bool:
    """Whether a program may run others, given its arguments."""
    words = ["$" if word is None else word for word in argv[1:]]
    operand = next((word for word in words if not word.startswith("-")), None)
    return (
        program.runs
        or any(program.does_more(words, here) for here in range(len(words)))
        or (program.assigns and any(map(is_assignment, words)))
        or any(True for _ in program.phrase_ends(words))
        or (operand is not None and not program.tolerates(operand))
    )


def _parts(word: str | None, program: Program) -> Sequence[str | None]:
    """Return a word and its parts that may be commands: after `=`, `:`, an option or `!`."""
    if word is None:
        return (None,)
    found = [word]
    if "=" in word:
        found += [word.partition("=")[2], word.rpartition("=")[2]]
    if ":" in word:
        found.append(word.partition(":")[2])
    if word[:1] == "-" and len(word) <= _MAX_GLUED:
        letters = program.letters()
        found += [word[at + 1 :] for at, char in enumerate(word) if at and char in letters]
    found += [one.lstrip("+:!") for one in found]
    return list(dict.fromkeys(one for one in found if one))


def _reads_script(argv: Argv, at: int) -> bool:
    """Whether a shell here reads its commands from a pipe."""
    word = argv[at]
    program = None if word is None else known_program(word)
    if program is None or not program.shell:
        return False
    return all((one or "").startswith(("-", *_INPUTS)) for one in argv[at + 1 :])


_OPERATORS = re.compile(r"[;&|<>$`()\n]")
_GLOB = re.compile(r"[*?\[\\]")
_READ_AGAIN = re.compile(r"[$`\\\[]")
_PLAIN = re.compile(r"[\w./:@%+=,-]*")


class CommandPattern:
    """The first words of a simple command, each a glob.

    Args:
        text: The words, such as `git status` or `npm run *`.
        allows: Whether the rule allows.

    Raises:
        PolicyError: The text is not a simple command, or would allow a program to run any other.
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
        """Whether a command of a line without doubt matches, and runs nothing else."""
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
        """Whether words that the rule leaves open make a program run others."""
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
                return any(program.is_code(words[here]) for here in free)  # else for the script
            if program.reads_code(words[at + 1 :]):
                return True
        arguments = words[at + 1 :]
        if any(program.does_more(arguments, here - at - 1) for here in free):
            return True
        if program.may_evaluate(words[at + 1 :]):
            return any(_READ_AGAIN.search(words[here]) for here in free)
        if program.assigns and any(is_assignment(words[here]) for here in free):
            return True
        if any(at + 1 + end in free for end in program.phrase_ends(words[at + 1 :])):
            return True
        script = next((here for here in rest if not words[here].startswith("-")), None)
        return script in free and not program.tolerates(words[script])

    def may_be(self, possible_commands: PossibleCommands) -> bool:
        """Whether the command may be one of these, as far as can be seen."""
        if self._literal is not None and not possible_commands.unknown:
            literal = self._literal.lower()
            if literal not in possible_commands.programs:
                return False
        return any(self._found(argv, anywhere) for argv, anywhere in possible_commands.commands)

    def _found(self, argv: Argv, anywhere: bool) -> bool:
        for at, program in enumerate(argv if anywhere else argv[:1]):
            if program is None:
                return True
            lower = program.lower()
            if self._loose[0].match(lower) or self._loose[0].match(last_name(lower)):
                return self._goes_on(argv[at + 1 :])  # later programs begin here as well
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
    """Whether the beginning of a command determines which program finally runs."""
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
    """Yield the places in the beginning of a command where programs may be."""
    yield 0
    program = known_program(words[0])
    if program is not None and (program.runs or any(True for _ in program.phrase_ends(words[1:]))):
        yield from range(1, len(words))
