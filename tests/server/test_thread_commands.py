"""`deep-agent-mcp threads …` on a state directory in which agents have worked."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from deep_agent_mcp.harness.agent import Agent, RunOptions
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.base import REDACTED, Batch, Run, RunEvent, RunStatus
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer, connections
from deep_agent_mcp.harness.checkpoint.sqlite.connections import open_writer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import RunEnded
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.state_dir import StateDir
from deep_agent_mcp.server.threads.admin import ThreadAdmin


def write(text: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "write_file", "args": {"path": "/a.txt", "content": text}}]}


@dataclass
class Admin:
    """A state directory, a root, and the command line on both."""

    state: Path
    root: Path

    def threads(self, *args: str, **more: Any) -> Result:
        options = ["threads", "--state-dir", str(self.state), "--root", str(self.root), *args]
        return CliRunner().invoke(cli, options, **more)

    def data(self, *args: str) -> Any:
        done = self.threads(*args, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def work(self, *turns: dict[str, Any], thread_id: str, **options: Any) -> None:
        """Let an agent work on a thread until it stops."""

        async def invoke(agent: Agent) -> None:
            await agent.ainvoke("Write the file.", thread_id=thread_id)

        self.with_agent(invoke, *turns, **options)

    def with_agent(
        self, use: Callable[[Agent], Awaitable[None]], *turns: dict[str, Any], **options: Any
    ) -> None:
        async def main() -> None:
            async with SqliteCheckpointer(StateDir.open(self.state).journal) as journal:
                backend = DirectoryBackend(self.root)
                model = ScriptedModel(list(turns))
                await use(
                    create_deep_agent(model, backend=backend, checkpointer=journal, **options)
                )

        anyio.run(main)

    def store(self, run: Run) -> None:
        async def commit(agent: Agent) -> None:
            await agent.checkpointer.commit(Batch(run.thread_id, runs=[run]))

        self.with_agent(commit)


TURNS = (write("one"), write("two"), {"text": "Written."})


async def nothing(agent: Agent) -> None:
    """Leave an empty journal."""


@pytest.fixture
def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Admin:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    root = tmp_path / "root"
    root.mkdir()
    return Admin(tmp_path / "state", root)


@pytest.fixture
def written(admin: Admin) -> Admin:
    """Two files' worth of history: the file holds `one`, then `two`."""
    admin.work(*TURNS, thread_id="notes")
    assert (admin.root / "a.txt").read_text() == "two"
    return admin


def checkpoint_after(admin: Admin, author: str, place: int) -> str:
    """Return a checkpoint by who made it, the oldest first."""
    found = [one for one in admin.data("show", "notes")["checkpoints"] if one["author"] == author]
    return found[::-1][place]["checkpoint_id"]


def test_a_new_journal_has_no_threads(admin: Admin) -> None:
    admin.with_agent(nothing)
    done = admin.threads("list")
    assert (done.exit_code, done.stdout) == (0, "There are no threads yet.\n")
    assert admin.data("list") == {"threads": []}


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["show", "notes"],
        ["rewind", "notes", "x"],
        ["fork", "notes"],
        ["export", "notes"],
        ["prune", "--keep-latest", "1"],
        ["delete", "notes", "--yes"],
    ],
    ids=lambda command: command[0],
)
def test_a_directory_without_a_journal_is_a_mistake_and_nothing_is_made_in_it(
    admin: Admin, command: list[str]
) -> None:
    done = admin.threads(*command)
    assert done.exit_code == 1, done.output
    assert str(admin.state) in done.stderr and "--state-dir" in done.stderr
    assert not admin.state.exists()
    admin.state.mkdir()
    assert admin.threads(*command).exit_code == 1
    assert list(admin.state.iterdir()) == []


def test_threads_are_listed_with_their_last_run_and_page_by_page(written: Admin) -> None:
    written.work({"text": "Hello."}, thread_id="talk")
    first = written.data("list", "--limit", "1")
    assert [one["thread_id"] for one in first["threads"]] == ["talk"]
    assert first["threads"][0]["last_run"]["answer"] == "Hello."
    assert "More: --before" in written.threads("list", "--limit", "1").stderr
    rest = written.data("list", "--before", first["next_before"])
    assert [one["thread_id"] for one in rest["threads"]] == ["notes"]


def test_a_thread_stays_on_one_line_whatever_its_run_failed_of(admin: Admin) -> None:
    strict = {"expect": {"last": "Another goal."}, "text": "Done."}  # the reason is a diff
    admin.work(strict, thread_id="one")
    listed = admin.threads("list").stdout
    assert "Write the file.; " in listed
    assert len(listed.splitlines()) == 2  # the first names the columns


