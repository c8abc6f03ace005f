"""Runner for tutorials: creates their files and runs their commands, in order, in an empty home.

A file is a fenced block after "Save this as `NAME`". Commands are indented blocks. A fenced block
of `text` after commands is their output; `…` matches any text. An id in a command, such as
`run_0a1b2c3d4e5f6071`, stands for the latest printed id of the same kind. A server for clients runs
until the tutorial ends. `<!-- exit code N -->` before commands sets their expected exit code, and
`<!-- not run: REASON -->` skips them.

`python -m tests.tutorials PYTHON` runs all tutorials with an installed package.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests import fork_server
from tests.doc_pages import ROOT
from tests.ports_and_waits import free_port

__all__ = ["TUTORIALS", "Newcomer", "steps"]

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
STEP = re.compile(
    r"Save\s+this\s+as\s+`(?P<file>[^`]+)`[^\n]*:\n\n```\w+\n(?P<content>.*?)^```$"
    r"|^```text\n(?P<output>.*?)^```$"
    r"|(?:^<!-- (?:exit code (?P<code>\d+)|not run: (?P<left>[^\n]+)) -->\n\n)?"
    r"(?P<commands>(?:^    [^\n]+\n(?:\n(?=    ))?)+)",
    re.MULTILINE | re.DOTALL,
)
ID = re.compile(r"\b((?:run|thr|ckpt)_)[0-9a-f]{16}(?:_[0-9a-f]{16})?\b")
TOKEN = re.compile(r"\bdam_[\w-]+")
PORT = "8000"
START_SECONDS = 60
SLOW = re.compile(r"broken: (?:its first answer took|it was not done within)")


def steps(page: Path) -> list[re.Match[str]]:
    """Return files, commands and outputs of a tutorial, in order."""
    return list(STEP.finditer(page.read_text(encoding="utf-8")))


class Newcomer:
    """A user with an empty home who follows a tutorial.

    Args:
        place: An empty directory.
        python: An interpreter with the installed package; None to use this checkout.
    """

    def __init__(self, place: Path, python: str | None = None) -> None:
        self.place = place / "work"
        self.place.mkdir()
        self._port = str(free_port())
        bin_dir = place / "bin"
        bin_dir.mkdir()
        self._env = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
        self._env |= {
            "HOME": str(place),
            "PATH": f"{bin_dir}:/usr/bin:/bin",
            **({} if python else {"PYTHONPATH": str(ROOT)}),
            "COLUMNS": "120",
            "DEEP_AGENT_DRAIN_SECONDS": "1",
        }
        served = [python or sys.executable, "-m", "deep_agent_mcp"]
        if python is None:
            served = fork_server.stand_in(served, self._env)
        for name, words in (("python", [python or sys.executable]), ("deep-agent-mcp", served)):
            command = bin_dir / name
            command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            command.chmod(0o755)
        self._last: dict[str, str] = {}
        self._servers: list[subprocess.Popen[bytes]] = []
        self._printed = ""

    def do(self, page: Path) -> None:
        """Follow a tutorial to its end."""
        for step in steps(page):
            if step["file"]:
                self._save(step["file"], step["content"])
            elif step["output"] is not None:
                self._compare(step["output"])
            elif not step["left"]:
                lines = [line[4:] for line in step["commands"].splitlines() if line.strip()]
                self._run(lines, int(step["code"] or 0))

    @contextmanager
    def cleaned(self) -> Iterator[Newcomer]:
        """Stop all servers after the block."""
        try:
            yield self
        finally:
            for server in self._servers:
                server.terminate()
            for server in self._servers:
                server.wait(START_SECONDS)

    def _save(self, name: str, content: str) -> None:
        home = Path(self._env["HOME"])
        file = home / name[2:] if name.startswith("~/") else self.place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content.replace(PORT, self._port), encoding="utf-8")

    def _run(self, lines: list[str], expected: int) -> None:
        lines = [self._with_ids(line).replace(PORT, self._port) for line in lines]
        lines = [line for line in lines if not line.startswith("pip install")]
        if any("serve" in line and "--transport http" in line for line in lines):
            self._serve(lines)
            return
        script = "\n".join(["trap 'env -0 >.env-after' EXIT", *lines])
        done = subprocess.run(
            ["bash", "-e", "-c", script] if not expected else ["bash", "-c", script],
            cwd=self.place,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=120,
        )
        self._printed = done.stdout
        if SLOW.search(done.stdout):  # the doctor warns if the machine is busy
            expected = done.returncode
        assert done.returncode == expected, f"{lines}: {done.returncode}\n{done.stdout}"
        for found in ID.finditer(done.stdout):
            self._last[found[1]] = found[0]
        after = self.place / ".env-after"
        pairs = [one.partition("=") for one in after.read_text().split("\0") if one]
        self._env |= {name: value for name, _, value in pairs if name not in ("_", "SHLVL", "PWD")}
        after.unlink()
        if tokens := TOKEN.findall(done.stdout):
            self._last["token"] = tokens[-1]

    def _with_ids(self, line: str) -> str:
        line = ID.sub(lambda found: self._last.get(found[1], found[0]), line)
        return line.replace("dam_…", self._last.get("token", "dat_…"))

    def _serve(self, lines: list[str]) -> None:
        script = "\n".join(lines)
        command = ["bash", "-c", f"exec {script}"]
        with (self.place / ".server-log").open("wb") as log:
            self._servers.append(
                subprocess.Popen(
                    command, cwd=self.place, env=self._env, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log,
                )
            )  # fmt: skip
        address = f"http://127.0.0.1:{self._port}/healthz"
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends:
            try:
                with urlopen(address, timeout=5):
                    return
            except (URLError, OSError):
                assert self._servers[-1].poll() is None, (self.place / ".server-log").read_text()
                time.sleep(0.1)
        raise AssertionError((self.place / ".server-log").read_text())

    def _compare(self, output: str) -> None:
        """Check that the lines were printed in this order; other lines between them are allowed."""
        wanted = [line.strip() for line in output.splitlines() if line.strip(" …")]
        pattern = ".*?".join(
            r"\s+".join(".*?".join(map(re.escape, word.split("…"))) for word in line.split())
            for line in wanted
        )
        pattern = ID.sub(r"\1[0-9a-f_]+", pattern)
        assert re.search(pattern, self._printed, re.DOTALL), (
            f"{output}\n--- was not printed:\n{self._printed}"
        )


def can_run() -> bool:
    """Whether tutorials can run on this machine: they need bash."""
    return os.name != "nt" and shutil.which("bash") is not None


def main(python: str) -> None:
    """Run all tutorials with an installed package."""
    for page in TUTORIALS:
        with (
            tempfile.TemporaryDirectory() as place,
            Newcomer(Path(place), python).cleaned() as newcomer,
        ):
            newcomer.do(page)
        print(f"{page.stem}: done")


if __name__ == "__main__":
    main(sys.argv[1])
