"""Programs: knowledge of how programs use their arguments, and which words run other programs.

Each known program that runs others (a command wrapper) is a row of a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache

from .._internal.records import record

__all__ = ["Program", "code_in", "is_assignment", "known_program", "last_name"]


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
    """Knowledge of a program that runs others, or writes what a later one runs.

    Attributes:
        runs: It runs a program named in its words: `sudo rm`, `xargs rm`, `sh -c 'rm x'`.
        takes: If it runs one: options that take the next word, which is then not a program.
        operands: If it runs one: how many words come before the program, as in `timeout 5 rm`.
        appends: It passes words to that program that are not in the line.
        joins: It joins its words into a line that a shell parses again.
        shell: It reads commands, also from a pipe.
        language: Its words can be code that names other programs.
        options: Beginnings of options with which it runs others, or writes.
        after: Such options that are others without a subcommand before: `git clone -u rm`.
        bundle: Letters that are such options in a first word without a dash, as in `tar xIf rm`.
        phrases: Word sequences after which it runs the rest: `git bisect run`.
        assigns: Arguments `NAME=VALUE` change which program it runs.
        evaluates: Words, by their beginning, with which the shell reads the others once more, as
            arithmetic or as a variable with an index, and so runs `$(rm)` in them; `""` for always.
        unseen: Options with which it runs programs that no word names.
        script: Pattern of a harmless first operand; None if the operand is not code.
        code: Pattern in words with which it runs others, or writes; None without one.
    """

    runs: bool = False
    takes: Sequence[str] = ()
    operands: int = 0
    appends: bool = False
    joins: bool = False
    shell: bool = False
    language: bool = False
    options: Sequence[str] = ()
    after: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    bundle: str = ""
    phrases: Sequence[tuple[str, ...]] = ()
    assigns: bool = False
    evaluates: Sequence[str] = ()
    unseen: Sequence[str] = ()
    script: re.Pattern[str] | None = None
    code: re.Pattern[str] | None = None

    def is_code(self, word: str) -> bool:
        """Whether it runs others, or writes, because of the contents of a word."""
        return self.code is not None and self.code.search(word) is not None

    def may_evaluate(self, words: Sequence[str | None]) -> bool:
        """Whether the shell may evaluate these arguments again; None means an unknown one."""
        return _any_begins(words, self.evaluates)

    def has_unseen(self, words: Sequence[str | None]) -> bool:
        """Whether it may run programs that no word names; None means an unknown word."""
        return _any_begins(words, self.unseen)

    def does_more(self, words: Sequence[str], here: int) -> bool:
        """Whether it may run others, or write, because of one of its arguments.

        Args:
            words: All of its arguments.
            here: The index of the argument.
        """
        word = words[here]
        if _is_option(word, self.options) or self.is_code(word):
            return True
        if word[:1] != "-":
            return here == 0 and not set(self.bundle).isdisjoint(word)
        after = [options for name, options in self.after.items() if name in words[:here]]
        return any(_is_option(word, options) for options in after)

    def letters(self) -> set[str]:
        """Return the letters of its short options."""
        every = (self.options, *self.after.values())
        return {one[1] for options in every for one in options if len(one) == 2}

    def takes_more(self) -> bool:
        """Whether some words would make it run others, although it does not run its operands."""
        ways = (self.options, self.after, self.phrases, self.assigns, self.language, self.code)
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
        """Return the index of the program it runs, after this many operands of its own."""
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
        """Yield the ends of phrases; options, and words after them, may come in between."""
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


def _is_option(word: str, options: Sequence[str]) -> bool:
    """Whether a word may be one of the options: glued, shortened, among others, or `!`."""
    if not options or word[:1] not in ("-", "+", "!"):
        return False
    if word[0] == "!" or word.startswith(tuple(options)):
        return True
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(one.startswith(name) for one in options)
    letters = {one[1] for one in options if len(one) == 2 and one[0] == word[0]}
    return not letters.isdisjoint(word[1:])


def _any_begins(words: Sequence[str | None], beginnings: Sequence[str]) -> bool:
    """Whether a word begins so, or may."""
    if not beginnings:
        return False
    return any(word is None or word.startswith(tuple(beginnings)) for word in words)


def _following(words: Sequence[str], start: int) -> Iterator[int]:
    """Yield the possible indexes of the next word that is not an option."""
    for here in range(start, len(words)):
        yield here
        after_option = here > start and words[here - 1].startswith("-")
        if not words[here].startswith("-") and not after_option:
            return


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _all(names: str, program: Program) -> dict[str, Program]:
    return dict.fromkeys(names.split(), program)


def _runner(
    takes: str = "",
    operands: int = 0,
    options: str = "",
    *,
    appends: bool = False,
    joins: bool = False,
) -> Program:
    return Program(True, _words(takes), operands, appends, joins, options=_words(options))


def _phrases(*texts: str) -> Program:
    return Program(phrases=tuple(map(_words, texts)))


_ENDS = ("/", ",", "#", "@")
_REPLACES = "|".join(rf"s{end}[^{end}\\\n]*{end}[^{end}\\\n]*{end}[gpiI\d]*" for end in _ENDS)
_ADDRESS = r"(?:\d+|\$|/[^/\\\n[]*/)"
_HARMLESS = rf"(?:{_ADDRESS}(?:,{_ADDRESS})?)?(?:[pdq=]|{_REPLACES.replace('n]', 'n[]')})"
_SED = re.compile(rf"{_REPLACES}|{_HARMLESS}(?:;{_HARMLESS})*")
"""Lines of `sed` that print, delete or replace: they can neither write nor run anything.