def test_a_thread_is_shown_with_its_history_or_its_messages(written: Admin) -> None:
    shown = written.threads("show", "notes").stdout
    assert "delegate done" in shown and "ran write_file" in shown
    told = written.threads("show", "notes", "--transcript").stdout
    assert told.startswith("# Thread notes") and "Calls `write_file`" in told


def test_an_unknown_thread_is_an_error_that_names_near_ones(written: Admin) -> None:
    for args in (["show", "note"], ["show", "note", "--transcript"], ["delete", "note", "--yes"]):
        done = written.threads(*args)
        assert done.exit_code == 1
        assert "There is no thread 'note'" in done.stderr and "Nearest: notes" in done.stderr


def test_a_rewind_puts_the_file_back_and_another_one_undoes_it(written: Admin) -> None:
    end = checkpoint_after(written, "model", -1)
    done = written.threads("rewind", "notes", checkpoint_after(written, "tools", 0))
    assert done.exit_code == 0, done.output
    assert "Files put back: /a.txt" in done.stdout
    assert (written.root / "a.txt").read_text() == "one"
    assert written.threads("rewind", "notes", end).exit_code == 0
    assert (written.root / "a.txt").read_text() == "two"


def test_a_rewind_records_no_content_that_the_agent_file_redacts(
    written: Admin, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('agent_file = "agent.toml"\n')
    (tmp_path / "agent.toml").write_text(
        '[[middleware]]\nuse = "pii"\npii_type = "email"\nstrategy = "tokenize"\n'
        "apply_to_tool_results = true\n"
    )
    (written.root / "a.txt").write_text("Mail ann@example.com")
    target = checkpoint_after(written, "tools", 0)
    options = ["--config", str(config), "rewind", "notes", target, "--force"]
    done = written.threads(*options)
    assert done.exit_code == 0, done.output
    assert (written.root / "a.txt").read_text() == "one"

    async def contents(agent: Agent) -> None:
        changes = await agent.checkpointer.file_changes("notes", 0)
        assert changes[0].before == b"Mail [REDACTED_EMAIL]"
        # It is not put back: the file would get the redacted text.
        end = (await agent.checkpointer.history("notes"))[1]
        (refused,) = await agent.checkpointer.file_changes("notes", end.seq)
        assert refused.after_digest == REDACTED

    written.with_agent(contents)
    end = checkpoint_after(written, "model", -1)
    assert "stored redacted" in written.threads("rewind", "notes", end).stderr
    assert (written.root / "a.txt").read_text() == "one"


def test_a_rewind_over_somebody_elses_change_needs_force(written: Admin) -> None:
    (written.root / "a.txt").write_text("mine")
    target = checkpoint_after(written, "tools", 0)
    done = written.threads("rewind", "notes", target)
    assert done.exit_code == 1 and "a.txt" in done.stderr
    assert (written.root / "a.txt").read_text() == "mine"
    assert written.threads("rewind", "notes", target, "--force").exit_code == 0
    assert (written.root / "a.txt").read_text() == "one"


def test_files_on_disk_are_not_forgotten_when_no_root_is_given(written: Admin) -> None:
    target = checkpoint_after(written, "tools", 0)
    before = written.data("show", "notes")
    command = ["threads", "--state-dir", str(written.state), "rewind", "notes", target]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1 and done.stdout == ""
    assert "/a.txt" in done.stderr and "--root DIR" in done.stderr
    assert "Nothing was done" in done.stderr
    assert written.data("show", "notes") == before
    forced = CliRunner().invoke(cli, [*command, "--force"])
    assert forced.exit_code == 0, forced.output
    assert "Files on disk left as they are: /a.txt." in forced.stdout
    assert "put back" not in forced.stdout
    assert (written.root / "a.txt").read_text() == "two"
    told = written.threads("show", "notes", "--transcript").stdout
    assert "one" in told and "two" not in told


def test_a_rewind_over_steps_that_changed_no_file_on_disk_needs_no_root(written: Admin) -> None:
    written.work(*TURNS, {"text": "Hello."}, thread_id="notes")
    target = checkpoint_after(written, "model", -2)
    command = ["threads", "--state-dir", str(written.state), "rewind", "notes", target]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "Files put back: none had changed." in done.stdout


def test_an_error_names_a_few_of_many_files(written: Admin) -> None:
    target = checkpoint_after(written, "tools", -1)
    calls = [
        {"name": "write_file", "args": {"path": f"/{n}.txt", "content": "x"}} for n in range(7)
    ]
    written.work(*TURNS, {"tool_calls": calls}, {"text": "All."}, thread_id="notes")
    command = ["threads", "--state-dir", str(written.state), "rewind", "notes", target]
    refused = CliRunner().invoke(cli, command).stderr
    assert "/0.txt, /1.txt, /2.txt, /3.txt, /4.txt and 2 more" in refused


def test_an_unknown_checkpoint_is_an_error_and_nothing_is_rewound(written: Admin) -> None:
    done = written.threads("rewind", "notes", "nowhere")
    assert done.exit_code == 1
    assert (
        "Thread 'notes' has no checkpoint 'nowhere'" in done.stderr
        and "threads show" in done.stderr
    )
    assert (written.root / "a.txt").read_text() == "two"


def test_a_thread_that_waits_for_an_answer_is_not_rewound_but_may_be_deleted(
    admin: Admin,
) -> None:
    admin.work(write("one"), thread_id="asks", interrupt_on={"write_file": True})
    (first,) = [
        one for one in admin.data("show", "asks")["checkpoints"] if one["author"] == "input"
    ]
    done = admin.threads("rewind", "asks", first["checkpoint_id"])
    assert done.exit_code == 1 and "needs_approval" in done.stderr
    assert admin.threads("delete", "asks", "--yes").exit_code == 0
    assert admin.data("list") == {"threads": []}


def test_a_paused_run_does_not_stand_in_the_way_and_cannot_undo_the_rewind(
    admin: Admin,
) -> None:
    async def work(agent: Agent) -> None:
        control = RunControl()
        options = RunOptions(
            control=control, emit=lambda _: control.drain(), modes=("checkpoints",)
        )
        await agent.ainvoke("Write the file.", thread_id="notes", options=options)

    admin.with_agent(work, write("one"), {"text": "Written."})
    (run,) = admin.data("show", "notes")["runs"]
    assert run["status"] == "paused"
    target = checkpoint_after(admin, "input", 0)
    done = admin.threads("rewind", "notes", target)
    assert done.exit_code == 0, done.output
    after = admin.data("show", "notes")

    async def resume(agent: Agent) -> None:
        with pytest.raises(RunEnded, match="moved on without run"):
            await agent.aresume(run["run_id"])

    admin.with_agent(resume, write("three"), {"text": "Resumed."})
    assert admin.data("show", "notes") == after
    assert not (admin.root / "a.txt").exists()
    admin.work({"text": "Otherwise."}, thread_id="notes")
    assert admin.data("show", "notes")["runs"][0]["answer"] == "Otherwise."


def test_deleting_asks_first_and_takes_all_or_none(written: Admin) -> None:
    written.work({"text": "Hello."}, thread_id="talk")
    assert written.threads("delete", "talk", input="n\n").exit_code == 1
    assert written.threads("delete", "talk", "nobody", "--yes").exit_code == 1
    assert len(written.data("list")["threads"]) == 2
    assert written.threads("delete", "talk", input="y\n").exit_code == 0
    assert [one["thread_id"] for one in written.data("list")["threads"]] == ["notes"]
    assert (written.root / "a.txt").read_text() == "two"


def test_what_a_living_server_works_on_is_not_touched(written: Admin) -> None:
    with StateDir.open(written.state).claim() as owner:
        written.store(Run("run_live", "notes", "delegate", "main", owner=owner))
        for args in (["delete", "notes", "--yes"], ["rewind", "notes", "x"]):
            done = written.threads(*args)
            assert done.exit_code == 1 and "run_live" in done.stderr
    # The server has died: its run will be continued, or may go with its thread.
    assert "running" in written.threads("rewind", "notes", "x").stderr
    assert written.threads("delete", "notes", "--yes").exit_code == 0


@pytest.mark.parametrize("status", ["queued", "cancelled"])
def test_a_run_at_work_is_seen_behind_one_that_was_begun_later(
    written: Admin, status: RunStatus
) -> None:
    with StateDir.open(written.state).claim() as owner:
        written.store(Run("run_live", "notes", "delegate", "main", owner=owner))
        written.store(Run("run_next", "notes", "delegate", "main", status, owner=owner))
        for args in (["delete", "notes", "--yes"], ["rewind", "notes", "x"]):
            done = written.threads(*args)
            assert done.exit_code == 1 and "run_live" in done.stderr


def test_a_thread_is_not_rewound_before_its_queued_run_has_ended(written: Admin) -> None:
    written.store(Run("run_next", "notes", "delegate", "main", "queued"))
    done = written.threads("rewind", "notes", "x")
    assert done.exit_code == 1 and "run run_next on notes is queued" in done.stderr


def test_the_run_at_work_is_followed_while_others_wait_behind_it(written: Admin) -> None:
    live = Run("run_live", "notes", "delegate", "main")
    written.store(live)
    for number in range(20):
        written.store(Run(f"run_{number}", "notes", "delegate", "main", "queued"))

    async def heard(agent: Agent) -> None:
        event = RunEvent(live.id, "custom", ("main",), {"word": "working"})
        await agent.checkpointer.commit(Batch("notes", events=[event]))
        settings = load_settings({"state_dir": str(written.state)}, {})
        with anyio.fail_after(30):
            async with ThreadAdmin.open(settings) as admin, aclosing(admin.follow("notes")) as all_:
                assert (await anext(all_))["word"] == "working"

    written.with_agent(heard)


def test_a_wrong_setting_is_named_with_its_source(admin: Admin) -> None:
    done = CliRunner().invoke(cli, ["threads", "--root", "/no/such/dir", "list"])
    assert done.exit_code == 2
    assert "setting 'root' = /no/such/dir (from flag --root)" in done.stderr


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/x", "redis://127.0.0.1:1"])
def test_a_database_that_is_away_is_said_in_one_sentence(url: str, tmp_path: Path) -> None:
    command = ["threads", "--state-dir", str(tmp_path), "--journal", url, "list"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1
    assert "of the journal cannot be used: " in done.stderr and "Check that it runs" in done.stderr
    assert "Is the server" not in done.stderr  # a question of libpq
    assert done.stderr.count("\n") == 1 and not done.stderr.endswith(("..\n", "?.\n"))


def test_a_fork_is_a_thread_of_its_own_that_stands_where_it_was_asked_to(written: Admin) -> None:
    target = checkpoint_after(written, "tools", 0)
    done = written.threads("fork", "notes", "--at", target, "--to", "copy")
    assert (done.exit_code, done.stdout) == (0, "copy\n"), done.output
    told = written.threads("show", "copy", "--transcript").stdout
    assert "one" in told and "two" not in told and "Written." not in told
    shown = written.threads("show", "copy").stdout
    assert "No runs." in shown and "newest first:\nCheckpoints" not in shown
    written.work({"text": "Otherwise."}, thread_id="copy")
    assert "Otherwise." not in written.threads("show", "notes", "--transcript").stdout
    assert written.threads("fork", "notes", "--to", "copy").exit_code == 1
    lost = written.threads("fork", "notes", "--at", "nowhere")
    assert (lost.exit_code, lost.stdout) == (1, "")
    assert (
        "Thread 'notes' has no checkpoint 'nowhere'. Nothing was done. Nearest: ckpt_"
        in lost.stderr
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_an_export_to_a_full_disk_is_said_and_leaves_no_file(
    written: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "notes.jsonl"
    opened = os.open

    def full(path: str, flags: int, mode: int = 0o777, **more: Any) -> int:
        if path != str(file):
            return opened(path, flags, mode, **more)
        file.touch()
        return opened("/dev/full", os.O_WRONLY)

    monkeypatch.setattr(os, "open", full)
    done = written.threads("export", "notes", str(file))
    assert done.exit_code == 1
    assert "could not be written: No space left on device. It was deleted again" in done.stderr
    assert not file.exists()


def test_an_exported_thread_can_be_imported_elsewhere(written: Admin, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    assert written.threads("export", "notes", str(file)).exit_code == 0
    again = written.threads("export", "notes", str(file))
    assert again.exit_code == 1 and "exists already. Nothing was written." in again.stderr
    assert written.threads("export", "notes").stdout == file.read_text(encoding="utf-8")
    there = Admin(tmp_path / "other", written.root)
    done = there.threads("import", str(file))
    assert (done.exit_code, done.stdout) == (0, "notes\n"), done.output
    assert there.data("show", "notes") == written.data("show", "notes")
    assert written.threads("import", str(file)).exit_code == 1
    assert written.threads("import", str(file), "--as", "again").stdout == "again\n"


def test_an_export_never_overwrites_a_file_nor_leaves_half_a_one(
    written: Admin, tmp_path: Path
) -> None:
    file = tmp_path / "kept.jsonl"
    file.write_text("mine")
    assert written.threads("export", "notes", str(file)).exit_code == 1
    assert file.read_text() == "mine"
    assert written.threads("export", "nobody", str(tmp_path / "none.jsonl")).exit_code == 1
    assert not (tmp_path / "none.jsonl").exists()


def test_what_is_no_export_is_refused_with_its_line(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    for content in (b'{"not": "an export"}\n', gzip.compress(b"an export"), "é".encode("latin-1")):
        file.write_bytes(content)
        done = admin.threads("import", str(file))
        assert done.exit_code == 1 and "line 1" in done.stderr.lower(), done.output
        assert "Nothing was imported" in done.stderr
    assert admin.data("list") == {"threads": []}


def test_pruning_keeps_the_newest_state_whole(written: Admin) -> None:
    told = written.threads("show", "notes", "--transcript").stdout
    assert written.threads("prune").exit_code == 2
    assert written.threads("prune", "notes", "--older-than", "1").stdout.endswith(": 0.\n")
    done = written.threads("prune", "notes", "--keep-latest", "1")
    assert done.exit_code == 0 and not done.stdout.endswith(": 0.\n")
    assert len(written.data("show", "notes")["checkpoints"]) == 1
    assert written.threads("show", "notes", "--transcript").stdout == told


READER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN")
print(conn.execute("SELECT count(*) FROM checkpoints").fetchone()[0], flush=True)
sys.stdin.readline()
"""


@contextmanager
def reader(journal: Path) -> Generator[None]:
    """Have another process read the journal meanwhile, in one transaction."""
    command = [sys.executable, "-c", READER, str(journal)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
        process.communicate(b"\n", timeout=60)


def test_pruning_beside_a_reader_says_how_many_went_and_that_the_log_holds_them(
    written: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = open_writer.__self__  # type: ignore[attr-defined]
    impatient = replace(kind, busy_seconds=0.2).open_writer
    monkeypatch.setattr(connections, "open_writer", impatient)
    before = len(written.data("show", "notes")["checkpoints"])
    with reader(written.state / "journal.sqlite3"):
        done = written.threads("prune", "notes", "--keep-latest", "1")
    assert done.exit_code == 1
    assert f"{before - 1} checkpoints were removed, but the journal's log" in done.stderr
    assert len(written.data("show", "notes")["checkpoints"]) == 1
    again = written.threads("prune", "notes", "--keep-latest", "1")
    assert (again.exit_code, again.stdout) == (0, "Checkpoints removed: 0.\n")


def test_prune_keeps_threads_below_a_size(written: Admin) -> None:
    before = written.data("show", "notes")["checkpoints"]
    assert written.threads("prune", "notes", "--max-size", "20M").stdout.endswith(": 0.\n")
    done = written.threads("prune", "--max-size", "1", "--yes")
    assert done.stdout == f"Checkpoints removed: {len(before) - 1}.\n"
    (left,) = written.data("show", "notes")["checkpoints"]
    assert left == before[0]
    wrong = written.threads("prune", "--max-size", "much")
    assert wrong.exit_code == 2
    assert "'much' is not a size" in wrong.output


def test_threads_are_chosen_by_status_agent_and_time(written: Admin) -> None:
    strict = {"expect": {"last": "Another goal."}, "text": "Done."}
    written.work(strict, thread_id="bad")

    def chosen(*args: str) -> list[str]:
        return [one["thread_id"] for one in written.data("list", *args)["threads"]]

    assert chosen("--status", "failed") == ["bad"]
    assert chosen("--status", "done") == ["notes"]
    assert chosen("--since", "1h", "--agent", "main") == ["bad", "notes"]
    assert chosen("--since", "2100-01-01") == []
    assert written.threads("list", "--since", "2100-01-01").stdout == "There are no such threads.\n"
    assert "'soon' is not a time" in written.threads("list", "--since", "soon").stderr


def test_pruning_all_threads_asks_first_and_says_what_would_go(written: Admin) -> None:
    before = len(written.data("show", "notes")["checkpoints"])
    would = f"Checkpoints to remove: {before - 1}, of 1 threads.\n"
    assert written.threads("prune", "--keep-latest", "1", "--dry-run").stdout == would
    refused = written.threads("prune", "--keep-latest", "1", input="n\n")
    assert refused.exit_code == 1 and refused.stdout.startswith(would)
    assert len(written.data("show", "notes")["checkpoints"]) == before
    done = written.threads("prune", "--keep-latest", "1", "--yes")
    assert done.stdout == f"Checkpoints removed: {before - 1}.\n"
