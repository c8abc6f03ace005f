"""Long results in whole runs: read back page by page, kept apart, and never doubled."""

import re
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import RunResult, create_agent
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import ToolResult, tool
from tests.loop.models import Turns, call, says
from tests.middleware.test_filesystem import kept_at, next_call

pytestmark = pytest.mark.anyio

ROWS = 9_000


@tool
def dump(letter: str) -> ToolResult:
    """Dump."""
    text = "".join(f"{letter}{number:08}\n" for number in range(ROWS))
    return ToolResult(text, {"rows": ROWS})


def told(result: RunResult) -> list[ToolMessage]:
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


def reads_on(request: ChatRequest) -> AIMessage:
    """Make the call that the newest result offers, as a model does, until it offers none."""
    last = request.messages[-1]
    assert isinstance(last, ToolMessage)
    if last.name == "dump":
        following = {"path": kept_at(last.text)}
    else:
        offered = next_call(last.text)
        if offered is None:
            return says("read it all")
        following = offered[1]
    return says("", call(f"r{len(request.messages)}", "read_file", **following))


async def test_an_evicted_result_is_read_back_by_the_model_page_by_page() -> None:
    model = Turns(says("", call("d", "dump", letter="a")), *[reads_on] * 40)
    result = await create_deep_agent(model, [dump]).ainvoke("go")
    assert result.run.answer == "read it all", result.error
    preview, *pages = told(result)
    assert len(preview.text) < 6_000
    assert preview.artifact is None
    read = [line for page in pages for line in page.text.splitlines()[1:]]
    assert read == [f"a{number:08}" for number in range(ROWS)]
    longest = max(len(one.text) for request in model.requests for one in request.messages)
    assert longest < 9_000


@pytest.mark.parametrize("disk", [False, True])
async def test_a_replay_leaves_one_result_and_one_file_of_an_evicted_call(
    disk: bool, tmp_path: Path
) -> None:
    journal = MemoryCheckpointer()
    backend: Any = DirectoryBackend(tmp_path) if disk else StateBackend()
    model = Turns(says("", call("d", "dump", letter="a")), says("done"), says("again"))
    agent = create_agent(
        model, [dump], middleware=[FilesystemMiddleware(backend)], checkpointer=journal
    )
    first = await agent.ainvoke("go", thread_id="t")
    before = next(one for one in await agent.get_state_history("t") if one.author == "model"
                  and one.next == "tools")  # fmt: skip
    again = await agent.replay("t", before.id)
    for result in (first, again):
        (shown,) = told(result)
        read = await agent.adrive([call("r", "read_file", path=kept_at(shown.text))], thread_id="t")
        assert "a00000000\n" in read.results[0].text
    assert told(first)[0].text == told(again)[0].text
    ids = [one.id for one in again.state["messages"]]
    assert len(ids) == len(set(ids))
    listed = await agent.adrive([call("l", "ls", path="/large_tool_results")], thread_id="t")
    assert listed.results[0].text.startswith("[/large_tool_results: entries 1-1 of 1]")


async def test_parallel_long_results_are_kept_each_in_its_file() -> None:
    calls = [call(letter, "dump", letter=letter) for letter in "abc"]
    result = await create_deep_agent(Turns(says("", *calls), says("done")), [dump]).ainvoke("go")
    paths = [kept_at(one.text) for one in told(result)]
    assert len(set(paths)) == 3
    for letter, path in zip("abc", paths, strict=True):
        assert result.state["files"][path].content.startswith(f"{letter}00000000\n")


async def test_of_calls_with_one_id_each_long_result_is_kept() -> None:
    rounds = [says("", call("call_0", "dump", letter=letter)) for letter in "ab"]
    result = await create_deep_agent(Turns(*rounds, says("done")), [dump]).ainvoke("go")
    files = result.state["files"]
    begins = [files[kept_at(one.text)].content[:9] for one in told(result)]
    assert begins == ["a00000000", "b00000000"]


async def test_a_long_result_of_a_subagent_is_there_for_its_caller() -> None:
    def turn(request: ChatRequest) -> AIMessage:
        answers = sum(isinstance(one, AIMessage) for one in request.messages)
        if request.agent == "main":
            return says("", call("t", "task", description="dump it"))
        if not answers:
            return says("", call("d", "dump", letter="s"))
        return says(kept_at(request.messages[-1].text))

    def reads(request: ChatRequest) -> AIMessage:
        if request.agent != "main":
            return turn(request)
        path = kept_at(request.messages[-1].text)
        return says("", call("r", "read_file", path=path, limit=1))

    result = await create_deep_agent(Turns(turn, reads, says("done")), [dump]).ainvoke("go")
    report, read = told(result)
    assert "/large_tool_results/d_" in report.text
    assert read.text.endswith("s00000000\n")


async def test_results_are_kept_where_the_artifacts_are_to_go(tmp_path: Path) -> None:
    backend = CompositeBackend(
        StateBackend(), {"/scratch": DirectoryBackend(tmp_path)}, artifacts_root="/scratch"
    )
    model = Turns(says("", call("d", "dump", letter="a")), *[reads_on] * 40)
    result = await create_deep_agent(model, [dump], backend=backend).ainvoke("go")
    assert result.run.answer == "read it all", result.error
    (kept,) = (tmp_path / "large_tool_results").iterdir()
    assert len(kept.read_text().splitlines()) == ROWS
    assert not result.state["files"]


async def test_a_rule_against_reading_kept_results_holds_for_them_too() -> None:
    policy = Policy((Rule("deny", "read_file", path="/large_tool_results/**"),))
    model = Turns(
        says("", call("d", "dump", letter="a")),
        lambda request: says("", call("r", "read_file", path=kept_at(request.messages[-1].text))),
        says("done"),
    )
    result = await create_deep_agent(model, [dump], policy=policy).ainvoke("go")
    assert [one.status for one in told(result)] == ["success", "error"]
    assert re.search(r"rule 1 of the policy", told(result)[1].text)
