"""`deep-agent-mcp journal …` on a state directory, sound and damaged."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.state_dir import StateDir
from tests.fork_server import environment, run
from tests.server.test_thread_commands import TURNS, Admin


@pytest.fixture
def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """A state directory with two threads."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    root = tmp_path / "root"
    root.mkdir()
    made = Admin(tmp_path / "state", root)
    made.work(*TURNS, thread_id="notes")
    made.work({"text": "Hello."}, thread_id="talk")
    return made


def journal(admin: Admin, *args: str, **environ: str) -> Result:
    command = ["journal", "--state-dir", str(admin.state), *args]
    return CliRunner().invoke(cli, command, env=environ)


def data(done: Result) -> Any:
    return json.loads(done.stdout)


def path_of(admin: Admin) -> Path:
    return StateDir(admin.state).journal


def damage(admin: Admin) -> bytes:
    """Lose the beginning of the file; return the file."""
    path = path_of(admin)
    content = bytes(4096) + path.read_bytes()[4096:]
    path.write_bytes(content)
    return content


def test_a_sound_journal_is_checked_beside_a_server(admin: Admin) -> None:
    with StateDir.open(admin.state).claim():
        done = journal(admin, "check")
        assert done.exit_code == 0 and "is sound: 2 threads and " in done.stdout
        found = data(journal(admin, "check", "--json"))
    assert (found["sound"], found["threads"], found["problems"]) == (True, 2, [])


def test_a_backup_is_private_whole_and_never_over_another_file(
    admin: Admin, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite3"
    with StateDir.open(admin.state).claim():
        done = journal(admin, "backup", str(copy))
    assert done.exit_code == 0 and f"copied to {copy}" in done.stdout
    assert os.name == "nt" or stat.S_IMODE(copy.stat().st_mode) == 0o600
    before = copy.read_bytes()
    again = journal(admin, "backup", str(copy))
    assert again.exit_code == 1 and "exists already; nothing was written" in again.stderr
    assert copy.read_bytes() == before
    listed = admin.data("list")
    path_of(admin).unlink()
    copy.rename(path_of(admin))
    assert admin.data("list") == listed


def test_a_server_that_meets_a_damaged_journal_names_the_way_on_and_it_leads_there(
    admin: Admin, tmp_path: Path
) -> None:
    listed, told = admin.data("list"), admin.threads("show", "notes", "--transcript").stdout
    content, saved = damage(admin), tmp_path / "saved.sqlite3"

    where = ["--state-dir", str(admin.state), "--root", str(admin.root)]
    command = [sys.executable, "-m", "deep_agent_mcp", "serve", *where]
    served = run(command, environment(tmp_path), tmp_path)
    assert served.returncode == 2 and "Traceback" not in served.stderr
    assert "deep-agent-mcp journal check" in served.stderr
    assert "deep-agent-mcp journal salvage NEWFILE" in served.stderr

    done = journal(admin, "check")
    assert done.exit_code == 1
    assert "is damaged" in done.stdout and "journal salvage NEWFILE" in done.stdout
    refused = journal(admin, "backup", str(tmp_path / "copy"))
    assert refused.exit_code == 1 and "journal salvage NEWFILE" in refused.stderr

    with StateDir.open(admin.state).claim():
        busy = journal(admin, "salvage", str(saved))
        assert busy.exit_code == 1 and "Stop the server" in busy.stderr
    assert not saved.exists()
    done = journal(admin, "salvage", str(saved))
    assert done.exit_code == 0, done.output
    assert "- notes: saved whole" in done.stdout and "- talk: saved whole" in done.stdout
    assert f"move {saved} there" in done.stdout
    assert path_of(admin).read_bytes() == content
    saved.rename(path_of(admin))
    assert admin.data("list") == listed
    assert admin.threads("show", "notes", "--transcript").stdout == told


def test_what_is_lost_of_each_thread_is_said(admin: Admin, tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(path_of(admin)) as conn:
        conn.execute(
            "UPDATE checkpoints SET body = NULL WHERE scope = (SELECT scope FROM scopes"
            " JOIN threads USING (thread) WHERE thread_id = 'notes')"
        )
        conn.execute(
            "DELETE FROM pages WHERE scope = (SELECT scope FROM scopes JOIN threads USING (thread)"
            " WHERE thread_id = 'notes')"
        )
    conn.close()
    done = journal(admin, "check")
    assert done.exit_code == 1 and "thread 'notes' has lost steps:" in done.stdout
    assert "'talk'" not in done.stdout
    found = data(journal(admin, "salvage", str(tmp_path / "new"), "--json"))["threads"]
    notes, talk = sorted(found, key=lambda one: one["thread_id"])
    assert notes["lost"]["steps"] > 0 and "missing" in notes["problem"]
    assert talk["lost"] == {} and talk["saved"]


def test_a_sealed_journal_is_salvaged_with_its_key(admin: Admin, tmp_path: Path) -> None:
    key, wrong = Keyring.generate(), Keyring.generate()
    environ = {"DEEP_AGENT_JOURNAL_KEY": key}
    sealed = admin.threads("seal", "--plain", env=environ)
    assert sealed.exit_code == 0, sealed.output
    assert journal(admin, "check", **environ).exit_code == 0
    assert (
        "the journal key is wrong" in journal(admin, "check", DEEP_AGENT_JOURNAL_KEY=wrong).stderr
    )
    damage(admin)
    saved = tmp_path / "saved"
    done = journal(admin, "salvage", str(saved), DEEP_AGENT_JOURNAL_KEY=wrong)
    assert "the journal key is wrong" in done.stderr and not saved.exists()
    done = journal(admin, "salvage", str(saved), **environ)
    assert done.exit_code == 0 and "- notes: saved whole" in done.stdout
    assert key not in done.output


@pytest.mark.parametrize("args", [["check"], ["backup", "x"], ["salvage", "x"]], ids=" ".join)
def test_without_a_journal_nothing_is_made(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = journal(Admin(tmp_path / "nowhere", tmp_path), *args)
    assert done.exit_code == 1 and "there is no journal in" in done.stderr
    assert os.listdir(tmp_path) == []