A separator may be inside brackets; then the line has one command, or its parts are unclear.
"""

_SQL_SHELL = re.compile(
    r"^\s*\.(?!(?:databases|dump|headers|help|indexes|mode|quit|schema|show|tables|width)\b)\s*[a-z]"
    r"|\b(?:edit|load_extension|writefile)\W*\(|^\s*(?:attach|copy|export|install|load)\b",
    re.IGNORECASE | re.MULTILINE,
)
"""Commands of the shells of SQLite and DuckDB, but for those that only show, and SQL that writes
other files or loads code."""

_TABLE: Mapping[str, Program] = {
    # shells, and words of theirs
    **_all(
        "sh bash dash ash zsh ksh mksh fish csh tcsh rbash cmd powershell pwsh source .",
        Program(runs=True, shell=True),
    ),
    **_all(
        "exec command builtin alias hash function coproc time if then "
        "else elif while until do for case select ! { in nocorrect noglob",
        _runner(),
    ),
    "enable": Program(True, unseen=("-f",)),
    # words of theirs that read some of their arguments once more
    **_all("test [ [[", Program(evaluates=_words("-v -R -t -eq -ne -lt -le -gt -ge"))),
    **_all("let unset read wait getopts", Program(evaluates=("",))),
    **_all("declare typeset local export readonly", Program(assigns=True, evaluates=("",))),
    "printf": Program(options=("-v",), evaluates=("-v",)),
    **_all("mapfile readarray", Program(options=("-C",), evaluates=("",))),
    **_all("compgen complete", Program(options=_words("-C -F -W"), evaluates=("",))),
    "bind": Program(True, language=True),
    "jobs": Program(options=("-x",)),
    # what runs the program that it is given
    **_all(
        "eval trap fc tmux screen at batch repeat entr hyperfine watchexec", _runner(joins=True)
    ),
    **_all(
        "ld.so ld-linux.so ld-linux-x86-64.so ld-linux-aarch64.so ld-linux-armhf.so "
        "ld-musl-x86_64.so ld-musl-aarch64.so",
        _runner("--library-path --preload --audit --argv0"),
    ),
    **_all("su sg script", _runner(options="-c --command", joins=True)),
    "env": _runner("-u --unset -C --chdir", options="-S --split-string"),
    "sudo": _runner("-u -g -h -p -C -r -t -T -U -D -R", options="-e -s -i --edit --shell --login"),
    "doas": _runner("-u -C", options="-s"),
    "nice": _runner("-n --adjustment"),
    "ionice": _runner("-c -n -p"),
    "xargs": _runner("-a -d -E -I -L -n -P -s", appends=True),
    "parallel": _runner("-a -j -n -N -L -S", options="-S --sshlogin", appends=True, joins=True),
    "stdbuf": _runner("-i -o -e"),
    "timeout": _runner("-s -k", operands=1),
    "flock": _runner("-w -E", operands=1, options="-c --command"),
    "taskset": _runner("-c -p", operands=1),
    "chrt": _runner("-T -P -D", operands=1),
    "chroot": _runner(operands=1),
    "ssh": _runner("-p -l -i -o -F -J -L -R -D -b -c -m -W", 1, "-o -F -J -L -R -D", joins=True),
    "watch": _runner("-n", joins=True),
    "unbuffer": _runner(),
    "nohup": _runner(),
    "setsid": _runner(),
    "busybox": _runner(),
    "toybox": _runner(),
    "npx": _runner("-p --package -c --call", options="-c --call"),
    **_all(
        "pnpx bunx uvx pipx prlimit setarch linux32 linux64 i386 x86_64 uname26 fakeroot faketime "
        "proot catchsegv dbus-run-session xvfb-run sem torsocks tsocks proxychains "
        "proxychains4 cpulimit cgexec choom runcon newgrp su-exec gosu runuser pkexec "
        "run-parts tini dumb-init daemonize chpst envdir setuidgid sshpass rlwrap caffeinate wsl "
        "start ifne chronic unshare nsenter setpriv capsh bwrap firejail numactl "
        "strace ltrace valgrind perf start-stop-daemon systemd-run crontab "
        "winpty mosh dtach abduco reptyr lxc-execute lxc-attach",
        _runner(),
    ),
    # what runs others by an option, or by some of its words
    "find": Program(options=_words("-exec -ok -delete -fprint -fls")),
    **_all("fd fdfind", Program(options=_words("-x -X --exec"))),
    "git": Program(
        options=_words(
            "-c -O -o --config-env --exec --ext-diff --output --open-files --upload-pack "
            "--receive-pack --textconv --git-dir --work-tree -C -x --extcmd --template"
        ),
        after={"clone": ("-u",)},
        phrases=(("bisect", "run"), ("submodule", "foreach"), ("filter-branch",)),
    ),
    "hg": Program(options=_words("--config -R --repository --cwd -e --ssh --remotecmd")),
    "gh": Program(after={one: _words("-u -c --upload-pack --config --template")
                         for one in ("clone", "fork")}),
    **_all("tar bsdtar", Program(bundle="IF", options=_words(
        "--to-command --checkpoint-action -I --use-compress --rsh -F --info-script --new-volume"
    ))),
    "rsync": Program(options=_words("-e --rsh --rsync-path")),
    **_all("scp sftp", Program(options=_words("-S -o -F -J -D"))),
    **_all("nc ncat netcat", Program(options=_words("-e -c --exec --sh-exec --lua-exec"))),
    "socat": Program(True, language=True),
    "rg": Program(options=_words("--pre --hostname-bin")),
    "sort": Program(options=_words("-o --output --compress-program")),
    "sed": Program(
        options=_words("-i --in-place --expression -e -f --file -l --line-length"), script=_SED
    ),
    "curl": Program(options=_words(
        "-K --config -o -O -J --output --remote-name --remote-header-name --dump-header -D -c "
        "--cookie-jar --trace --stderr --libcurl --engine --create-file --etag-save --hsts"
    )),
    "wget": Program(options=_words(
        "-O -o -a -P -e --output --append-output --directory-prefix --execute --use-askpass "
        "--config --rejected-log --save-cookies --warc"
    )),
    "zip": Program(options=_words("-TT --unzip-command")),
    "man": Program(options=_words("-P --pager -H --html -C --config-file")),
    "tcpdump": Program(options=_words("-z -w")),
    "split": Program(options=_words("--filter")),
    "less": Program(options=_words("-o -O --log-file --LOG-FILE -k --lesskey +")),
    **_all("ctags etags", Program(options=_words("--options --_xformat -o --output"))),
    "ip": _phrases("netns exec", "vrf exec"),
    **_all("make gmake", Program(
        options=_words("-f -C -I --eval --file --makefile --directory --include-dir"), assigns=True
    )),
    "ninja": Program(options=_words("-C -f")),
    "cargo": Program(options=_words("--config -C --manifest-path")),
    "go": Program(
        options=_words("-exec --exec -toolexec --toolexec -vettool --vettool -o -C"),
        phrases=(("run",), ("generate",)),
    ),
    "npm": Program(
        options=_words("--script-shell --prefix -C --node-options"),
        phrases=(("exec",), ("x",), ("explore",), ("init",), ("create",)),
    ),
    "pnpm": _phrases("exec", "dlx", "create"),
    "yarn": _phrases("exec", "dlx", "create"),
    "bun": _phrases("x", "exec"),
    **_all("uv poetry pipenv hatch pdm rye", _phrases("run", "tool run")),
    **_all("bundle rbenv pyenv mise asdf direnv nvm", _phrases("exec")),
    **_all("conda mamba micromamba", _phrases("run")),
    **_all("docker podman nerdctl", _phrases("run", "exec", "compose run", "compose exec")),
    **_all("kubectl oc", _phrases("run", "exec")),
    "nix": _phrases("run", "develop", "shell"),
    "nix-shell": Program(options=_words("--run --command -p")),
    # languages
    **_all("python pypy", Program(language=True, options=_words("-c"))),
    "perl": Program(language=True, options=_words("-e -E -i -M -m -I -d")),
    "ruby": Program(language=True, options=_words("-e -r -I -S -i")),
    **_all("node nodejs deno", Program(
        language=True,
        options=_words("-e -p -r --eval --print --require --import --loader --experimental-loader"),
        phrases=(("eval",),),
    )),
    "php": Program(language=True, options=_words("-r -B -R -E -d -z --run --process")),
    "lua": Program(language=True, options=_words("-e -l")),
    **_all("osascript tclsh rscript julia ghci r", Program(
        language=True, options=_words("-e -E --eval --expr --print")
    )),
    **_all(
        "awk gawk mawk nawk vi vim nvim view vimdiff ex emacs nano ed gdb lldb expect dc",
        Program(runs=True, language=True),
    ),
    **_all("jshell irb pry iex erl psql mysql", Program(
        language=True, options=_words("-e -c -cmd --command --execute --eval -f")
    )),
    "sqlite3": Program(
        language=True, options=_words("-cmd --cmd -init --init -A --A"), code=_SQL_SHELL
    ),
    "duckdb": Program(
        language=True, options=_words("-cmd --cmd -init --init -c -s -f"), code=_SQL_SHELL
    ),
}  # fmt: skip

_VERSION = re.compile(r"[-.\d]+$")


def last_name(word: str) -> str:
    """Return the last name of a program's path, in lower case."""
    return re.split(r"[/\\]", word.lower())[-1].removesuffix(".exe")


@lru_cache(1_024)
def known_program(word: str) -> Program | None:
    """Return the knowledge about a program; `python3.12` counts as `python`."""
    name = last_name(word)
    return _TABLE.get(name) or _TABLE.get(_VERSION.sub("", name))
