"""Patterns of command lines: words, each a glob, that a simple command begins with.

Allowing is exact: the line has no doubt, and the program is the one named. Denying and asking err
on the other side: they look through `sudo`, `xargs`, `sh -c` and the like, at programs by their
last name in any case, and match a program that only the shell knows. That is a guard rail: a
program that was renamed gets past it, so what must not run is better left out of what is allowed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.policy.command_lines import Argv, Line, parse_line
from harness.policy.errors import PolicyError
from harness.policy.patterns import name_pattern

__all__ = ["CommandPattern", "Suspects", "suspects_of"]

_SHELLS = frozenset(
    {"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rbash"}
)
_RUNNERS = _SHELLS | {
    "busybox", "toybox", "cmd", "powershell", "pwsh", "env", "sudo", "doas", "su", "runuser",
    "pkexec", "nice", "ionice", "nohup", "setsid", "timeout", "time", "stdbuf", "unbuffer",
    "watch", "xargs", "parallel", "exec", "eval", "command", "builtin", "source", ".", "trap",
    "alias", "enable", "hash", "function", "coproc", "ssh", "chroot", "unshare", "nsenter",
    "setpriv", "capsh", "bwrap", "firejail", "flock", "taskset", "chrt", "numactl", "script",
    "expect", "strace", "ltrace", "gdb", "valgrind", "start-stop-daemon", "systemd-run", "at",
    "batch", "crontab", "if", "then", "else", "elif", "while", "until", "do", "for", "case",
    "select", "!", "{", "in",
}  # fmt: skip
"""Programs and words that run the program named after them."""

_RUN_OPTIONS = {
    "find": ("-exec", "-ok", "-delete", "-fprint", "-fls"),
    "fd": ("-x", "-X", "--exec"),
    "fdfind": ("-x", "-X", "--exec"),
    "git": (
        "-c", "-O", "-o", "--config-env", "--exec", "--ext-diff", "--output", "--open-files",
        "--upload-pack", "--receive-pack", "--textconv", "--git-dir", "--work-tree", "-C", "-x",
        "--extcmd",
    ),
    "tar": ("--to-command", "--checkpoint-action", "-I", "--use-compress", "--rsh", "-F"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("-o", "--output", "--compress-program"),
    "sed": ("-i", "--in-place", "--expression", "-e", "-f", "--file"),
}  # fmt: skip
"""Options that make a program run others, or write, by their beginning."""

_OPERATORS = re.compile(r"[;&|<>$`()\n]")
_LOOSE = re.compile(r"[\s;&|<>()$`{}=!,]+")
_GLOB = re.compile(r"[*?\[\\]")
_QUOTES = str.maketrans("", "", "'\"\\")
_MAX_WORDS = 2_000
_MAX_DEPTH = 4


def _may_be(word: str, options: Sequence[str]) -> bool:
    """Whether a word may be one of the options: glued, abbreviated, or among other letters."""
    if not options or not word.startswith("-"):
        return False
    if word.startswith(tuple(options)):
        return True
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(one.startswith(name) for one in options)
    letters = {one[1] for one in options if len(one) == 2 and one[0] == "-"}
    return not letters.isdisjoint(word[1:])


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
        if allows and len(words) == 1 and _program(words[0]) in _RUNNERS:
            raise PolicyError(
                f"command {text!r} would allow everything, because {words[0]} runs other programs; "
                f"name one, such as '{words[0]} NAME'"
            )
        self._words = words
        self._exact = [name_pattern(word) for word in words]
        self._loose = [name_pattern(word.lower()) for word in words]
        self._plain = None if _GLOB.search("".join(words)) else tuple(words)
        self._literal = None if _GLOB.search(words[0]) else words[0]

    def allows(self, argv: Argv) -> bool:
        """Whether a command of a line without doubt is this one, and cannot be more."""
        count = len(self._exact)
        if self._plain is not None:
            if argv[:count] != self._plain:
                return False
        elif not self._fits(argv, count):
            return False
        program = _program(argv[0] or "")
        if program in _RUNNERS and self._words[0] != argv[0]:
            return False  # a glob does not name it
        options = _RUN_OPTIONS.get(program, ())
        return not any(word is None or _may_be(word, options) for word in argv[count:])

    def _fits(self, argv: Argv, count: int) -> bool:
        return len(argv) >= count and all(
            word is not None and pattern.match(word)
            for pattern, word in zip(self._exact, argv[:count], strict=True)
        )

    def may_be(self, suspects: Suspects) -> bool:
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
            if self._loose[0].match(lower) or self._loose[0].match(_program(lower)):
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


def _reads_script(argv: Argv, at: int) -> bool:
    """Whether a shell at this place gets its commands through a pipe."""
    word = argv[at]
    if word is None or _program(word) not in _SHELLS:
        return False
    return all((one or "").startswith("-") for one in argv[at + 1 :])


def _program(word: str) -> str:
    """Return the last name of a program's path."""
    return re.split(r"[/\\]", word.lower())[-1].removesuffix(".exe")


@dataclass(frozen=True, slots=True)
class Suspects:
    """What a command line may run.

    Attributes:
        commands: Programs with arguments; with True, the program may be any of the words.
        programs: Names of the programs, in lower case, with and without their directory.
        unknown: Whether there is a program that only the shell knows.
    """

    commands: Sequence[tuple[Argv, bool]]
    programs: frozenset[str]
    unknown: bool


def suspects_of(line: Line | None) -> Suspects:
    """Return what a line may run."""
    commands = _suspects(line, 0) if line is not None else ()
    words = {word for argv, anywhere in commands for word in (argv if anywhere else argv[:1])}
    names = {word.lower() for word in words if word is not None}
    return Suspects(commands, frozenset({*names, *map(_program, names)}), None in words)


def _suspects(line: Line, depth: int) -> Sequence[tuple[Argv, bool]]:
    found: list[tuple[Argv, bool]] = []
    for argv in line.commands:
        found += _of_command(argv, depth)
    if line.doubt:
        for text in (line.text.translate(_QUOTES), line.text):
            words = [word for word in _LOOSE.split(text) if word]
            found.append((tuple(words[:_MAX_WORDS]), True))
    return found


def _of_command(argv: Argv, depth: int) -> Iterator[tuple[Argv, bool]]:
    program = None if argv[0] is None else _program(argv[0])
    options = _RUN_OPTIONS.get(program or "", ())
    runs = program in _RUNNERS or any(
        word is not None and word.startswith(options) for word in argv[1:]
    )
    yield argv[:_MAX_WORDS], runs
    if not runs:
        return
    if any(_reads_script(argv, at) for at in range(len(argv))):
        yield (None,), False
    for word in argv[1:]:
        if word is None or not re.search(r"[\s;&|<>$`'\"\\]", word):
            continue
        if depth >= _MAX_DEPTH:
            yield (None,), False
        else:
            yield from _suspects(parse_line(word), depth + 1)
    if program == "eval":
        if depth >= _MAX_DEPTH:
            yield (None,), False
        else:
            line = " ".join(one or "$" for one in argv[1:])
            yield from _suspects(parse_line(line), depth + 1)
