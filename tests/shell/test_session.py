import os
import resource
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from shutil import which

import anyio
import pytest

from deep_agent_mcp.harness.shell.policies import ExecutionPolicy, HostExecutionPolicy
from deep_agent_mcp.harness.shell.process import start_process
from deep_agent_mcp.harness.shell.session import ShellError
from tests.ports_and_waits import growing
from tests.shell.support import Witness, opened, policy_of, text_of

pytestmark = pytest.mark.anyio


async def test_what_a_command_sets_is_there_for_the_next(
    policy: ExecutionPolicy, tmp_path: Path
) -> None:
    async with opened(policy, tmp_path) as session:
        (tmp_path / "sub").mkdir()
        await session.run("cd sub; NAME=value; greet() { echo hello $1; }; exec 5>notes", 60)
        result = await session.run("pwd; echo $NAME; greet you; echo noted >&5", 60)
        assert text_of(result).splitlines() == [f"{tmp_path}/sub", "value", "hello you"]
        assert (tmp_path / "sub" / "notes").read_text() == "noted\n"


@pytest.mark.parametrize(
    ("command", "output", "code"),
    [
        ("printf 'no newline'", "no newline", 0),
        ('cat; read line; echo "read: $line"', "read: \n", 0),
        ("(exit 7)", "", 7),
        ("false", "", 1),
        ("echo one; echo two >&2; echo three; echo four >&2", "one\ntwo\nthree\nfour\n", 0),
        ("echo 'it'\\''s' # a comment", "it's\n", 0),
        ("cat <<END\nfirst\n$((1 + 1))\nEND", "first\n2\n", 0),
        ("for i in 1 2; do\n  echo $i\ndone", "1\n2\n", 0),
        ("printf '\\000\\377\\001'", "\0\udcff\1", 0),
        ("", "", 0),
        ("exec >/dev/null 2>&1; echo hidden", "", 0),
        ("exec 8>&- 9>&-; echo ok", "ok\n", 0),
        ("echo 'a b 0' >&9; echo ok", None, 0),
        ("set -x 2>/dev/null; set +x; set -u; set -C", None, 0),
        ("printf() { :; }; echo ok", "ok\n", 0),
        ("sleep 0.01 & wait; echo waited", "waited\n", 0),
    ],
)
async def test_a_command_ends_by_itself(
    tmp_path: Path, command: str, output: str | None, code: int
) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        result = await session.run(command, 60)
        assert (result.ending, result.exit_code) == ("done", code)
        if output is not None:
            assert result.output.head.decode("utf-8", "surrogateescape") == output
        after = await session.run("echo after", 60)
        assert (text_of(after), after.exit_code) == ("after\n", 0)


@pytest.mark.parametrize("shell", [None, ["sh"]])
@pytest.mark.parametrize("command", ["echo 'open", 'echo "open', "if true; then", "a ) b", "x=$("])
async def test_a_syntax_error_leaves_the_shell_open(
    tmp_path: Path, command: str, shell: list[str] | None
) -> None:
    async with opened(HostExecutionPolicy(), tmp_path, shell=shell) as session:
        await session.run("KEPT=1", 60)
        result = await session.run(command, 60)
        assert result.ending == "done"
        assert result.exit_code
        assert text_of(result)  # the shell says what is wrong
        assert text_of(await session.run("echo $KEPT", 60)) == "1\n"


async def test_a_heredoc_without_its_end_is_all_there_is(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        result = await session.run("cat <<END\ntext", 60)
        assert text_of(result).endswith("text\n")
        assert text_of(await session.run("echo next", 60)) == "next\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("echo before; exit 3", 3),
        ("echo before; set -e; false; echo not reached", 1),
        ("echo before; exec true", 0),
        ("echo before; kill -9 $$", 137),
    ],
)
async def test_a_command_may_end_the_shell(
    policy: ExecutionPolicy, tmp_path: Path, command: str, code: int
) -> None:
    async with opened(policy, tmp_path) as session:
        result = await session.run(command, 60)
        assert (result.ending, result.exit_code) == ("ended", code)
        assert text_of(result) == "before\n"
        assert not session.alive


