"""`deep-agent-mcp threads …` on encrypted journals: making keys, sealing, changing keys."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.mcp_servers.oauth_tokens import Login
from deep_agent_mcp.server.agenda.opening import book_of, opened_agenda
from deep_agent_mcp.server.agenda.schedules import Work
from deep_agent_mcp.server.auth.mounted_logins import login_store
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from tests.fork_server import environment, run
from tests.server.test_thread_commands import Admin, write

SECRET = "the word is xyzzy"


@pytest.fixture
def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Admin:
    """A state directory that was never encrypted, with two threads."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    root = tmp_path / "root"
    root.mkdir()
    made = Admin(tmp_path / "state", root)
    made.work(write(SECRET), {"text": f"Wrote that {SECRET}."}, thread_id="notes")
    made.work({"text": "Hello."}, thread_id="talk")
    return made


def new_key() -> str:
    done = CliRunner().invoke(cli, ["threads", "new-key"])
    assert done.exit_code == 0
    return done.stdout.strip()


def key_id(key: str) -> str:
    return Keyring.parse(key).ids[0]


def key_file(folder: Path, *keys: str) -> Path:
    path = folder / f"{len(keys)}-{key_id(keys[0])}.key"
    path.touch(0o600)
    path.write_text("\n".join(keys) + "\n", encoding="ascii")
    return path


def threads(admin: Admin, *args: str, keys: Sequence[str] = ()) -> Result:
    flags = ["--journal-key-file", str(key_file(admin.state.parent, *keys))] if keys else []
    done = admin.threads(*flags, *args)
    assert not any(key in done.output for key in keys)
    return done


def transcript(admin: Admin, *keys: str) -> str:
    done = threads(admin, "show", "notes", "--transcript", keys=keys)
    assert done.exit_code == 0, done.output
    return done.stdout


def on_disk(admin: Admin) -> bytes:
    return b"".join(one.read_bytes() for one in admin.state.iterdir() if one.is_file())


def test_a_new_key_is_one_that_settings_accept() -> None:
    assert new_key() != new_key()
    assert len(Keyring.parse(new_key()).ids) == 1


def test_a_journal_is_encrypted_given_another_key_and_decrypted_again(admin: Admin) -> None:
    old, new = new_key(), new_key()
    told, listed = transcript(admin), admin.data("list")

    done = threads(admin, "list", keys=[old])
    assert done.exit_code == 1
    assert "is not sealed" in done.stderr and "threads seal --plain" in done.stderr
    done = threads(admin, "seal", keys=[old])
    assert done.exit_code == 1 and "threads seal --plain" in done.stderr

    assert b"xyzzy" in on_disk(admin)
    done = threads(admin, "seal", "--plain", keys=[old])
    assert (done.exit_code, done.stdout) == (0, f"Threads sealed with key {key_id(old)}: 2.\n")
    assert b"xyzzy" not in on_disk(admin)
    assert transcript(admin, old) == told
    done = threads(admin, "list")
    assert done.exit_code == 1
    assert "journal is encrypted" in done.stderr and "journal_key_file" in done.stderr
    done = threads(admin, "list", keys=[new])
    assert done.exit_code == 1 and "the journal key is wrong" in done.stderr
    assert f"sealed with key {key_id(old)}, not with {key_id(new)}" in done.stderr
    assert "recorded usage of run" in done.stderr and "journal_key_file" in done.stderr

    done = threads(admin, "seal", keys=[new, old])
    assert done.stdout == (
        f"Threads sealed with key {key_id(new)}: 2.\nNot needed any more: {key_id(old)}.\n"
    )
    assert transcript(admin, new) == told

    assert threads(admin, "unseal", keys=[new]).exit_code == 1  # asks
    done = threads(admin, "unseal", "--yes", keys=[new])
    assert done.exit_code == 0 and "Threads unsealed: 2. Remove the key" in done.stdout
    assert transcript(admin) == told
    assert admin.data("list") == listed


SCHEDULED = Work("", "0 9 * * 1", "UTC", f"Remember that {SECRET}.")
LOGIN = Login("https://files.example.com/mcp", {}, {"access_token": "xyzzy-token"})


def settings_of(admin: Admin, *keys: str) -> Settings:
    chosen = {"state_dir": str(admin.state), **({"journal_key": ",".join(keys)} if keys else {})}
    return load_settings(chosen, {})


def beside(admin: Admin, *keys: str) -> tuple[Work | None, Login | None]:
    """Return the schedule and the login, opened with these keys."""
    settings = settings_of(admin, *keys)

    async def main() -> Work | None:
        async with opened_agenda(settings) as tables:
            (found,) = await book_of(settings, tables).all()
            return found.work

    return anyio.run(main), login_store(settings).read("files")


def test_schedules_and_logins_change_their_key_with_the_journal(admin: Admin) -> None:
    old, new = new_key(), new_key()

    async def schedule() -> None:
        async with opened_agenda(settings_of(admin)) as tables:
            await book_of(settings_of(admin), tables).add("remember", SCHEDULED)

    anyio.run(schedule)
    login_store(settings_of(admin)).write("files", LOGIN)
    (login,) = (admin.state / "mcp-logins").glob("*.json")
    assert b"xyzzy" in (admin.state / "agenda.db").read_bytes() and b"xyzzy" in login.read_bytes()

    assert threads(admin, "seal", "--plain", keys=[old]).exit_code == 0
    assert b"xyzzy" not in on_disk(admin) and b"xyzzy" not in login.read_bytes()
    assert beside(admin, old) == (SCHEDULED, LOGIN)
    assert threads(admin, "seal", keys=[new, old]).exit_code == 0
    assert beside(admin, new) == (SCHEDULED, LOGIN)
    assert threads(admin, "unseal", "--yes", keys=[new]).exit_code == 0
    assert beside(admin) == (SCHEDULED, LOGIN)


