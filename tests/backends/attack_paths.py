"""Paths that try to leave a directory, to block programs that open them, or to confuse readers.

`lay_out` creates links, devices and unusual files in a root; `ATTACKS` are paths to request there.
`{outside}` and `{root}` in a path stand for the real directories.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

__all__ = ["ATTACKS", "FAMILIES", "SECRET", "Attack", "Ground", "lay_out"]

SECRET = b"the-secret-outside"


class Attack(NamedTuple):
    """A path to request."""

    family: str
    path: str


@dataclass(frozen=True, slots=True)
class Ground:
    """Directories for attacks: the root of the files, and the directories around it.

    Attributes:
        root: Directory of the files.
        outside: A directory beside it, with `key` and `sub/key`.
        held: File descriptors to keep open.
    """

    root: Path
    outside: Path
    held: tuple[int | socket.socket, ...]

    def close(self) -> None:
        for one in self.held:
            one.close() if isinstance(one, socket.socket) else os.close(one)

    def within(self) -> dict[str, tuple[int, ...]]:
        """Return the identity of everything in the root; a restored file has another one."""
        found: dict[str, tuple[int, ...]] = {}
        folders = [os.fspath(self.root)]
        for base in folders:
            with os.scandir(base) as entries:
                for one in entries:
                    status = one.stat(follow_symlinks=False)
                    folder = stat.S_ISDIR(status.st_mode)
                    times = () if folder else (status.st_ino, status.st_size, status.st_ctime_ns)
                    found[one.path] = (status.st_mode, *times)
                    if folder:
                        folders.append(one.path)
        return found

    def around(self) -> dict[str, tuple[object, ...]]:
        """Return everything outside the root: names, kinds, times, modes and contents."""
        found: dict[str, tuple[object, ...]] = {}
        top = str(self.root.parent)
        for base, dirs, files in os.walk(top):
            if base == top:
                dirs.remove(self.root.name)
            for name in (*dirs, *files):
                place = os.path.join(base, name)
                status = os.lstat(place)
                data = Path(place).read_bytes() if os.path.isfile(place) else b""
                times = (status.st_mtime_ns, status.st_ctime_ns)
                found[place] = (status.st_mode, status.st_size, status.st_uid, times, data)
        return found


def lay_out(directory: Path) -> Ground:
    """Create a root full of traps, and secrets around it."""
    outside = directory / "outside"
    (outside / "sub").mkdir(parents=True)
    evil = directory / "root-evil"  # begins with the name of the root
    evil.mkdir()
    for place in (outside / "key", outside / "sub/key", evil / "key", directory / "key"):
        place.write_bytes(SECRET)
    root = directory / "root"
    (root / "d/e").mkdir(parents=True)
    for name in ("key", "d/key", "d/e/key"):
        (root / name).write_bytes(b"mine\n")
    descriptor = os.open(outside / "key", os.O_RDONLY)
    folder = os.open(outside, os.O_RDONLY)
    for name, target in links(root, outside, descriptor, folder).items():
        os.symlink(target, f"{root}/{name}")
    for number in range(45):  # more links than systems follow
        os.symlink(f"chain{number + 1}", f"{root}/chain{number}")
    (root / "chain45").symlink_to(outside)
    os.mkfifo(root / "fifo")
    held = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(root)  # names of sockets are short
    held.bind("socket")
    os.chdir(here)
    with open(root / "sparse", "wb") as sparse:
        sparse.truncate(10 << 30)
    return Ground(root, outside, (held, descriptor, folder))


def links(root: Path, outside: Path, descriptor: int, folder: int) -> dict[str, str]:
    """Return targets of links by name. All lead out of the root, or nowhere."""
    return {
        "abs-file": f"{outside}/key",
        "abs-dir": f"{outside}",
        "abs-slash": f"{outside}/",
        "rel-file": "../outside/key",
        "rel-dir": "../outside",
        "dots": "./.././outside/./sub/..",
        "through": "d/e/../../../outside",
        "through-root": f"{root}/../outside",
        "through-link": "rel-dir/sub",
        "d/up": "../../outside",
        "d/e/up": "../../../outside",
        "to-link": "abs-dir",
        "to-to-link": "to-link",
        "dangling": f"{outside}/new",
        "dangling-rel": "../outside/new",
        "dangling-deep": f"{outside}/no/such/new",
        "parent": "..",
        "grandparent": "../..",
        "slash": "/",
        "slashes": "//",
        "evil": f"{root}-evil",
        "evil-rel": "../root-evil",
        "passwd": "/etc/passwd",
        "proc-root": "/proc/self/root",
        "proc-cwd": "/proc/self/cwd",
        "proc-fd": f"/proc/self/fd/{descriptor}",
        "proc-dir-fd": f"/proc/self/fd/{folder}",
        "proc-task": f"/proc/thread-self/fd/{folder}",
        "dev-fd": f"/dev/fd/{folder}",
        "stdin": "/dev/stdin",
        "stdout": "/dev/stdout",
        "zero": "/dev/zero",
        "null": "/dev/null",
        "random": "/dev/random",
        "tty": "/dev/tty",
        "self": "self",
        "ping": "pong",
        "pong": "ping",
        "into-itself": "into-itself/x",
        "up-itself": f"../{root.name}/up-itself",
        "fifo-link": "fifo",
    }


_NAMES = tuple(links(Path("/r"), Path("/o"), 3, 4))

_TRAVERSALS = tuple(
    f"{start}{step * count}{end}"
    for start, step, count, end in product(
        ("", "/", "d/", "/d/e/", "./", "\\", "d\\"),
        ("../", "..\\", "..//", "./../"),
        (1, 3, 12),
        ("outside/key",),
    )
)

_DOTS = (
    *(
        "..",
        "../",
        "/..",
        "/../..",
        "d/..",
        "d/e/../..",
        "/d/../../outside/key",
        "...",
        "....//key",
    ),
    *("/.../outside/key", "..;/outside/key", ".. /outside/key", " ../outside/key", "..\t/outside"),
    *("%2e%2e/outside/key", "%2e%2e%2foutside%2fkey", "..%2foutside/key", "..%5coutside%5ckey"),
    *("%252e%252e%252foutside", "..%c0%afoutside/key", "..%00/outside/key", "&#46;&#46;/outside"),
    *("\uff0e\uff0e/outside/key", "..\uff0foutside\uff0fkey", "..\u2215outside\u2215key"),
    *("\u2025/outside/key", ".\u200b./outside/key", "..\u200b/outside/key", ".\u0307./outside"),
    *("~", "~/key", "~root/.ssh/id_rsa", "/~/key", "$HOME/key", "${{HOME}}/key", "$(pwd)/key"),
    *("`pwd`/key", "file:///etc/passwd", "file://{outside}/key", "//etc/passwd", "///etc/passwd"),
    *("-rf", "--help", "-", "|cat {outside}/key", ";cat {outside}/key", "key;../outside/key"),
    *("*", "?", "[a-z]*", "**", "../*", "/{{outside,d}}/key", "{{..,d}}/outside/key", "!(d)"),
)

_ABSOLUTE = (
    *("{outside}", "{outside}/", "{outside}/key", "{outside}/new", "{outside}/sub/../key"),
    *("{root}/../outside/key", "{root}/d/../../outside/key", "{root}-evil/key", "{root}/.."),
    *("{root}/abs-dir/key", "{root}/rel-dir/key", "{root}//../outside/key", "/{root}/../key"),
    *(
        "/etc/passwd",
        "/etc/shadow",
        "/home/ann/.ssh/id_rsa",
        "/proc/self/environ",
        "/proc/self/mem",
    ),
    *("/proc/self/root" + "/etc/passwd", "/proc/1/cwd", "/dev/stdin", "/dev/fd/0", "/dev/tty"),
    *("/dev/zero", "/dev/full", "/dev/kmsg", "/sys/kernel", "/", "//", "/.", "/./", "."),
)

_NULS = tuple(
    f"{start}\0{end}"
    for start, end in product(("", "key", "../outside/key", "/d/", "{outside}/key"), ("", "/x"))
)

_UNREADABLE = (
    *(
        "a\nb",
        "a\rb",
        "key\n",
        "\n",
        "\t",
        " ",
        "  key",
        "key ",
        "a\x1b[2Jb",
        "\x1b]0;t\x07",
        "\x7f",
    ),
    *(
        "\u202eyek",
        "a\u202eb\u2066c",
        "k\u200bey",
        "ke\u200dy",
        "\ufeffkey",
        "\u00adkey",
        "k\u2060ey",
    ),
    *(
        "\u0435\u043dt",
        "k\u0435\u0443",
        "e\u0301",
        "\u00e9",
        "\ufb01le",
        "\u212a",
        "\u2126",
        "\ud7ff",
    ),
    *("\ud800", "key\udcff", "\udc80/key", "\ud83d", "\U0001f600", "\U000e0001", "\U0010ffff"),
    *("\x01", "\x1f", "\x85", "\u2028", "\u2029", "a\x0bb", "a\x0cb", "a\x08b", "\x1a"),
)

_LONG = (
    *("n" * 255, "n" * 256, "n" * 4_096, "n" * 70_000, "é" * 127, "é" * 128, "漢" * 85, "漢" * 86),
    *("d/" * 49 + "x", "d/" * 101, "d/" * 2_048, "/" * 5_000 + "key", "./" * 3_000 + "key"),
    *("../" * 2_000 + "etc/passwd", "abs-dir/" * 100, "self/" * 90, "x/" * 99 + "x", "." * 300),
    *("/".join(["n" * 200] * 6), "/".join(["n" * 255] * 17), "d/" * 600 + "../" * 700 + "key"),
)

_WINDOWS = (
    *("C:\\", "C:\\Windows\\win.ini", "c:/windows/win.ini", "C:key", "C:", "C:..\\outside\\key"),
    *("Z:\\outside", "\\\\server\\share\\key", "//server/share/key", "\\\\?\\C:\\key"),
    *("\\\\.\\PhysicalDrive0", "\\\\.\\pipe\\name", "\\??\\C:\\key", "\\\\localhost\\C$\\key"),
    *("CON", "con", "NUL", "nul.txt", "d/AUX", "PRN.md", "COM1", "com9.log", "LPT1", "CONIN$"),
    *("CONOUT$", "NUL ", "NUL.", "NUL:", "key::$DATA", "key:stream", "d::$INDEX_ALLOCATION"),
    *("key.", "key..", "key ", "key. .", "d./key", "d /key", "d\\..\\..\\outside\\key", "KEY"),
    *("..\\outside\\key", "..\\..\\outside", "\\..\\outside\\key", "d\\e\\..\\..\\..\\outside"),
    *("PROGRA~1", "key~1", "a<b", "a>b", 'a"b', "a|b", "a?b", "a*b", "%SystemRoot%\\key", "COM¹"),
)

_SPECIAL = (
    *("fifo", "fifo/", "fifo/x", "fifo-link", "socket", "socket/x", "sparse", "sparse/x"),
    *("key/", "key/.", "key/x", "key/../key", "d", "d/", "d/e", "d//e//key", "/d/./e/key"),
)

_BY_LINK = (
    *(
        f"{name}{end}"
        for name, end in product(_NAMES, ("", "/", "/key", "/sub/key", "/new/x", "/../key"))
    ),
    *("chain0", "chain0/key", "chain10/key", "chain44", "proc-root/etc/passwd", "slash/etc/passwd"),
)

_FAMILIES = {
    "traversal": _TRAVERSALS,
    "dots and look-alikes": _DOTS,
    "absolute": _ABSOLUTE,
    "NUL": _NULS,
    "unreadable": _UNREADABLE,
    "long": _LONG,
    "Windows": _WINDOWS,
    "special": _SPECIAL,
    "link": _BY_LINK,
}

FAMILIES = {
    family: tuple(Attack(family, path) for path in dict.fromkeys(paths))
    for family, paths in _FAMILIES.items()
}
ATTACKS = tuple(attack for attacks in FAMILIES.values() for attack in attacks)
