"""Launch files: places from which programs read settings or code when they start.

What an agent writes there acts later and with more rights than the agent has: the line that starts
this server in a client's file, with its bounds, or a hook that git runs. So a person decides, see
`protect`. What somebody starts by name, such as a `Makefile`, or what runs only after it has been
pushed, is left out: people look at it, and agents are asked to write it every day.

Patterns are globs from the root; they match at any depth unless they begin with a slash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from ..install.clients import PLACES, PROJECT_FILES
from ..install.machine import Machine

__all__ = [
    "REDIRECTS",
    "SEARCH_DEPTH",
    "anchored",
    "client_files",
    "is_exempt",
    "launch_patterns",
    "moved",
]

REDIRECTS = ("/**/.git",)
"""Globs of what leads a program to settings elsewhere if it is a file. If it is a directory, what
is in it is written every day."""

SEARCH_DEPTH = 3
"""How many levels below the root commands' sandboxes look for such places, each time."""

_HOME = Path("/home/of/anybody")
_PLATFORMS = ("linux", "darwin", "win32")

_USUAL = (
    # Other files of clients, and other clients
    ".claude/**", ".opencode/**", ".copilot/**", ".windsurf/**", ".codeium/**", ".continue/**",
    ".roo/**", ".kiro/**", ".amazonq/**", ".junie/**", ".aider.conf.yml",
    # Editors and development environments
    ".devcontainer/**", ".devcontainer.json", ".idea/**", ".fleet/**", ".zed/**", ".vimrc", ".exrc",
    ".vim/**", ".nvimrc", ".nvim.lua", ".config/nvim/**", ".emacs", ".emacs.d/**", ".dir-locals.el",
    # git: what it runs, what says so, and what says where that is
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


@cache
def launch_patterns() -> Sequence[str]:
    """Return the patterns of all such places: those of known clients, and the usual ones."""
    found: dict[str, None] = {}
    for names in PROJECT_FILES.values():
        found |= dict.fromkeys(_with_folder(PurePosixPath(name)) for name in names)
    for platform in _PLATFORMS:
        machine = Machine(platform, _HOME, _HOME)
        for path in client_files(machine):
            below = PurePosixPath(path.relative_to(_HOME).as_posix())
            found[_with_folder(below)] = None
    return [*found, *(one for one in _USUAL if one not in found)]


def client_files(machine: Machine) -> Sequence[Path]:
    """Return where the clients on a machine have the user's own list of servers."""
    return [scopes["user"](machine) for scopes in PLACES.values()]


def anchored(pattern: str) -> str:
    """Return a pattern as a glob over paths from the root, which covers all below a match."""
    plain = pattern.removeprefix("!").removesuffix("**").rstrip("/")
    return f"{plain if plain.startswith('/') or not plain else f'/**/{plain}'}/**"


def is_exempt(pattern: str) -> bool:
    """Whether a pattern says what is no such place."""
    return pattern.startswith("!")


def moved(root: Path) -> Iterator[Path]:
    """Yield such places right below a root that are links, or reached through links. Blocks."""
    real = os.path.realpath(root)
    for pattern in launch_patterns():
        name = pattern.removesuffix("/**")
        path = os.path.join(real, *name.split("/"))
        if "*" not in name and os.path.lexists(path) and os.path.realpath(path) != path:
            yield Path(path)


def _with_folder(file: PurePosixPath) -> str:
    """Return the pattern of a client's file: with its folder, which is the client's own."""
    return str(file) if len(file.parts) == 1 else f"{file.parent}/**"