def test_a_key_that_a_schedule_needs_is_not_called_unnecessary(admin: Admin) -> None:
    old, new = new_key(), new_key()

    async def schedule() -> None:
        settings = settings_of(admin, new_key())
        async with opened_agenda(settings) as tables:
            await book_of(settings, tables).add("remember", SCHEDULED)

    anyio.run(schedule)
    assert threads(admin, "seal", "--plain", keys=[old]).exit_code == 1
    done = threads(admin, "seal", keys=[new, old])
    assert done.exit_code == 1 and "Not needed" not in done.stdout
    assert "schedule 'remember' cannot be sealed again" in done.stderr
    assert "schedules remove remember" in done.stderr


def test_a_schedule_of_a_user_whose_key_is_lost_is_removed_as_the_error_says(admin: Admin) -> None:
    new = new_key()

    async def schedule() -> None:
        async with opened_agenda(settings_of(admin, new_key())) as tables:
            book = book_of(settings_of(admin, new_key()), tables)
            await book.add("every day", replace(SCHEDULED, principal="alice"))

    anyio.run(schedule)
    refused = threads(admin, "seal", "--plain", keys=[new])
    assert "schedules remove 'every day' --principal NAME`, where NAME is the user" in (
        " ".join(refused.stderr.split())
    )


def test_every_command_works_on_an_encrypted_journal(admin: Admin, tmp_path: Path) -> None:
    key = new_key()
    assert threads(admin, "seal", "--plain", keys=[key]).exit_code == 0
    file = tmp_path / "notes.jsonl"
    for args in (
        ["fork", "notes", "--to", "copy"],
        ["export", "notes", str(file)],
        ["import", str(file), "--as", "again"],
        ["prune", "notes", "--keep-latest", "1"],
        ["delete", "notes", "--yes"],
    ):
        done = threads(admin, *args, keys=[key])
        assert done.exit_code == 0, done.output
        assert (f"{file} is not: it holds the thread in plain text" in done.stderr) == (
            args[0] == "export"
        )
    assert "xyzzy" in file.read_text(encoding="utf-8")
    assert b"xyzzy" not in on_disk(admin)
    told = threads(admin, "show", "again", "--transcript", keys=[key]).stdout
    assert SECRET in told
    assert told.replace("again", "copy") == (
        threads(admin, "show", "copy", "--transcript", keys=[key]).stdout
    )


def test_sealing_needs_a_key_and_a_journal(admin: Admin, tmp_path: Path) -> None:
    done = threads(admin, "seal", "--plain")
    assert done.exit_code == 2
    assert "no journal key is set" in done.stderr and "threads new-key" in done.stderr
    nowhere = Admin(tmp_path / "nowhere", admin.root)
    done = threads(nowhere, "seal", keys=[new_key()])
    assert done.exit_code == 1 and "there is no journal" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_nothing_is_sealed_while_somebody_uses_the_journal(admin: Admin) -> None:
    key, before = new_key(), transcript(admin)
    with StateDir.open(admin.state).claim():
        for args in (["seal", "--plain"], ["unseal", "--yes"]):
            done = threads(admin, *args, keys=[key])
            assert done.exit_code == 1
            assert "uses the state directory" in done.stderr and "Stop the server" in done.stderr
        assert transcript(admin) == before
    assert threads(admin, "seal", "--plain", keys=[key]).exit_code == 0


def test_nobody_begins_to_use_a_journal_that_is_being_sealed(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.settings.state_dir.ALONE_SECONDS", 0.05)
    with StateDir.open(admin.state).alone():
        done = threads(admin, "list")
        assert done.exit_code == 1 and "being sealed or unsealed" in done.stderr
        served = serve(admin)
        assert served.returncode == 2 and "being sealed or unsealed" in served.stderr
    assert threads(admin, "list").exit_code == 0


def serve(admin: Admin, *flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Serve a client that says nothing."""
    home = admin.state.parent
    where = ["--state-dir", str(admin.state), "--root", str(home / "root")]
    command = [sys.executable, "-m", "deep_agent_mcp", "serve", *where, *flags]
    return run(command, environment(home, **environ), home)


def test_a_server_starts_only_with_a_key_that_fits(admin: Admin, tmp_path: Path) -> None:
    key, other = new_key(), new_key()
    refused = serve(admin, DEEP_AGENT_JOURNAL_KEY=key)
    assert refused.returncode == 2 and "threads seal --plain" in refused.stderr
    assert threads(admin, "seal", "--plain", keys=[key]).exit_code == 0
    file = str(key_file(tmp_path, key))
    assert serve(admin, "--journal-key-file", file).returncode == 0
    assert serve(admin, DEEP_AGENT_JOURNAL_KEY_FILE=file).returncode == 0
    assert serve(admin, DEEP_AGENT_JOURNAL_KEY=f"{other},{key}").returncode == 0
    for environ, words in (
        ({}, "this journal is encrypted, and no key was given"),
        ({"DEEP_AGENT_JOURNAL_KEY": other}, f"sealed with key {key_id(key)}"),
    ):
        refused = serve(admin, **environ)
        assert refused.returncode == 2 and words in refused.stderr
        assert "Traceback" not in refused.stderr
        assert key not in refused.stderr and other not in refused.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX")
def test_a_key_file_that_others_can_read_is_refused(admin: Admin) -> None:
    path = key_file(admin.state.parent, new_key())
    path.chmod(0o640)
    done = admin.threads("--journal-key-file", str(path), "list")
    assert done.exit_code == 2
    assert "mode 0640" in done.stderr and f"chmod 600 {shlex.quote(str(path))}" in done.stderr
