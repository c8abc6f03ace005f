"""Launch rules: protect files that programs read when they start, as globs in a root.

Launch files are places from which programs read settings or code when they start. Text that an
agent writes there takes effect later, with more rights than the agent has: for example a client's
entry for this server, with its limits, or a git hook. So a person decides, see `protect`. Files
that people start by name, such as a `Makefile`, or that only run after a push, are not included:
people review them, and agents are asked to write them every day. Patterns are globs from the root;
they match at any depth unless they begin with a slash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from ...harness.policy import CallPolicy, Policy, Rule
from ...harness.policy.composite import CompositePolicy
from ..install.clients import PLACES, PROJECT_FILES
from ..install.machine import Machine
from .setting_types import anchored
from .settings import Settings
from .toolsets import withheld_tools

__all__ = ["LaunchRules", "below", "place_glob", "places_in"]

_SOURCE = "the server's own rules"
_AT_START = "programs take settings or code from there when they start"


_REDIRECTS = ("/**/.git",)
"""Globs of paths that, as files, redirect a program to settings elsewhere. As directories, their
contents are written every day."""

_SEARCH_DEPTH = 3
"""How many levels below the root each sandbox for commands searches for launch files."""

_HOME = Path("/home/of/anybody")
_PLATFORMS = ("linux", "darwin", "win32")

_USUAL = (
    # Other files of clients, and other clients
    ".claude/**", ".opencode/**", ".copilot/**", ".windsurf/**", ".codeium/**", ".continue/**",
    ".roo/**", ".kiro/**", ".amazonq/**", ".junie/**", ".aider.conf.yml",
    # Editors and development environments
    ".devcontainer/**", ".devcontainer.json", ".idea/**", ".fleet/**", ".zed/**", ".vimrc", ".exrc",
    ".vim/**", ".nvimrc", ".nvim.lua", ".config/nvim/**", ".emacs", ".emacs.d/**", ".dir-locals.el",
    # git: its hooks, its configuration, and references to them
    ".git/hooks/**", ".git/config", ".git/config.worktree", ".git/commondir",
    ".git/modules/**/config", ".git/modules/**/config.worktree", ".git/modules/**/commondir",
    ".git/modules/**/hooks/**", ".git/worktrees/**/commondir", ".git/worktrees/**/config.worktree",
    ".gitconfig", ".config/git/**", ".githooks/**", ".husky/**", ".pre-commit-config.yaml",
    "lefthook.yml", ".lefthook.yml", "lefthook-local.yml", ".overcommit.yml", ".hg/hgrc",
    # Package managers, interpreters and debuggers, in the folder where they are started
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo/config", ".cargo/config.toml",
    ".bazelrc", "mise.toml", ".mise.toml", ".config/mise/**", ".gdbinit", ".lldbinit", ".pdbrc",
    ".Rprofile", ".irbrc", ".pryrc", ".ghci", ".ipython/**", ".psqlrc", ".sqliterc",
    # Shells
    ".envrc", ".direnvrc", ".config/direnv/**", ".profile", ".bashrc", ".bash_profile",
    ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
    ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".inputrc", ".config/fish/**",
    "Documents/PowerShell/**", "Documents/WindowsPowerShell/**", ".config/powershell/**",
    # Sessions, and what says how to get in elsewhere
    ".ssh/**", ".local/bin/**", ".config/autostart/**", ".config/systemd/**",
    ".config/environment.d/**", ".pam_environment", ".xinitrc", ".xprofile", ".xsession",
    ".xsessionrc", ".tmux.conf", ".screenrc", ".aws/config", ".kube/config", ".docker/config.json",
    "Library/LaunchAgents/**", "AppData/Roaming/Microsoft/Windows/Start Menu/Programs/Startup/**",
)  # fmt: skip


class LaunchRules(CompositePolicy):
    """The rules, made when the first call is judged: they would delay the start of the server."""

    __slots__ = ("_made", "_of")

    def __init__(self, settings: Settings, root: Path, prefix: str) -> None:
        self._of = (settings, root, prefix)
        self._made: Sequence[CallPolicy] = ()

    @property
    def reads_paths(self) -> bool:
        """Return True: all of them are about paths."""
        return True

    @property
    def are_made(self) -> bool:
        """Whether they are there."""
        return bool(self._made)

    def parts(self) -> Sequence[CallPolicy]:
        """Return the rules. Blocks for some ten milliseconds when they are made."""
        if not self._made:
            settings, root, prefix = self._of
            globs = [escaped(prefix) + one for one in _REDIRECTS]
            self._made = (
                _at_start(settings, prefix, _launch_globs(settings, root, prefix)),
                _at_start(settings, prefix, globs, files_only=True),
            )
        return self._made


def _launch_globs(settings: Settings, root: Path, prefix: str) -> Sequence[str]:
    """Return the globs of files that programs read when they start, see `launch_files`."""
    given = settings.protect_paths
    globs = [
        escaped(prefix) + anchored(one)
        for one in (*_launch_patterns(), *(one for one in given if not _is_exempt(one)))
    ]
    elsewhere = (*_client_files(Machine.here()), *_moved(root))
    globs += [
        place_glob(prefix, place, is_directory=True)
        for path in elsewhere
        for place in places_in(root, path)
        if place != "/"
    ]
    return list(dict.fromkeys(globs))


def _at_start(
    settings: Settings, prefix: str, globs: Sequence[str], *, files_only: bool = False
) -> Policy:
    """Return the rules about files that programs read when they start.

    Args:
        settings: The operator's settings.
        prefix: The root's path in the file tools.
        globs: Globs of these files.
        files_only: See `Policy`.
    """
    rules = [
        Rule("allow", path=escaped(prefix) + anchored(one))
        for one in settings.protect_paths
        if _is_exempt(one)
    ]
    action, why = _who_decides(settings)
    rules.append(
        Rule(
            action,
            path=globs,
            reason=f"{_AT_START}, {why}",
            read_only=False,
            each_time=True,
            source=_SOURCE,
        )
    )
    return Policy(rules, source=_SOURCE, search_depth=_SEARCH_DEPTH, files_only=files_only)


def _who_decides(settings: Settings) -> tuple[Literal["ask", "deny"], str]:
    if settings.protect == "deny":
        return "deny", "so only a person can edit it"
    if "reply" in withheld_tools(settings):
        return "deny", "so a person has to approve it, which clients of this server cannot do"
    return "ask", "so a person decides"


_WILD = re.compile(r"([*?{}\[\]\\])")
_MOST_LINKS = 40


def places_in(root: Path, path: Path) -> Sequence[str]:
    """Return the places of a file, and of the links on the way to it, in a directory.

    Args:
        root: The directory; it exists.
        path: An absolute path; it need not exist.

    Returns:
        Paths from the root, such as `/conf/policy.toml`; `/` for the root itself.
    """
    found = (below(root, step) for step in _steps(path))
    return list(dict.fromkeys(one for one in found if one is not None))


def place_glob(prefix: str, place: str, *, is_directory: bool) -> str:
    """Return the glob of a place in a root that file tools have at a prefix."""
    literal = escaped(prefix + place).rstrip("/")
    return f"{literal}/**" if is_directory else literal or "/"


def escaped(path: str) -> str:
    """Return a glob that matches only this path."""
    return _WILD.sub(r"\\\1", path)


def below(root: Path, path: Path) -> str | None:
    """Return a path from a directory, or None if it is elsewhere; by identity, not by name."""
    for above in path.parents if path.is_symlink() else (path, *path.parents):
        try:
            if os.path.samefile(above, root):
                below = path.relative_to(above).as_posix()
                return "/" if below == "." else f"/{below}"
        except OSError:
            continue  # not there, so neither is it the root
    return None


def _steps(path: Path) -> Iterator[Path]:
    """Yield the real path of each link on the way to a file, and finally the file."""
    at, left, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    while left:
        name = left.pop()
        here = at.parent if name == ".." else at / name
        if not here.is_symlink():
            at = here
            continue
        yield here
        links += 1
        if links > _MOST_LINKS:
            return
        target = Path(os.readlink(here))
        at = Path(target.anchor) if target.is_absolute() else at
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    yield at


@cache
def _launch_patterns() -> Sequence[str]:
    """Return the patterns of all launch files: those of known clients, and the usual ones."""
    found: dict[str, None] = {}
    for names in PROJECT_FILES.values():
        found |= dict.fromkeys(_with_folder(PurePosixPath(name)) for name in names)
    for platform in _PLATFORMS:
        machine = Machine(platform, _HOME, _HOME)
        for path in _client_files(machine):
            below = PurePosixPath(path.relative_to(_HOME).as_posix())
            found[_with_folder(below)] = None
    return [*found, *(one for one in _USUAL if one not in found)]


def _client_files(machine: Machine) -> Sequence[Path]:
    """Return the files in which the clients on a machine keep the user's own list of servers."""
    return [scopes["user"](machine) for scopes in PLACES.values()]


def _is_exempt(pattern: str) -> bool:
    """Whether a pattern excludes files."""
    return pattern.startswith("!")


def _moved(root: Path) -> Iterator[Path]:
    """Yield such places right below a root that are links, or reached through links. Blocks."""
    real = os.path.realpath(root)
    for pattern in _launch_patterns():
        name = pattern.removesuffix("/**")
        path = os.path.join(real, *name.split("/"))
        if "*" not in name and os.path.lexists(path) and os.path.realpath(path) != path:
            yield Path(path)


def _with_folder(file: PurePosixPath) -> str:
    """Return the pattern of a client's file: with its folder, which is the client's own."""
    return str(file) if len(file.parts) == 1 else f"{file.parent}/**"