async def test_a_shell_that_lost_its_own_channels_ends_instead_of_hanging(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        closing = 'for one in $(seq 3 20); do eval "exec $one>&-"; done; echo closed'
        result = await session.run(closing, 60)
        assert "closed\n" in text_of(result)
        if result.ending == "done":  # its own channels were elsewhere
            assert text_of(await session.run("echo still", 60)) == "still\n"


async def test_noise_on_the_shells_channel_is_no_end(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        noise = "for fd in $(seq 3 20); do (echo 0123456789abcdef 0 >&$fd) 2>/dev/null; done"
        result = await session.run(f"{noise}; echo done; (exit 4)", 60)
        assert (result.ending, result.exit_code) == ("done", 4)
        assert text_of(result).endswith("done\n")


async def test_a_process_in_the_background_does_not_hold_the_call(
    policy: ExecutionPolicy, tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one = witness()
    async with opened(policy, tmp_path) as session:
        # It keeps the pipes of the shell open: its output is not redirected.
        held = f"(echo up >'{one.path}'; sleep 1000; echo late) & echo started"
        result = await session.run(held, 60)
        await one.started()
        assert (result.ending, text_of(result)) == ("done", "started\n")
        assert result.seconds < 30


@pytest.mark.parametrize("kind", ["host", "bubblewrap"])
async def test_a_timeout_keeps_what_was_written_and_ends_everything(
    kind: str, tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    policy = policy_of(kind, termination_timeout=60.0)
    for seconds in growing(0.5):
        one = witness()
        async with opened(policy, tmp_path) as session:
            began = time.monotonic()
            result = await session.run(f"{one.held()} echo begun; sleep 1000", seconds)
            assert time.monotonic() - began < seconds + policy.limits.termination_timeout
            assert (result.ending, result.exit_code) == ("timeout", None)
            assert not session.alive
        if text_of(result):
            break
    assert text_of(result) == "begun\n"
    await one.started()
    assert one.is_gone()


async def test_a_process_that_ignores_being_asked_is_killed(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    policy = HostExecutionPolicy(termination_timeout=0.2)
    for seconds in growing(0.5):
        one = witness()
        stubborn = f"trap '' TERM INT HUP; {one.held('setsid')} echo deaf; while :; do wait; done"
        async with opened(policy, tmp_path) as session:
            began = time.monotonic()
            result = await session.run(stubborn, seconds)
            assert result.ending == "timeout"
            assert time.monotonic() - began < seconds + 60
        if text_of(result):
            break
    assert text_of(result) == "deaf\n"
    await one.started()
    assert one.is_gone()


async def test_a_hundred_megabytes_pass_and_both_ends_are_kept(tmp_path: Path) -> None:
    policy = HostExecutionPolicy(max_file_bytes=4_000_000)
    async with opened(policy, tmp_path) as session:
        result = await session.run("echo first; head -c 100000000 /dev/zero; echo; echo last", 30)
        output = result.output
        assert result.exit_code == 0
        assert output.size == 100_000_000 + len("first\n\nlast\n")
        assert output.head.startswith(b"first\n")
        assert len(output.head) == 4_000_000
        assert output.tail.endswith(b"\nlast\n")
        assert len(output.tail) == policy.max_output_bytes


async def test_a_long_command_is_taken_whole(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        text = "x" * 300_000
        result = await session.run(f"wc -c <<'END'\n{text}\nEND", 60)
        assert text_of(result).strip() == "300001"


async def test_a_program_that_asks_at_the_terminal_fails_at_once(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        result = await session.run("read answer </dev/tty", 60)
        assert (result.ending, result.exit_code) == ("done", 1)


async def test_startup_commands_set_a_session_up(tmp_path: Path) -> None:
    commands = ("export FOO=bar", "mkdir inner", "cd inner")
    async with opened(HostExecutionPolicy(), tmp_path, commands=commands) as session:
        assert text_of(await session.run("echo $FOO; pwd", 60)) == f"bar\n{tmp_path}/inner\n"


async def test_a_startup_command_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShellError, match=r"'ls /nowhere' ended with exit code 2.*No such file"):
        async with opened(HostExecutionPolicy(), tmp_path, commands=["ls /nowhere"]):
            pass
    for seconds in growing(0.5):  # within which the shell itself has to start, too
        policy = HostExecutionPolicy(startup_timeout=seconds)
        with pytest.raises(ShellError) as caught:
            async with opened(policy, tmp_path, commands=["echo >begun; sleep 999"]):
                pass
        if (tmp_path / "begun").exists():
            break
    assert f"'echo >begun; sleep 999' took longer than the {seconds} s" in str(caught.value)


async def test_a_shell_that_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(ShellError, match=r"could not be started.*nowhere/sh cannot be started"):
        async with opened(HostExecutionPolicy(), tmp_path, shell=["/nowhere/sh"]):
            pass
    with pytest.raises(ShellError, match=r"no answer for 0.3 s"):
        policy = HostExecutionPolicy(startup_timeout=0.3)
        async with opened(policy, tmp_path, shell=["sleep", "9"]):
            pass


async def test_other_tasks_go_on_while_a_command_floods_its_output(tmp_path: Path) -> None:
    policy = HostExecutionPolicy(max_file_bytes=1_000_000)
    turns = 0
    async with opened(policy, tmp_path) as session, anyio.create_task_group() as group:

        async def tick() -> None:
            nonlocal turns
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

        group.start_soon(tick)
        result = await session.run("yes", 0.3)
        group.cancel_scope.cancel()
    assert result.ending == "timeout"
    assert turns > 20


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        await session.run("true", 60)  # the loop's and the thread's own are open now
    before = len(os.listdir("/dev/fd"))
    for command in ("true", "exit", "sleep 9"):
        async with opened(HostExecutionPolicy(), tmp_path) as session:
            await session.run(command, 0.2)
    assert len(os.listdir("/dev/fd")) == before


async def test_nothing_is_left_open_where_no_shell_can_be_started(tmp_path: Path) -> None:
    still_open: list[int] = []
    for _ in range(2):  # the first one opens what the loop and its threads keep
        with pytest.raises(ShellError, match="nothing was run"):
            async with opened(HostExecutionPolicy(), tmp_path / "none"):
                pass
        still_open.append(len(os.listdir("/dev/fd")))
    assert still_open[0] == still_open[1]


async def test_what_a_shell_does_not_read_can_be_given_up(tmp_path: Path) -> None:
    launch = HostExecutionPolicy().launch(["sleep", "1000"], tmp_path, {})
    process = await start_process(launch, grace=0.1, lease=1_000)
    with anyio.move_on_after(0.1) as sending:
        await process.send(b"#" * 10_000_000)
    assert sending.cancelled_caught
    await process.end()


async def test_a_shell_opens_however_many_files_this_process_has_open(
    policy: ExecutionPolicy, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_048:
        pytest.skip("this process may not open enough files")
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
        for _ in range(1_024):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        async with opened(policy, tmp_path) as session:
            assert text_of(await session.run("echo ok", 60)) == "ok\n"


@pytest.mark.parametrize("shell", [["bash", "--norc"], ["dash"], ["sh"]])
@pytest.mark.parametrize("name", ["command", "printf", "echo", "exit_code", "test"])
async def test_a_function_of_a_users_stands_in_nobodys_way(
    tmp_path: Path, shell: list[str], name: str
) -> None:
    if which(shell[0]) is None:
        pytest.skip(f"there is no {shell[0]}")
    async with opened(HostExecutionPolicy(), tmp_path, shell=shell) as session:
        first = await session.run(f"{name}() {{ pwd -P; return 4; }}; {name} x", 5)
        assert (first.ending, first.exit_code, text_of(first)) == ("done", 4, f"{tmp_path}\n")
        assert (await session.run("(exit 7)", 5)).exit_code == 7
