"""Possible commands: everything a command line may run, for rules that deny or ask.

They err on the safe side: they look through `sudo`, `xargs`, `sh -c`, options and code in the line,
and a program that only the shell knows may be any. That is a guard rail: what a line does not name
is not seen, so what must not run is better left out of what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..._internal.records import record
from .command_lines import Argv, Line, parse_line
from .command_wrappers import known_program, last_name
from .programs import Program, code_in, is_assignment

__all__ = ["PossibleCommands", "possible_commands_of"]

_LOOSE = re.compile(r"[\s;&|<>()$`{}=!,]+")
_NO_NAME = re.compile(r"[^\w./+@%:-]+")
_LINE = re.compile(r"[\s;&|<>$`'\"\\]")
_ARITHMETIC = re.compile(r"\(\(|\[\[|\$[\[{]")
_RUNS_TEXT = re.compile(
    r"\b(?:BASH_(?:ENV|CMDS|ALIASES|FUNC_\w+)|PROMPT_COMMAND|PS[0124])\b|@P\}|\$\{\(|\bENV=\S*/"
)
"""Variables whose value the shell runs or takes programs from, and expansions that run a value."""
_QUOTES = str.maketrans("", "", "'\"\\")
_INPUTS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_MAX_WORDS = 2_000
_MAX_DEPTH = 4
_MAX_GLUED = 256


@record
class PossibleCommands:
    """What a command line may run.

    Attributes:
        commands: Programs with arguments; with True, the program may be any of the words.
        programs: Names of the programs, in lower case, with and without their directory.
        unknown: Whether there is a program that only the shell knows.
    """

    commands: Sequence[tuple[Argv, bool]]
    programs: frozenset[str]
    unknown: bool


def possible_commands_of(line: Line | None) -> PossibleCommands:
    """Return what a line may run."""
    commands = _suspects(line) if line is not None else ()
    words = {word for argv, anywhere in commands for word in (argv if anywhere else argv[:1])}
    names = {word.lower() for word in words if word is not None}
    return PossibleCommands(commands, frozenset({*names, *map(last_name, names)}), None in words)


def _suspects(line: Line, depth: int = 0, *, held: bool = False) -> Sequence[tuple[Argv, bool]]:
    """Return what a line may run; `held` says whether there is code around it, as text."""
    if depth > _MAX_DEPTH or _RUNS_TEXT.search(line.text):
        return [((None,), False)]
    held = held or bool(line.held or line.assigned)
    found: list[tuple[Argv, bool]] = []
    for argv in line.commands:
        found += _of_command(argv, depth, held=held)
    for text in line.inner:
        found += _suspects(parse_line(text), depth + 1, held=held)
    for text in line.held if _ARITHMETIC.search(line.text) else line.assigned:
        found += _read_again(text, depth)
    if line.doubt:
        for text in (line.text.translate(_QUOTES), line.text):
            words = [word for word in _LOOSE.split(text) if word]
            found.append((tuple(words[:_MAX_WORDS]), True))
    return found


def _of_command(argv: Argv, depth: int, *, held: bool) -> Iterator[tuple[Argv, bool]]:
    program = known_program(argv[0]) if argv[0] is not None else None
    yield from _evaluated(argv, program, depth, held=held)
    if program is None or not _may_run(argv, program):
        yield argv[:_MAX_WORDS], False
        if program is not None and program.language and set(argv[1:]) <= {"-"}:
            yield (None,), False  # its code comes through a pipe
        return
    words = [part for word in argv[1:] for part in _parts(word, program)]
    yield (argv[0], *words[:_MAX_WORDS]), True
    if program.has_unseen(argv[1:]) or any(_reads_script(argv, at) for at in range(len(argv))):
        yield (None,), False
    for word in words:
        if word is not None and _LINE.search(word):
            yield from _suspects(parse_line(word), depth + 1, held=held)
        if word is not None and (program.language or program.script):
            names = [name for name in _NO_NAME.split(word) if name]
            yield tuple(names[:_MAX_WORDS]), True
    if last_name(argv[0] or "") == "eval":
        line = " ".join(one or "$" for one in argv[1:])
        yield from _suspects(parse_line(line), depth + 1, held=held)


def _evaluated(
    argv: Argv, program: Program | None, depth: int, *, held: bool
) -> Iterator[tuple[Argv, bool]]:
    """Yield what a command runs because the shell reads its words once more."""
    yield from _read_again(argv[0] or "", depth)
    if program is None or not program.may_evaluate(argv[1:]):
        return
    for word in argv[1:]:
        yield from _read_again(word or "", depth)
    if held and None in argv and program.may_evaluate([one or "" for one in argv[1:]]):
        yield (None,), False  # what the shell puts there may be the code around it


def _read_again(text: str, depth: int) -> Sequence[tuple[Argv, bool]]:
    """Return what a text runs when the shell reads it once more, in an index or as arithmetic."""
    code = code_in(text)
    return _suspects(parse_line(code), depth + 1) if code else ()


def _may_run(argv: Argv, program: Program) -> bool:
    """Whether a program may run others, given its arguments."""
    words = ["$" if word is None else word for word in argv[1:]]
    operand = next((word for word in words if not word.startswith("-")), None)
    return (
        program.runs
        or any(program.has_option(word) for word in words)
        or (program.assigns and any(map(is_assignment, words)))
        or any(True for _ in program.phrase_ends(words))
        or (operand is not None and not program.tolerates(operand))
    )


def _parts(word: str | None, program: Program) -> Sequence[str | None]:
    """Return a word, and what in it may be a command: after `=` or `:`, a glued option, or `!`."""
    if word is None:
        return (None,)
    found = [word]
    if "=" in word:
        found += [word.partition("=")[2], word.rpartition("=")[2]]
    if ":" in word:
        found.append(word.partition(":")[2])
    if word[:1] == "-" and len(word) <= _MAX_GLUED:
        letters = {one[1] for one in program.options if len(one) == 2}
        found += [word[at + 1 :] for at, char in enumerate(word) if at and char in letters]
    found += [one.lstrip("+:!") for one in found]
    return list(dict.fromkeys(one for one in found if one))


def _reads_script(argv: Argv, at: int) -> bool:
    """Whether a shell at this place gets its commands through a pipe."""
    word = argv[at]
    program = None if word is None else known_program(word)
    if program is None or not program.shell:
        return False
    return all((one or "").startswith(("-", *_INPUTS)) for one in argv[at + 1 :])
