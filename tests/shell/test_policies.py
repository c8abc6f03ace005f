import os
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from shlex import quote
from shutil import which
from textwrap import dedent
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy, Mount
from deep_agent_mcp.harness.shell.docker import DockerExecutionPolicy
from deep_agent_mcp.harness.shell.policies import ExecutionPolicy, HostExecutionPolicy
from deep_agent_mcp.harness.shell.session import ShellError
from tests.shell.support import Witness, need_bubblewrap, opened, other_process, text_of

pytestmark = pytest.mark.anyio

POLICIES: list[Any] = [HostExecutionPolicy, BubblewrapExecutionPolicy, DockerExecutionPolicy]


# --- what every policy does -------------------------------------------------------------------


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("name", ["command_timeout", "max_output_lines", "idle_timeout"])
def test_bounds_that_are_none_are_refused(kind: Any, name: str) -> None:
    with pytest.raises(AgentBuildError, match=f"{name} must be more than 0; got 0"):
        kind(**{name: 0})
    with pytest.raises(AgentBuildError, match="memory_bytes must be more than 0"):
        kind(memory_bytes=-1)


def test_a_default_above_its_maximum_is_refused() -> None:
    with pytest.raises(AgentBuildError, match="more than max_command_timeout"):
        HostExecutionPolicy(command_timeout=50, max_command_timeout=10)


