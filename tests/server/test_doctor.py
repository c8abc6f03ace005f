"""`deep-agent-mcp doctor`: real servers, real sandboxes, and things broken on purpose."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from deep_agent_mcp.harness.checkpoint.sqlite.migrations import VERSION
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.server.cli.install import INSTALLABLE
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.doctor import Finding, Handshake, Report, examine_live_model
from deep_agent_mcp.server.doctor.environment import (
    examine_files,
    examine_key,
    examine_packages,
    examine_port,
    examine_sandbox,
    examine_search,
    wrong_versions,
)
from deep_agent_mcp.server.doctor.findings import (
    KNOWN_CLIENTS,
    KnownClient,
    broken,
    examine_entries,
)
from deep_agent_mcp.server.doctor.handshakes import server_command, shake_hands
from deep_agent_mcp.server.doctor.state import examine_journal, examine_state
from deep_agent_mcp.server.install.machine import Machine
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from tests import fork_server
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.ports_and_waits import free_port, growing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="modes of files, and terminals"),
]

KEY = "sk-ant-secret-of-the-test"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own; no variable leads to the real one, and there is no key."""
    home = tmp_path / "home"
    home.mkdir()
    for name in list(os.environ):
        if name.startswith(("XDG_", "ANTHROPIC_", "DEEP_AGENT_", "CODEX_", "CLAUDE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes its time, and the speed of a start is judged in a test of its own."""
    for name in ("LATE_SECONDS", "GIVE_UP_SECONDS"):
        monkeypatch.setattr(f"deep_agent_mcp.server.doctor.handshakes.{name}", 150.0)


def settings(**values: Any) -> Settings:
    return load_settings(values, {})


def only(findings: Any) -> Finding:
    (found,) = list(findings)
    return found


def fixed(found: Finding, status: str, words: str) -> None:
    """Check a finding that needs something done, and that it says what."""
    assert found.status == status, found
    assert words in found.text
    assert found.fix.endswith((".", "?")), found


# --- handshakes ------------------------------------------------------------------------------


def test_every_client_one_can_install_into_is_known() -> None:
    assert set(KNOWN_CLIENTS) == set(INSTALLABLE)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start servers for handshakes without importing everything again."""

    def command(*given: Any) -> list[str]:
        python, isolated, *words = server_command(*given)
        assert isolated == "-P"
        return fork_server.stand_in([python, *words], {})

    monkeypatch.setattr("deep_agent_mcp.server.doctor.handshakes.server_command", command)


@pytest.mark.usefixtures("patient", "forked")
@pytest.mark.parametrize("name", INSTALLABLE)
async def test_the_real_server_satisfies_each_client(name: str, home: Path) -> None:
    client = KNOWN_CLIENTS[name]
    made = await shake_hands(client, ["--root", str(home)], settings(root=home), "deep-agent")
    assert made.problems == []
    assert made.tools >= 14
    assert made.seconds is not None
    approvals = "asks its user for approvals itself"
    assert (approvals in made.does) == ("elicitation" in client.capabilities)
    assert not (home / ".local").exists()  # no state of the user's was touched
    assert list(home.iterdir()) == []


@pytest.mark.usefixtures("patient", "forked")
async def test_what_a_client_cannot_bear_is_said_with_what_to_do(home: Path) -> None:
    client = KNOWN_CLIENTS["opencode"]
    options = ["--wait-budget", "90"]
    made = await shake_hands(client, options, settings(wait_budget=90), "n" * 60)
    texts = dict(made.problems)
    longest = next(text for text in texts if "characters" in text)
    assert "--name" in texts[longest]
    patience = next(text for text in texts if "90 s" in text)
    assert "--wait-budget below 60" in texts[patience]
    assert made.status == "broken"


@pytest.mark.usefixtures("patient", "forked")
async def test_a_server_that_does_not_start_is_quoted(home: Path) -> None:
    made = await shake_hands(
        KNOWN_CLIENTS["codex"], ["--root", str(home / "no")], settings(), "deep-agent"
    )
    ((text, fix),) = made.problems
    assert "not an existing directory" in text
    assert fix


def _fake_server(home: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    script = home / "fake.py"
    script.write_text("import sys, json, time\n" + code)
    monkeypatch.setattr(
        "deep_agent_mcp.server.doctor.handshakes.server_command",
        lambda *_: [sys.executable, str(script)],
    )


ANSWERS = """
for line in sys.stdin:
    asked = json.loads(line)
    if 'id' not in asked: continue
    result = RESULTS.get(asked['method'], {})
    print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': result}), flush=True)
"""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('hello')\ntime.sleep(600)\n", "something else than a message: 'hello'"),
        ("sys.stderr.write('no luck'); sys.exit(3)\n", "ended before it answered"),
        (
            "RESULTS = {'initialize': {'protocolVersion': '2024-11-05'}}" + ANSWERS,
            "the server speaks ['2024-11-05'], not 2025-06-18",
        ),
        (
            "RESULTS = {'initialize': {'protocolVersion': '2025-06-18'}, 'tools/list': "
            "{'tools': [{'name': 'threads'}]}, 'tools/call': "
            "{'content': [{'type': 'text', 'text': 'x'}]}}" + ANSWERS,
            "the result of `threads` came without structured content",
        ),
        (
            "RESULTS = {'initialize': {'protocolVersion': '2025-06-18'}, 'tools/list': "
            "{'tools': [{'name': 'threads'}]}, 'tools/call': {'structuredContent': "
            "{'a': 'x' * 20000}, 'content': [{'type': 'text', 'text': 'x'}]}}" + ANSWERS,
            "would be cut",
        ),
        ("RESULTS = {'tools/list': {'tools': []}}" + ANSWERS, "there are no tools"),
    ],
)
async def test_servers_that_break_the_protocol_are_found_out(
    code: str, words: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_server(home, monkeypatch, code)
    made = await shake_hands(KNOWN_CLIENTS["codex"], [], settings(), "deep-agent")
    assert any(words in text for text, _ in made.problems), made.problems


@pytest.mark.usefixtures("patient", "forked")
async def test_what_a_policy_denies_is_no_fault_of_the_server(home: Path) -> None:
    rules = home / "rules.toml"
    rules.write_text('[[rule]]\naction = "deny"\ntool = "skill"\nreason = "keep out"\n')
    options = ["--policy", str(rules)]
    made = await shake_hands(
        KNOWN_CLIENTS["vscode"], options, settings(policy=(rules,)), "deep-agent"
    )
    assert made.problems == []
    assert any("`skill` answered with an error" in one for one in made.notes)


async def test_a_server_that_says_nothing_is_given_up_and_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    _fake_server(home, monkeypatch, code)
    monkeypatch.setattr("deep_agent_mcp.server.doctor.wire.END_SECONDS", 0.1)
    for seconds in growing(0.5):
        monkeypatch.setattr("deep_agent_mcp.server.doctor.handshakes.GIVE_UP_SECONDS", seconds)
        made = await shake_hands(KNOWN_CLIENTS["codex"], [], settings(), "deep-agent")
        if (home / "pid").exists() and (home / "pid").read_text():
            break
    assert "not done within" in made.problems[0][0]
    with pytest.raises(ProcessLookupError):
        os.kill(int((home / "pid").read_text()), 0)


def test_a_slow_answer_is_a_note_and_a_late_one_breaks_it() -> None:
    from deep_agent_mcp.server.doctor.handshakes import judge_speed

    for seconds, status in ((1.0, "ok"), (3.0, "note"), (11.0, "broken")):
        made = Handshake(KNOWN_CLIENTS["codex"], seconds)
        judge_speed(made)
        assert made.status == status


def test_instructions_longer_than_a_client_keeps_are_noted() -> None:
    from deep_agent_mcp.server.doctor.handshakes import judge_instructions

    made = Handshake(KNOWN_CLIENTS["claude-code"])
    judge_instructions(made, "x" * 2_048)
    assert made.status == "ok"
    judge_instructions(made, "x" * 2_049)
    assert made.notes == ["instructions are cut at 2,048 of 2,049 characters"]


def test_too_many_tools_are_noted() -> None:
    from deep_agent_mcp.server.doctor.handshakes import judge_names

    client: KnownClient = KNOWN_CLIENTS["cursor"]
    made = Handshake(client)
    judge_names(made, [f"t{number}" for number in range(41)], "deep-agent")
    assert "41 tools" in made.notes[0]


# --- the machine -----------------------------------------------------------------------------


def test_packages_are_there_in_versions_that_fit() -> None:
    assert {one.status for one in examine_packages()} <= {"ok", "note"}


@pytest.mark.parametrize(
    ("required", "wrong"),
    [
        ("click>=8.1", []),
        ("click>=99", ["click"]),
        ("click<8,>=7", ["click"]),
        ("no-such-package>=1", ["no-such-package is not installed"]),
        ("no-such-package>=1; extra == 'x'", []),
        ("no-such-package; sys_platform == 'elsewhere'", []),
        (f"no-such-package; sys_platform == '{sys.platform}'", ["no-such-package"]),
        ("click", []),
    ],
)
def test_bounds_of_packages_are_kept(required: str, wrong: list[str]) -> None:
    found = list(wrong_versions([required]))
    assert len(found) == len(wrong)
    assert all(said.startswith(word) for said, word in zip(found, wrong, strict=True))


def test_a_missing_state_directory_will_be_made(home: Path) -> None:
    found = only(examine_state(settings(state_dir=home / "a" / "b")))
    assert found.status == "ok"
    assert not (home / "a").exists()


def test_a_state_directory_open_to_others_is_broken(home: Path) -> None:
    state = home / "state"
    state.mkdir(mode=0o755)
    found = only(examine_state(settings(state_dir=state)))
    fixed(found, "broken", "0755")
    assert f"chmod 700 {state}" in found.fix
    state.chmod(0o700)
    assert only(examine_state(settings(state_dir=state))).status == "ok"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_state_directory_without_permission_is_broken(home: Path) -> None:
    state = home / "state"
    state.mkdir(mode=0o500)
    fixed(only(examine_state(settings(state_dir=state))), "broken", "cannot be written")


async def _journal(home: Path) -> Path:
    from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer

    state = home / "state"
    state.mkdir(mode=0o700)
    async with SqliteCheckpointer(state / "journal.sqlite3"):
        pass
    return state


async def test_a_journal_is_opened_and_not_changed(home: Path) -> None:
    state = await _journal(home)
    before = (state / "journal.sqlite3").read_bytes()
    (found,) = await examine_journal(settings(state_dir=state))
    assert (state / "journal.sqlite3").read_bytes() == before
    assert found.status == "ok"
    assert f"version is {VERSION}" in found.text


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [(VERSION + 1, "broken", "this server knows"), (1, "note", "becomes")],
)
async def test_journals_of_other_versions(
    version: int, status: str, words: str, home: Path
) -> None:
    state = await _journal(home)
    with sqlite3.connect(state / "journal.sqlite3") as database:
        database.execute(f"PRAGMA user_version = {version}")
    database.close()
    (found,) = await examine_journal(settings(state_dir=state))
    assert found.status == status
    assert words in found.text


async def test_a_damaged_journal_is_broken(home: Path) -> None:
    state = home / "state"
    state.mkdir(mode=0o700)
    (state / "journal.sqlite3").write_bytes(b"no database" * 100)
    fixed((await examine_journal(settings(state_dir=state)))[0], "broken", "cannot be read")


async def test_an_encrypted_journal_without_its_key_is_broken(home: Path) -> None:
    from deep_agent_mcp.harness.checkpoint.keyring import Keyring
    from deep_agent_mcp.server.settings.state_dir import StateDir
    from deep_agent_mcp.server.threads.journals import open_journal

    state = home / "state"
    sealed = settings(state_dir=state, journal_key=Keyring.generate())
    async with open_journal(sealed, StateDir.open(state)) as journal:
        agent = create_deep_agent(ScriptedModel([{"text": "Hello."}]), checkpointer=journal)
        await agent.ainvoke("Hello?", thread_id="one")
    assert (await examine_journal(sealed))[0].status == "ok"
    (found,) = await examine_journal(settings(state_dir=state))
    fixed(found, "broken", "encrypted")


def test_a_missing_key_is_a_note_and_a_key_is_never_shown(home: Path) -> None:
    found = only(examine_key(settings(), {}))
    fixed(found, "note", "no key is set here. `task` works only in clients that offer")
    assert "ANTHROPIC_API_KEY" in found.fix
    found = only(examine_key(settings(), {"ANTHROPIC_API_KEY": KEY}))
    assert found.status == "ok"
    assert KEY not in found.text


def test_a_model_named_without_a_key_is_not_replaced_by_the_clients(home: Path) -> None:
    found = only(examine_key(settings(model="anthropic:claude-sonnet-5-5"), {}))
    fixed(found, "note", "no key is set here. `task` fails")


def test_a_script_that_is_not_there_is_broken(home: Path) -> None:
    fixed(only(examine_key(settings(model="scripted:/no"), {})), "broken", "no such script")


def test_the_sandbox_is_really_tried(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = only(examine_sandbox(settings(execute="bubblewrap")))
    if shutil.which("bwrap") is None:
        pytest.skip("there is no bubblewrap")
    assert found.text == "bubblewrap works"
    monkeypatch.setenv("PATH", str(home))
    fixed(only(examine_sandbox(settings(execute="bubblewrap"))), "broken", "not installed")
    assert only(examine_sandbox(settings())).status == "note"  # commands are off anyway
    fixed(only(examine_sandbox(settings(execute="host"))), "note", "all your rights")
    fixed(only(examine_sandbox(settings(execute="docker"))), "broken", "not installed")


def test_a_sandbox_that_fails_is_broken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "docker"
    program.write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    fixed(only(examine_sandbox(settings(execute="docker"))), "broken", "no daemon")


def test_search_without_ripgrep_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(examine_search()).status in ("ok", "note")
    monkeypatch.setattr("deep_agent_mcp.harness.backends.ripgrep.find_ripgrep", lambda: None)
    fixed(only(examine_search()), "note", "no ripgrep")


def test_files_that_are_not_valid_are_named(home: Path) -> None:
    assert only(examine_files(settings())).status == "ok"
    skills, agents = home / "skills", home / "agents"
    (skills / "bad").mkdir(parents=True)
    agents.mkdir()
    (skills / "bad/SKILL.md").write_text("---\nname: bad\ndescription: [\n---\n")
    (agents / "odd.md").write_text("no frontmatter")
    found = list(examine_files(settings(skills=(skills,), agents=agents)))
    assert len(found) == 2
    for one, name in zip(found, ("SKILL.md", "odd.md"), strict=True):
        fixed(one, "broken", name)


def test_a_port_that_is_taken_matters_only_to_http(home: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert only(examine_port(settings(port=port))).status == "note"
        found = only(examine_port(settings(port=port, transport="http")))
        fixed(found, "broken", str(port))
    assert only(examine_port(settings(port=port))).status == "ok"


def test_entries_that_start_nothing_are_broken(home: Path) -> None:
    machine = Machine.here()
    fixed(only(examine_entries(machine, "deep-agent", frozenset({"cursor"}))), "note", "no client")
    done = CliRunner().invoke(cli, ["install", "cursor"])
    assert done.exit_code == 0, done.output
    path = home / ".cursor/mcp.json"
    assert only(examine_entries(machine, "deep-agent", frozenset({"cursor"}))).status == "ok"
    text = path.read_text()
    command = json.loads(text)["mcpServers"]["deep-agent"]["command"]
    path.write_text(text.replace(command, "/gone/deep-agent-mcp"))
    found = only(examine_entries(machine, "deep-agent", frozenset({"cursor"})))
    fixed(found, "broken", "/gone/deep-agent-mcp")
    path.write_text(text.replace("${env:ANTHROPIC_API_KEY}", KEY))
    path.chmod(0o644)
    found = only(examine_entries(machine, "deep-agent", frozenset({"cursor"})))
    fixed(found, "broken", "other users")
    assert KEY not in found.text
    path.write_text("{")
    found, _ = examine_entries(machine, "deep-agent", frozenset({"cursor"}))
    fixed(found, "note", "line 1")


async def test_the_model_is_called_only_when_asked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeAnthropic([Answer(text="ready")]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        assert only(examine_key(settings(), os.environ)).status == "ok"
        assert api.requests == []
        found = await examine_live_model(settings())
        assert found.status == "ok"
        assert len(api.requests) == 1
        assert api.requests[0]["max_tokens"] <= 16


async def test_a_model_that_cannot_be_called_is_broken(home: Path) -> None:
    fixed(await examine_live_model(settings()), "broken", "ANTHROPIC_API_KEY")


# --- the command -----------------------------------------------------------------------------


PATIENT = """
from deep_agent_mcp.server.cli.main import main
from deep_agent_mcp.server.doctor import handshakes
from tests.fork_server import stand_in
handshakes.LATE_SECONDS = handshakes.GIVE_UP_SECONDS = 150.0
full = handshakes.server_command

def command(*given):
    python, isolated, *words = full(*given)
    return stand_in([python, *words], {})

handshakes.server_command = command
main()
"""
"""The command, with time for a busy machine, and servers that need not import everything."""
DOCTOR = [sys.executable, "-c", PATIENT, "doctor"]


def doctor(home: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    forks = {fork_server.PLACE: os.environ[fork_server.PLACE]}
    return fork_server.run(
        [*DOCTOR, *args], fork_server.environment(home, **forks, **environ), home
    )


@pytest.fixture
def script(home: Path) -> Iterator[str]:
    path = home / "script.yaml"
    path.write_text(yaml.safe_dump({"agents": {"*": [{"text": "ready"}]}}))
    yield f"scripted:{path}"


def test_all_is_well_and_said_as_json(home: Path, script: str) -> None:
    done = doctor(home, "--client", "gemini", "--json", "--live", "--", "--model", script)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["ok"] is True
    about = {one["about"]: one["status"] for one in said["findings"]}
    assert about["live model"] == "ok"
    assert about["model"] == "ok"
    (client,) = said["clients"]
    assert client["client"] == "gemini"
    assert client["protocol"] == "2025-06-18"


def test_what_is_broken_is_said_in_plain_lines_and_by_the_exit_code(home: Path) -> None:
    args = ("--client", "codex", "--", "--model", "scripted:/no")
    done = doctor(home, *args, ANTHROPIC_API_KEY=KEY)
    assert done.returncode == 1
    assert "broken model: scripted:/no: there is no such script" in done.stdout
    assert "fix: Correct --model" in done.stdout
    assert "Broken: 1." in done.stdout
    assert "\x1b[" not in done.stdout  # no terminal
    assert "Codex: 2025-06-18; first answer" in done.stdout
    assert KEY not in done.stdout + done.stderr


def _commands() -> str:
    """Return the command lines of all processes."""
    lines: list[str] = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may have ended meanwhile
            lines.append(one.read_text(errors="replace"))
    return "\n".join(lines)


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """Children of a shell's background job ignore SIGINT, and hand that on to theirs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_interrupted_it_leaves_no_server_behind(home: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(home)}
    with subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "deep_agent_mcp", "doctor"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "as each client meets it" in line or "journal" in line:
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    assert str(home) not in _commands()
    assert not list(home.glob("deep-agent-doctor-*"))


def test_wrong_settings_end_the_examination(home: Path) -> None:
    done = doctor(home, "--", "--root", "/no/such")
    assert done.returncode == 1
    assert "broken settings: setting 'root'" in done.stdout
    done = doctor(home, "--", "--roott", "x")
    assert done.returncode == 2
    assert "--roott" in done.stderr


def test_no_escapes_of_others_reach_the_terminal() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system=None)
    Report(console).show(
        broken("files", "bad\x1b]0;title\x07 \udcff[red]name[/red]", "Mend\x9b it.")
    )
    assert "\x1b]" not in out.getvalue() and "\x9b" not in out.getvalue()
    assert "[red]name[/red]" in out.getvalue()


def test_at_a_terminal_it_is_coloured(home: Path) -> None:
    import pty

    parent, terminal = pty.openpty()
    try:
        env = fork_server.environment(
            home, TERM="xterm", **{fork_server.PLACE: os.environ[fork_server.PLACE]}
        )
        command = [*DOCTOR, "--", "--root", "/no/such"]
        fork_server.start(command, env, home, stdout=terminal, stderr=2).wait(60)
        shown = os.read(parent, 100_000).decode()
    finally:
        os.close(parent)
        os.close(terminal)
    assert "\x1b[" in shown
    assert "settings" in shown
