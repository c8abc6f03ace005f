"""What a command writes comes back as it was written, both streams in their order."""

import os
from pathlib import Path

import pytest

from deep_agent_mcp.harness.shell.policies import HostExecutionPolicy
from tests.shell.support import opened, text_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system"),
]

QUOTES = (
    """a 'b' "c" $d `e` \\f # g ; h & i | j > k < l ! m ~ n * o ? p [q] {r} (s) %t ^u ü 漢 🦊"""
)


async def test_both_streams_come_back_in_the_order_they_were_written(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        said = await session.run("for i in 1 2 3; do echo out $i; echo err $i >&2; done", 60)
    assert text_of(said).splitlines() == [
        *("out 1", "err 1", "out 2", "err 2", "out 3", "err 3"),
    ]


async def test_any_text_survives_being_written_by_a_command_and_read_by_the_next(
    tmp_path: Path,
) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        await session.run(f"cat >'a file' <<'END'\n{QUOTES}\n\r\n\tindented\nEND", 60)
        said = await session.run("cat 'a file'", 60)
    expected = f"{QUOTES}\n\r\n\tindented\n"
    assert said.output.head.decode() == expected
    assert (tmp_path / "a file").read_bytes() == expected.encode()


CODES = {
    "true": 0,
    "false": 1,
    "(exit 77)": 77,
    "no-such-command-here": 127,
    "sh -c 'kill -9 $$'": 137,
    "true | false": 1,
    "false; true": 0,
}


async def test_each_command_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        for command, code in CODES.items():
            said = await session.run(command, 60)
            assert (command, said.ending, said.exit_code) == (command, "done", code)
        killed = await session.run("kill -9 $$", 60)
        assert killed.ending == "ended"
        assert not session.alive


async def test_a_shutdown_command_that_fails_keeps_no_other_from_running(tmp_path: Path) -> None:
    async with opened(HostExecutionPolicy(), tmp_path) as session:
        await session.close(["false", "cat /nowhere", "(exit 3)", "echo last >last"])
    assert (tmp_path / "last").read_text() == "last\n"