async def test_a_shell_gets_what_programs_need_and_no_secrets(
    policy: ExecutionPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("DATABASE_URL", "secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    async with opened(policy, tmp_path, env={"MINE": "given", "LANG": "C"}) as session:
        lines = text_of(await session.run("env; ls / >/dev/null && echo PATH works", 60))
        found = dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)
        assert found["PATH"]
        assert found["HOME"]
        assert (found["MINE"], found["LANG"], found["PAGER"]) == ("given", "C", "cat")
        assert "secret" not in lines
        assert "PATH works" in lines


@pytest.mark.parametrize("kind", [HostExecutionPolicy, BubblewrapExecutionPolicy])
@pytest.mark.parametrize(
    ("limits", "command", "codes"),
    [
        ({"cpu_time_seconds": 1}, "(while :; do :; done)", {137, 152}),
        ({"max_file_size_bytes": 1_000}, "head -c 5000 /dev/zero >big; wc -c <big", {0}),
        ({"memory_bytes": 200_000_000}, "dd if=/dev/zero of=/dev/null bs=500M count=1", {1}),
        ({"max_processes": 50}, '[ "$(ulimit -u)" = 50 ]', {0}),
    ],
)
async def test_limits_hold_for_what_the_shell_runs(
    tmp_path: Path, kind: Any, limits: dict[str, int], command: str, codes: set[int]
) -> None:
    if kind is BubblewrapExecutionPolicy:
        need_bubblewrap()
    async with opened(kind(**limits), tmp_path) as session:
        result = await session.run(command, 60)
        assert result.ending == "done"
        assert result.exit_code in codes, text_of(result)
        if "max_file_size_bytes" in limits:
            assert (tmp_path / "big").stat().st_size == 1_000


# --- bubblewrap ------------------------------------------------------------------------------


def test_a_sandbox_that_is_not_installed_says_how_to_get_it() -> None:
    with pytest.raises(AgentBuildError, match="apt-get install bubblewrap"):
        BubblewrapExecutionPolicy(binary="no-such-bwrap").check()


async def test_a_sandbox_shows_the_workspace_and_little_else(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need_bubblewrap()
    secret = tmp_path_factory.mktemp("elsewhere") / "secret"
    secret.write_text("secret")
    policy = BubblewrapExecutionPolicy()
    async with opened(policy, tmp_path) as session:
        commands = (
            f"cat {quote(str(secret))}",
            "cat /etc/shadow",
            "touch /usr/mark",
            f"kill -9 {os.getpid()}",
        )
        for command in commands:
            result = await session.run(command, 60)
            assert result.exit_code
            assert "secret" not in text_of(result).replace(str(secret), "")
        await session.run("echo made >inside; echo x >/tmp/own", 60)
        assert text_of(await session.run("ls -A / | sort | tr '\\n' ' '", 60)).split() == sorted(
            one
            for one in {"bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "tmp", "usr"}
            if Path("/", one).exists()
        )
    assert (tmp_path / "inside").read_text() == "made\n"
    assert not Path("/tmp/own").exists()


async def test_a_sandbox_reaches_the_network_only_if_it_may(tmp_path: Path) -> None:
    need_bubblewrap()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    codes: list[int | None] = []
    try:
        for enabled in (False, True):
            policy = BubblewrapExecutionPolicy(network_enabled=enabled)
            async with opened(policy, tmp_path) as session:
                result = await session.run(f"(exec 3<>/dev/tcp/127.0.0.1/{port})", 60)
                codes.append(result.exit_code)
    finally:
        await listener.aclose()
    assert codes == [1, 0]


async def test_mounts_add_and_take_away(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    need_bubblewrap()
    data = tmp_path_factory.mktemp("data")
    (data / "file").write_text("shared")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("secret")
    (tmp_path / ".env").write_text("secret")
    mounts = (
        Mount(str(data)),
        Mount(str(data), "write", "/data"),
        Mount(str(tmp_path / "private"), "hidden"),
        Mount(str(tmp_path / ".env"), "hidden"),
    )
    async with opened(BubblewrapExecutionPolicy(mounts=mounts), tmp_path) as session:
        assert text_of(await session.run(f"cat {quote(str(data))}/file", 60)) == "shared"
        assert (await session.run(f"echo x >{quote(str(data))}/file", 60)).exit_code
        assert not (await session.run("echo new >/data/new", 60)).exit_code
        assert (await session.run("cat .env", 60)).exit_code
        assert text_of(await session.run("ls -A private", 60)) == ""
        assert (await session.run("touch private/x", 60)).exit_code
    assert (data / "new").read_text() == "new\n"
    assert (tmp_path / "private" / "key").read_text() == "secret"


async def test_a_sandbox_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    need_bubblewrap()
    policy = BubblewrapExecutionPolicy(mounts=[Mount("/nowhere/at/all")])
    with pytest.raises(ShellError, match=r"could not be started.*/nowhere/at/all"):
        async with opened(policy, tmp_path):
            pass


# --- docker ----------------------------------------------------------------------------------

_CLIENT = """#!/bin/sh
# Stands in for an engine: notes its options, and runs the shell here.
printf '%s\\n' "$@" >>'{record}'
case "$1" in
run)
    env >'{record}.env'
    while [ "$1" != an-image ]; do shift; done
    shift
    cd '{workspace}' && exec "$@" ;;
esac
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the client of the tests notes its options."""
    programs, record = tmp_path / "programs", tmp_path / "record"
    programs.mkdir()
    script = programs / "docker"
    script.write_text(_CLIENT.format(record=record, workspace=tmp_path))
    script.chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return record


async def test_a_container_is_started_with_what_the_policy_says(
    tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hidden")
    policy = DockerExecutionPolicy(
        image="an-image",
        memory_bytes=1_000,
        cpus="1.5",
        cpu_time_seconds=9,
        max_processes=64,
        user="1000:1000",
        read_only_rootfs=True,
        extra_run_args=["--hostname", "box"],
    )
    async with opened(policy, tmp_path, env={"TOKEN": "value", "PATH": "/inner"}) as session:
        assert text_of(await session.run("echo $TOKEN", 60)) == "value\n"
        assert (session.launch.workspace, session.launch.rlimits) == ("/workspace", {})
        options = client.read_text().splitlines()
    pairs = set(pairwise(options))
    assert options[:2] == ["run", "--interactive"]
    assert pairs >= {
        ("--network", "none"),
        ("--workdir", "/workspace"),
        ("--mount", f'type=bind,"source={tmp_path}","target=/workspace"'),
        ("--memory", "1000"),
        ("--cpus", "1.5"),
        ("--ulimit", "cpu=9"),
        ("--pids-limit", "64"),
        ("--user", "1000:1000"),
        ("--hostname", "box"),
        ("--env", "TOKEN"),
        ("--env", "PATH=/inner"),
        ("an-image", "sh"),
    }
    assert {"--rm", "--init", "--read-only"} <= set(options)
    assert "hidden" not in Path(f"{client}.env").read_text()
    name = options[options.index("--name") + 1]
    assert client.read_text().splitlines()[-3:] == ["rm", "--force", name]


async def test_a_container_is_removed_when_its_client_hangs(tmp_path: Path, client: Path) -> None:
    policy = DockerExecutionPolicy(image="an-image", remove_container_on_exit=False)
    async with opened(policy, tmp_path, shell=["sh"]) as session:
        result = await session.run("sleep 1000", 0.2)
        assert result.ending == "timeout"
        options = client.read_text().splitlines()
        assert "--rm" not in options
        assert options[-2:] == ["kill", options[options.index("--name") + 1]]


async def test_a_crash_removes_the_container(
    tmp_path: Path, client: Path, witness: Callable[[], Witness]
) -> None:
    one, removed = witness(), witness()
    docker = tmp_path / "programs" / "docker"
    docker.write_text(docker.read_text() + f'[ "$1" = rm ] && echo up >{removed.path}\n')
    script = f"""
        import anyio
        from pathlib import Path
        from deep_agent_mcp.harness.shell.docker import DockerExecutionPolicy
        from tests.shell.support import opened

        async def main():
            policy = DockerExecutionPolicy(image="an-image")
            async with opened(policy, Path({str(tmp_path)!r})) as session:
                await session.run({one.held() + " wait"!r}, 100)

        anyio.run(main)
    """
    with other_process("-c", dedent(script)) as child:
        await one.started()
        child.kill()
        await one.gone()
        await removed.started()


def test_the_real_client_knows_every_option(tmp_path: Path) -> None:
    if which("docker") is None:
        pytest.skip("docker is not installed: apt-get install docker-cli")
    policy = DockerExecutionPolicy(
        memory_bytes=10_000_000,
        cpus="1.5",
        cpu_time_seconds=9,
        max_processes=64,
        user="1000",
        read_only_rootfs=True,
    )
    workspace = tmp_path / 'a,b"c'
    workspace.mkdir()
    launch = policy.launch(None, workspace, {"TOKEN": "value"})
    env = {**launch.env, "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    for command in (launch.argv, launch.cleanup):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode
        assert "no-engine" in done.stderr, done.stderr  # it got as far as asking the engine


def test_a_client_that_is_not_installed_is_named() -> None:
    with pytest.raises(AgentBuildError, match="no-such-docker is not installed"):
        DockerExecutionPolicy(binary="no-such-docker").check()
