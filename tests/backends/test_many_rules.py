"""However many rules a `.gitignore` file has, a search ends in time and tells what it left out."""

import time
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import Agent, create_agent
from deep_agent_mcp.harness.backends import ignore
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.transfer import upload_files
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from tests.loop.models import Turns, call, says
from tests.ports_and_waits import growing

pytestmark = pytest.mark.anyio


async def agent_with(files: dict[str, str]) -> Agent:
    agent = create_agent(Turns(says("hi")), middleware=[FilesystemMiddleware(StateBackend())])
    uploads = await upload_files(agent, "t", files)
    assert all(one.ok for one in uploads)
    return agent


async def search(agent: Agent, tool: str, **args: Any) -> str:
    calls = [call("1", tool, skip_ignored=True, **args)]
    return (await agent.adrive(calls, thread_id="t")).results[0].text


async def test_a_thousand_rules_of_a_file_are_heeded_and_the_answer_tells_of_the_rest() -> None:
    rules = [f"name{number}" for number in range(1_001)]
    files = {"/.gitignore": "# names\n\n" + "\n".join(rules), "/name999": "x", "/name1000": "x"}
    agent = await agent_with(files)
    said = await search(agent, "glob", pattern="name*")
    assert "/name1000" in said
    assert "/name999\n" not in f"{said}\n"
    assert "not all .gitignore rules were applied" in said
    assert "not all .gitignore rules were applied" in await search(agent, "grep", pattern="x")


async def test_as_many_rules_as_are_heeded_need_no_note() -> None:
    rules = "\n".join(f"name{number}" for number in range(1_000))
    agent = await agent_with({"/.gitignore": f"{rules}\n# the end\n\n", "/name999": "x", "/y": "x"})
    said = await search(agent, "glob", pattern="*")
    assert "/y" in said
    assert "name999" not in said
    assert "heeded" not in said


async def test_five_thousand_rules_are_heeded_in_all() -> None:
    files = {f"/{letter}/.gitignore": "nothing\n" * 1_000 for letter in "abcde"}
    files |= {"/f/.gitignore": "x", "/f/x": "seen", "/e/x": "seen"}
    said = await search(await agent_with(files), "glob", pattern="x")
    assert "/f/x" in said
    assert "not all .gitignore rules were applied" in said


@pytest.mark.parametrize("tool", ["glob", "grep"])
async def test_rules_that_take_long_end_the_search_and_others_go_on(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"/f{number}.txt": "hello" for number in range(2_000)}
    hostile = "\n".join(f"*{'a*' * 8}{number}q" for number in range(1_000))
    agent = await agent_with({**files, "/.gitignore": hostile})
    beats, said = 0, ""

    async def beat() -> None:
        nonlocal beats
        while True:
            await anyio.sleep(0.01)
            beats += 1

    for seconds in growing(0.2):
        monkeypatch.setattr(ignore, "_JUDGING_SECONDS", seconds)
        beats = 0
        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            said = await search(agent, tool, pattern="hello" if tool == "grep" else "*.txt")
            group.cancel_scope.cancel()
        if beats >= 3:
            break
    assert "there was no time to look everywhere" in said
    assert beats >= 3


async def test_the_time_for_rules_bounds_the_reading_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignore, "_READING_SECONDS", -1.0)
    said = await search(await agent_with({"/.gitignore": "x\n", "/x": "x"}), "glob", pattern="x")
    assert "/x" in said
    assert "not all .gitignore rules were applied" in said


async def test_an_upload_of_many_files_looks_at_each_a_bounded_number_of_times() -> None:
    async def seconds(count: int) -> float:
        agent = create_agent(Turns(says("hi")), middleware=[FilesystemMiddleware(StateBackend())])
        begun = time.process_time()
        await upload_files(agent, "t", {f"/d{number}/f": "x" for number in range(count)})
        return time.process_time() - begun

    await seconds(10)
    assert await seconds(4_000) < 1


async def test_a_directory_is_no_directory_any_more_when_its_files_are_deleted() -> None:
    runtime: Any = type("Runtime", (), {"state": {}})()
    files = StateBackend().open(runtime)
    await files.write("/a/b/c", b"x")
    with pytest.raises(Exception, match="is a directory"):
        await files.write("/a/b", b"x")
    await files.delete("/a/b/c")
    assert await files.write("/a/b", b"x")
