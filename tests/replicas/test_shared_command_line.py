"""The command line beside replicas: it follows the setting, and never becomes one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.doctor.state import examine_journal, examine_replicas
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.version import version
from tests.databases import Database, made_database
from tests.e2e.servers import call, connected
from tests.replicas.servers import journal_url, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    yield from made_database()


class Shell:
    """Commands on a machine without a server, with the key and the URL in files.

    Attributes:
        url: The journal.
        key: What it is encrypted with.
        files: Flags that name the files.
    """

    def __init__(self, database: Database, place: Path) -> None:
        self.url = journal_url(database)
        self.key = Keyring.generate()
        self._place = place
        self.files = ["--journal-url-file", self.secret("url", self.url)]
        self.files += ["--journal-key-file", self.secret("key", self.key)]

    def secret(self, name: str, text: str) -> str:
        file = self._place / name
        file.touch(mode=0o600)
        file.write_text(text)
        return str(file)

    def settings(self, **more: str) -> Settings:
        chosen = {"state_dir": str(self._place / "state"), "journal": self.url}
        return load_settings({**chosen, "journal_key": self.key, "replicas": "true", **more}, {})

    async def __call__(self, group: str, *args: str, alone: bool = False) -> Result:
        flags = ["--state-dir", str(self._place / "state"), *self.files]
        flags += [] if alone else ["--replicas"]
        return await invoked(group, *flags, *args)


async def invoked(*command: str) -> Result:
    """Run a command in a thread, because commands have loops of their own."""
    return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, command))


@pytest.fixture
def shell(database: Database, tmp_path: Path) -> Shell:
    return Shell(database, tmp_path)


async def test_commands_work_beside_replicas(shell: Shell, tmp_path: Path) -> None:
    key = {"DEEP_AGENT_JOURNAL_KEY": shell.key}
    with anyio.fail_after(120), serving(tmp_path, shell.url, ("a", "b"), **key) as fleet:
        async with connected(fleet.all["a"].url, "auto") as client:
            done = await call(client, "task", goal="work 1")
        thread, run_id = done["thread_id"], done["run_id"]
        assert thread in (await shell("threads", "list")).stdout
        assert "Finished work 1." in (await shell("runs", "show", run_id)).stdout
        # Without --replicas a command wants the journal for itself, and says what to do.
        refused = await shell("threads", "list", alone=True)
        assert refused.exit_code == 1 and "Add --replicas" in refused.output
        # Nobody encrypts the journal anew under servers that use it.
        refused = await shell("threads", "seal")
        assert refused.exit_code == 1 and "stop them first" in refused.output
        # What is about files says that the journal is none.
        refused = await invoked("journal", *shell.files, "check")
        assert refused.exit_code == 1 and "not a file" in refused.output


async def test_the_doctor_sees_the_replicas_and_becomes_none(shell: Shell, tmp_path: Path) -> None:
    (none,) = await examine_replicas(shell.settings())
    assert (none.status, none.text) == ("note", "none is running")
    key = {"DEEP_AGENT_JOURNAL_KEY": shell.key}
    with anyio.fail_after(170), serving(tmp_path, shell.url, ("a", "b"), **key):
        (found,) = await examine_replicas(shell.settings())
        assert found.status == "ok"
        assert found.text.startswith("2 on ") and found.text.endswith(f", version {version()}")
        (journal,) = await examine_journal(shell.settings())
        assert journal.status == "ok"
        (wrong,) = await examine_replicas(shell.settings(journal_key=Keyring.generate()))
        assert wrong.status == "broken" and "encrypted with the key" in wrong.text
        flags = ["--replicas", "--state-dir", str(tmp_path / "state"), *shell.files]
        done = await invoked("doctor", "--client", "cursor", "--json", "--", *flags)
        seen = json.loads(done.stdout)
        assert [one["status"] for one in seen["findings"] if one["about"] == "replicas"] == ["ok"]
        (cursor,) = seen["clients"]
        assert cursor["tools"] > 10
        # How long the machine took says nothing about replicas.
        assert all("its first answer took" in one["text"] for one in cursor["problems"])
        listed = await invoked("replicas", *shell.files, "--json")
        assert len(json.loads(listed.stdout)["replicas"]) == 2


async def test_the_doctor_says_when_the_database_is_away(shell: Shell) -> None:
    away = "postgresql://postgres@127.0.0.1:1/none"
    (found,) = await examine_replicas(shell.settings(journal=away))
    assert found.status == "broken" and "refused" in found.text
