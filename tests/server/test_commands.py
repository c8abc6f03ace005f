"""`--execute`: commands over the root, for clients and for delegated agents; off by default."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from mcp import Client

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.shell import BubblewrapExecutionPolicy, DockerExecutionPolicy
from deep_agent_mcp.harness.shell.jobs import JobLimits
from deep_agent_mcp.server.agents.commands import _job_limits, _policy, commands_of, files_of
from deep_agent_mcp.server.app import built_agent, create_app
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import CommandSettings, Settings, SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import Setup, call, connected, text_of
from tests.server.test_face import served
from tests.shell.support import need_bubblewrap

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    need_bubblewrap()
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def settings(root: Path, **flags: object) -> Settings:
    given = {"root": str(root), "state_dir": str(root.parent / "state"), **flags}
    return load_settings(given, {})


def test_commands_are_off_unless_somebody_says_in_what_they_run(root: Path) -> None:
    assert "execute" not in built_agent(settings(root)).tools
    assert {"execute", "job"} <= set(built_agent(settings(root, execute="bubblewrap")).tools)


def test_it_comes_from_flag_environment_or_file(tmp_path: Path) -> None:
    variables = {"DEEP_AGENT_EXECUTE": "Docker", "DEEP_AGENT_ALLOW_NETWORK": "true"}
    read = load_settings({}, variables)
    assert (read.execute, read.allow_network) == ("docker", True)
    config = tmp_path / "config.toml"
    config.write_text('execute = "host"\n')
    read = load_settings({}, {}, config=config)
    assert (read.execute, read.allow_network) == ("host", False)
    with pytest.raises(SettingsError, match="'off', 'bubblewrap', 'docker' or 'host'"):
        load_settings({"execute": "yes"}, {})


def test_the_network_is_marked(root: Path) -> None:
    for allowed in (False, True):
        agent = built_agent(settings(root, execute="bubblewrap", allow_network=allowed))
        assert agent.tools["execute"].open_world == allowed
        assert agent.tools["execute"].destructive


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--execute", "bubblewrap"],
            "--execute bubblewrap is not possible: bubblewrap (bwrap) is",
        ),
        (["--execute", "docker"], "--execute docker is not possible: docker is not installed"),
    ],
)
def test_what_is_not_possible_stops_the_start(
    root: Path, flags: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(root))  # where nothing is installed
    given = ["--state-dir", str(root.parent / "state")]
    done = CliRunner().invoke(cli, ["serve", *given, "--root", str(root), *flags])
    assert done.exit_code == 2, done.output
    assert words in done.output
    assert "Nothing was started" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("execute", ["bubblewrap", "docker", "host"])
def test_commands_without_a_root_stop_the_start_and_say_what_to_give(
    tmp_path: Path, execute: str
) -> None:
    given = ["--state-dir", str(tmp_path / "state"), "--execute", execute]
    done = CliRunner().invoke(cli, ["serve", *given])
    assert done.exit_code == 2, done.output
    assert f"--execute {execute} needs --root DIR" in done.output
    assert "Nothing was started" in done.output


def test_a_journal_inside_the_root_stops_the_start(root: Path) -> None:
    flags = ["--root", str(root), "--state-dir", str(root / "state"), "--execute", "bubblewrap"]
    done = CliRunner().invoke(cli, ["serve", *flags])
    assert done.exit_code == 2
    assert "commands could read the journal" in done.output


@pytest.mark.parametrize("way", ["itself", "a link to it", "a link from it", "the config"])
def test_rules_that_commands_could_change_stop_the_start(
    root: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = root / "rules.toml", root.parent / "rules.toml"
    if way == "the config":
        monkeypatch.setattr(
            "deep_agent_mcp.server.settings.protected_paths.default_config_file",
            lambda: root / "config.toml",
        )
        inside = outside
    real = outside if way == "a link from it" else inside
    real.write_text('[[rule]]\naction = "deny"\npath = "**/.env"\n')
    given = inside
    if way == "a link to it":
        outside.symlink_to(inside)
        given = outside
    elif way == "a link from it":
        inside.symlink_to(outside)
    flags = ["--root", str(root), "--state-dir", str(root.parent / "state")]
    flags += ["--execute", "bubblewrap", "--policy", str(given)]
    done = CliRunner().invoke(cli, ["serve", *flags])
    assert done.exit_code == 2, done.output
    followed = way != "a link from it"
    words = "commands could change what restricts them" if followed else "may not lead out"
    assert words in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    "way", ["--config", "DEEP_AGENT_CONFIG", "key", "tls", "a link further up"]
)
def test_files_of_the_server_in_the_root_stop_the_start(
    root: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "deep").mkdir()
    file = root / "deep" / "file"
    file.touch(mode=0o600)
    flags = ["--root", str(root), "--state-dir", str(root.parent / "state")]
    words = "commands could change what restricts them: the configuration"
    if way == "--config":
        flags += ["--config", str(file)]
    elif way == "DEEP_AGENT_CONFIG":
        monkeypatch.setenv("DEEP_AGENT_CONFIG", str(file))
    elif way == "key":
        file.write_text(Keyring.generate())
        flags += ["--journal-key-file", str(file)]
        words = "commands could read secrets: the journal's key"
    elif way == "tls":
        flags += ["--tls-cert", str(file), "--tls-key", str(file)]
        words = "commands could read secrets: the private key"
    else:  # who replaces the link chooses the rules
        (root.parent / "rules").mkdir()
        (root.parent / "rules" / "file").write_text("")
        (root / "link").symlink_to(root.parent / "rules")
        flags += ["--policy", str(root / "link" / "file")]
        words = "may not lead out, and this one was not followed"
    done = CliRunner().invoke(cli, ["serve", *flags, "--execute", "bubblewrap"])
    assert done.exit_code == 2, done.output
    assert words in done.output
    assert "Nothing was started" in done.output


async def test_commands_cannot_rewrite_what_agents_are_told(root: Path) -> None:
    (root / "AGENTS.md").write_text("told")
    for name in ("agents", "skills", "profiles"):
        (root / name).mkdir()
    flags: dict[str, Any] = {
        "root": str(root),
        "execute": "bubblewrap",
        "memory": (str(root / "AGENTS.md"),),
        "agents": str(root / "agents"),
        "skills": (str(root / "skills"),),
        "profiles": (str(root / "profiles"),),
    }
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        ran = await call(
            client,
            "execute",
            command="echo x >AGENTS.md; rm -f AGENTS.md; for d in agents skills profiles; do "
            "touch $d/new; mv $d other; done; cat AGENTS.md; touch fine",
        )
    assert ran["exit_code"] == 0
    assert (root / "AGENTS.md").read_text() == "told"
    assert sorted(one.name for one in root.rglob("*")) == [
        "AGENTS.md", "agents", "fine", "profiles", "skills",
    ]  # fmt: skip


def test_bounds_are_those_of_the_library_unless_somebody_says_otherwise(root: Path) -> None:
    made = _policy(settings(root, execute="bubblewrap"))
    assert made == BubblewrapExecutionPolicy()
    assert _job_limits(CommandSettings()) == JobLimits()
    assert "job" not in built_agent(_bounded(root, jobs=0)).tools
    in_docker = _policy(settings(root, execute="docker"))
    assert isinstance(in_docker, DockerExecutionPolicy)
    assert (in_docker.memory_bytes, in_docker.max_processes) == (4 << 30, 1_024)


async def test_the_operator_bounds_what_commands_take(root: Path) -> None:
    config = root.parent / "config.toml"
    config.write_text(
        """
        execute = "bubblewrap"
        [commands]
        seconds = 0.5
        max_seconds = 100
        cpu_seconds = 1
        memory_bytes = 67_108_864
        processes = 12
        output_bytes = 1_024
        kept_bytes = 2_048
        jobs = 1
        job_seconds = 1
        job_output_bytes = 1_024
        """
    )
    given = {"root": str(root), "state_dir": str(root.parent / "state")}
    said: dict[str, str] = {}
    async with (
        create_app(load_settings(given, {}, config=config)) as app,
        Client(app.server) as client,
    ):

        async def run(command: str, **options: Any) -> None:
            done = await client.call_tool("execute", {"command": command, **options})
            said[command] = text_of(done)

        async with anyio.create_task_group() as group:
            group.start_soon(run, "sleep 1000")
            for command in (SPIN, FILL, FORK, FLOOD):
                group.start_soon(partial(run, command, timeout=100))
        begun = await call(client, "execute", command=f"{FLOOD}; sleep 1000", background=True)
        its: dict[str, Any] = {"thread_id": begun["thread_id"], "job_id": begun["job_id"]}
        job = text_of(await client.call_tool("job", {"action": "wait", **its}))
        beginning = await call(client, "job", action="output", offset=0, limit=32_000, **its)
    assert (
        "The command was stopped after" in said["sleep 1000"]
    )  # half a second, and what it waited
    assert "exit code 137" in said[SPIN]
    assert "may use 1 s of CPU time" in said[SPIN]
    assert "more than 64 MiB of memory" in said[FILL]
    assert "more than 12 processes" in said[FORK]
    assert "the first 2 KiB are in /large_tool_results/" in said[FLOOD]
    assert len(said[FLOOD]) < 1_500
    assert "the longest a job may run" in job
    assert "bytes left out" in beginning["output"]


SPIN = "while :; do :; done"
FILL = "head -c 200M /dev/zero | tail"
FORK = "for i in $(seq 30); do sleep 1000 & done; wait"
FLOOD = "yes | head -c 50000"


def _bounded(root: Path, **bounds: object) -> Settings:
    variables = {f"DEEP_AGENT_COMMANDS_{name.upper()}": str(one) for name, one in bounds.items()}
    given = {"root": str(root), "state_dir": str(root.parent / "state"), "execute": "bubblewrap"}
    return load_settings(given, variables)


def test_a_network_as_root_is_warned_of(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.agents.commands._as_root", lambda: False)
    given = settings(root, execute="bubblewrap", allow_network=True)
    commands_of(given, files_of(given))
    assert not caplog.records
    monkeypatch.setattr("deep_agent_mcp.server.agents.commands._as_root", lambda: True)
    commands_of(given, files_of(given))
    assert "--allow-network as root" in caplog.text


async def test_clients_drive_commands_where_they_are_on(root: Path) -> None:
    flags: dict[str, Any] = {"root": str(root), "execute": "bubblewrap"}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        hints = listed["execute"].annotations
        assert hints is not None
        assert (hints.destructive_hint, hints.open_world_hint) == (True, False)
        wrote = await call(client, "write_file", path="/workspace/a.txt", content="text\n")
        ran = await call(
            client, "execute", command="cat a.txt; echo x >b", thread_id=wrote["thread_id"]
        )
        assert (ran["output"], ran["exit_code"]) == ("text\n", 0)
        assert (root / "b").read_text() == "x\n"
        begun = await call(
            client, "execute", command="echo job", background=True, thread_id=wrote["thread_id"]
        )
        ended = await call(
            client,
            "job",
            action="wait",
            job_id=begun["job_id"],
            thread_id=wrote["thread_id"],
        )
        assert ended["output"] == "job\n"
        assert list((root.parent / "state" / "jobs").glob("job_*.out"))
        assert await skills_of(client) >= {"writing-tests", "planning-with-todos"}
    async with served(root.parent, root=str(root)) as app, Client(app.server) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert not {"execute", "job"} & set(listed)
        seen = await skills_of(client)
        assert "planning-with-todos" in seen and "writing-tests" not in seen


async def skills_of(client: Client) -> set[str]:
    """Return the skills of the list, which the tool, prompts and resources have too."""
    prompts = {one.name for one in (await client.list_prompts()).prompts}
    found = {one.uri.split("/")[2] for one in (await client.list_resources()).resources
             if one.uri.startswith("skill://")}  # fmt: skip
    assert found - {"index.json"} <= prompts
    told = text_of(await client.call_tool("skill", {}))
    assert all(f"- {one}: " in told for one in found - {"index.json"})
    return found


async def test_a_delegated_agent_runs_commands_under_the_policy_of_the_server(root: Path) -> None:
    (root / "secret").write_text("hidden")
    rules = root.parent / "rules.toml"
    rules.write_text('[[rule]]\naction = "deny"\npath = "/workspace/secret"\n')
    command = "cat secret; id -u >made; cat /proc/1/environ | tr '\\0' '\\n'"
    script = {
        "runs": [
            {
                "match": "look",
                "agents": {
                    "main": [
                        {"tool_calls": [{"name": "execute", "args": {"command": command}}]},
                        {"text": "Looked."},
                    ]
                },
            }
        ]
    }
    setup = Setup(
        root.parent,
        flags=["--policy", str(rules), "--execute", "bubblewrap"],
        env={"DEEP_AGENT_WAIT_BUDGET": "30", "ANTHROPIC_API_KEY": "secret-key"},
        script=script,
    )
    with anyio.fail_after(60), setup.serving() as server:
        async with connected(server.target("http"), "auto") as client:
            done = await call(client, "task", goal="look")
            assert done["status"] == "done", json.dumps(done)
            uri = f"thread://{done['thread_id']}/transcript"
            (content,) = (await client.read_resource(uri)).contents
            text = content.text  # type: ignore[union-attr]
    assert (root / "made").exists()
    assert "exit code 0" in text
    assert "hidden" not in text
    assert "secret-key" not in text
