"""What file tools refuse so that no change is lost, and the ways back to what is not shown."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.base import Backend, FileError
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.file_tools.file_guards import ConcurrentEdits
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError, ToolError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import HookResult, Runtime
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    TextBlock,
    ToolMessage,
)
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.state.channels import State
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.backends.workbench import BACKENDS, Bench, opened
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@pytest.fixture(params=BACKENDS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Bench]:
    async with opened(request.param, tmp_path, tools=(*READERS, "delete_file")) as made:
        yield made


READERS = ("ls", "read_file", "write_file", "edit_file")


def results(messages: Any) -> list[ToolMessage]:
    return [one for one in messages if isinstance(one, ToolMessage)]


# delete_file


async def test_a_file_is_deleted_and_directories_are_not(bench: Bench):
    await bench.seed("/d/a", b"1")
    with pytest.raises(FileError, match=r"is a directory and was not deleted"):
        await bench.call("delete_file", path="/d")
    with pytest.raises(FileError, match=r"Near it: /d/a\."):
        await bench.call("delete_file", path="/d/b")
    result = await bench.result("delete_file", path="d//a")
    deleted = {"path": "/d/a", "deleted": True}
    assert (result.content, result.artifact) == ("Deleted /d/a.", deleted)
    with pytest.raises(FileError):
        await bench.data("/d/a")


def test_delete_file_is_there_only_when_it_is_named():
    assert "delete_file" not in {one.name for one in FilesystemMiddleware(StateBackend()).tools}


async def test_dots_inside_of_a_name_are_no_climb(bench: Bench):
    await bench.call("write_file", path="/a..b.txt", content="x")
    assert await bench.call("read_file", path="/a..b.txt") == "[/a..b.txt lines 1-1 of 1]\nx"


# what a middleware is told


async def test_a_tool_of_somebody_else_with_a_file_tools_name_is_evicted_too():
    @tool
    def grep(path: str) -> str:
        """Search."""
        return path + "x" * 70_000

    model = Turns(says("", call("c", "grep", path="a//b")), says("ok"))
    files = FilesystemMiddleware(StateBackend(), tools=("read_file",))
    await create_agent(model, [grep], middleware=[files]).ainvoke("go")
    (shown,) = results(model.requests[1].messages)
    assert len(shown.text) < 5_000 and "/large_tool_results/c_" in shown.text
    assert "a//bxx" in shown.text


def test_prompt_and_descriptions_can_be_given():
    files = FilesystemMiddleware(
        StateBackend(), system_prompt="", custom_tool_descriptions={"ls": "Look."}
    )
    assert [one.description for one in files.tools if one.name == "ls"] == ["Look."]
    assert next(one for one in files.tools if one.name == "glob").description != "Look."
    with pytest.raises(AgentBuildError, match="names delete_file"):
        FilesystemMiddleware(StateBackend(), custom_tool_descriptions={"delete_file": "x"})


async def test_the_prompt_speaks_of_what_is_there():
    async def section(**options: Any) -> str:
        model = Turns(says("ok"))
        files = FilesystemMiddleware(StateBackend(), **options)
        await create_agent(model, middleware=[files]).ainvoke("go")
        return "".join(one.text for one in model.requests[0].system)

    assert "before you edit" in await section()
    assert "before you edit" not in await section(tools=("read_file",))
    assert "/large_tool_results" not in await section(evict_chars=None)
    assert await section(system_prompt="") == ""


# long messages and the history


async def test_a_very_long_message_is_shown_as_a_preview_and_kept_whole():
    text = "".join(f"{number}\n" for number in range(60_000))
    image = ImageBlock("image/png", "AAAA")

    def reads(request: ChatRequest) -> AIMessage:
        path = f"/conversation_history/{request.messages[0].id}.md"
        return says("", call("c", "read_file", path=path, offset=30_000))

    model = Turns(reads, says("ok"), says("again"))
    agent = create_agent(model, middleware=[FilesystemMiddleware(StateBackend())])
    message = HumanMessage((TextBlock(text), image))
    await agent.ainvoke({"messages": [message]}, thread_id="t")
    first = model.requests[0].messages[0]
    assert isinstance(first, HumanMessage) and first.content[1] == image
    assert len(first.text) < 5_000 and "\n0\n1\n" in first.text and "59999\n" in first.text
    assert f'read_file(path="/conversation_history/{message.id}.md")' in first.text
    (read,) = results(model.requests[1].messages)
    assert "\n30000\n30001\n" in read.text
    state = await agent.get_state("t")
    assert state is not None and state.values["messages"][0] == message
    # A later run, by an agent made anew, shows the same preview.
    other = create_agent(
        model,
        middleware=[FilesystemMiddleware(StateBackend())],
        checkpointer=agent.checkpointer,
    )
    await other.ainvoke("more", thread_id="t")
    assert model.requests[2].messages[0] == first


class Replaces(AgentMiddleware):
    """Replaces the first message before the second model call."""

    def __init__(self, text: str) -> None:
        self.text = text

    def before_model(self, state: State, runtime: Runtime) -> HookResult:
        messages = state["messages"]
        if len(messages) == 1:
            return None
        return {"messages": [HumanMessage(self.text, id=messages[0].id)]}


@pytest.mark.parametrize("texts", [("x" * 9_000, "short"), ("short", "x" * 9_000)])
async def test_a_message_that_is_replaced_is_shown_as_its_new_length_wants(texts: tuple[str, str]):
    first, second = texts
    model = Turns(says("", call("1", "ls", path="/")), says("ok"))
    files = FilesystemMiddleware(StateBackend(), evict_message_chars=6_000)
    await create_agent(model, middleware=[Replaces(second), files]).ainvoke(first)
    shown = [one.messages[0].text for one in model.requests]
    assert [one == text for one, text in zip(shown, texts, strict=True)] == [
        text == "short" for text in texts
    ]


async def test_a_very_long_message_to_a_running_run_is_shown_as_the_same_preview_in_all_calls():
    @tool
    async def send(runtime: ToolRuntime) -> str:
        """Send the run a message."""
        await agent.asteer(runtime.run_id, "x" * 300_000)
        return "sent"

    def reads(request: ChatRequest) -> AIMessage:
        path = f"/conversation_history/{request.messages[-1].id}.md"
        return says("", call("c", "read_file", path=path))

    model = Turns(says("", call("s", "send")), reads, says("ok"), says("again"))
    files = FilesystemMiddleware(StateBackend())
    agent = create_agent(model, [send], middleware=[files], checkpointer=MemoryCheckpointer())
    await agent.ainvoke("go", thread_id="t")
    await agent.ainvoke("more", thread_id="t")
    sent = model.requests[1].messages[-1]
    assert "The message has 300000 characters" in sent.text
    assert len(sent.text) < 5_000
    assert [one.messages.index(sent) for one in model.requests[1:]] == [3, 3, 3]
    assert "xxxx" in results(model.requests[2].messages)[-1].text


async def test_short_messages_are_sent_as_they_are():
    model = Turns(says("ok"))
    agent = create_agent(model, middleware=[FilesystemMiddleware(StateBackend())])
    await agent.ainvoke("x" * 200_000)
    assert model.requests[0].messages[0].text == "x" * 200_000


async def test_the_transcript_can_be_read_and_searched_and_not_changed():
    path = "/conversation_history/transcript.md"
    model = Turns(
        says("", call("1", "grep", pattern="secret word", path="/conversation_history")),
        says("", call("2", "read_file", path=path)),
        says("", call("3", "write_file", path=path, content="")),
        says("", call("4", "edit_file", path=path, old_string="secret", new_string="x")),
        says("", call("5", "ls")),
        says("done"),
    )
    agent = create_agent(model, middleware=[FilesystemMiddleware(StateBackend())])
    await agent.ainvoke("The secret word is plum.", thread_id="t")
    grep, read, write, edit, ls = results(model.requests[-1].messages)
    assert path in grep.text
    assert "[user]\nThe secret word is plum.\n\n[assistant]\n(calls grep 1" in read.text
    assert write.status == edit.status == "error"
    assert "cannot be changed" in write.text
    assert "conversation_history" not in ls.text
    state = await agent.get_state("t")
    assert state is not None and not state.values["files"]


async def test_without_history_its_paths_are_ordinary():
    model = Turns(
        says("", call("1", "read_file", path="/conversation_history/transcript.md")), says("ok")
    )
    files = FilesystemMiddleware(StateBackend(), history=False)
    await create_agent(model, middleware=[files]).ainvoke("x" * 200_001)
    assert results(model.requests[1].messages)[0].status == "error"
    assert len(model.requests[0].messages[0].text) == 200_001


# agents that run side by side


def by_agent(*main: AIMessage, child: Callable[[int, ChatRequest], AIMessage]) -> Turns:
    """Return a model that plays turns as the main agent, and asks `child` as a subagent."""

    def turn(place: int) -> Callable[[ChatRequest], AIMessage]:
        def answer(request: ChatRequest) -> AIMessage:
            first = request.messages[0]
            is_child = isinstance(first, HumanMessage) and first.source == "task"
            return child(place, request) if is_child else main[place]

        return answer

    return Turns(*(turn(place) for place in range(5)))


def writes(place: int, request: ChatRequest) -> AIMessage:
    word = request.messages[0].text
    if place == 0:
        return says("", call(f"w{word}", "write_file", path="/shared.md", content=word))
    return says(f"{word}: {results(request.messages)[-1].text}")


def both(*words: str) -> AIMessage:
    return says("", *(call(f"t{word}", "task", description=word) for word in words))


@pytest.mark.parametrize("disk", [False, True])
async def test_parallel_subagents_do_not_undo_each_others_changes(disk: bool, tmp_path: Path):
    backend: Backend = DirectoryBackend(tmp_path) if disk else StateBackend()
    model = by_agent(both("a", "b"), both("c"), says("done"), child=writes)
    agent = create_deep_agent(model, backend=backend)
    await agent.ainvoke("go", thread_id="t")
    a, b, c = (one.text for one in results(model.requests[-1].messages))
    assert ("Wrote" in a) != ("Wrote" in b), "exactly one of them wrote"
    refused = b if "Wrote" in a else a
    assert "another agent of this run changes it at the same time" in refused
    assert ("report what it still needs" in refused) != disk
    assert "Wrote" in c, "who begins later knows of the change"


async def test_on_disk_a_subagent_that_read_the_others_change_may_go_on(tmp_path: Path):
    def adds(place: int, request: ChatRequest) -> AIMessage:
        word = request.messages[0].text
        match place:
            case 0:
                return says("", call(f"w{word}", "write_file", path="/s.md", content=word))
            case 1:
                return says("", call(f"r{word}", "read_file", path="/s.md"))
            case 2:
                return says("", call(f"x{word}", "write_file", path="/s.md", content="ab"))
            case _:
                return says(results(request.messages)[-1].text)

    model = by_agent(both("a", "b"), says("done"), child=adds)
    await create_deep_agent(model, backend=DirectoryBackend(tmp_path)).ainvoke("go")
    assert (tmp_path / "s.md").read_text() == "ab"


async def test_a_call_beside_a_subagent_does_not_undo_its_change():
    model = by_agent(
        says("", call("t", "task", description="a"), call("m", "ls")),
        says("", call("w", "write_file", path="/shared.md", content="mine")),
        says("done"),
        child=writes,
    )
    agent = create_deep_agent(model)
    await agent.ainvoke("go", thread_id="t")
    assert "Wrote" in results(model.requests[-1].messages)[-1].text


def test_claims_hold_between_agents_side_by_side_and_end_when_their_parent_goes_on():
    claims = ConcurrentEdits()
    claims.take("r", "a", "/f")
    assert not claims.taken("r", "a", "/f")
    assert claims.taken("r", "b", "/f") and claims.taken("r", "", "/f")
    assert claims.taken("r", "a/x", "/f"), "called in the answer that changes the file"
    assert not claims.taken("other", "b", "/f") and not claims.taken("r", "b", "/g")
    claims.settle("r", "a")
    assert not claims.taken("r", "a/x", "/f"), "called later, so it knows"
    claims.take("r", "a/x", "/f")
    assert claims.taken("r", "a/y", "/f")
    claims.settle("r", "a")
    assert not claims.taken("r", "a/y", "/f") and claims.taken("r", "b", "/f")
    claims.settle("r", "")
    assert not claims.taken("r", "b", "/f")


def test_claims_of_ended_and_old_runs_are_forgotten():
    claims = ConcurrentEdits(max_runs=2)
    for run in ("1", "2", "3"):
        claims.take(run, "a", "/f")
    assert [claims.taken(run, "b", "/f") for run in ("1", "2", "3")] == [False, True, True]
    claims.drop("3")
    assert not claims.taken("3", "b", "/f")


async def test_the_same_file_is_changed_once_in_an_answer(bench: Bench):
    bench.apply(
        {
            "messages": [
                says(
                    "",
                    call("1", "write_file", path="/a", content=""),
                    call("2", "delete_file", path="a"),
                )
            ]
        }
    )
    await bench.result("write_file", _id="1", path="/a", content="")
    with pytest.raises(ToolError, match="call 1 of the same answer"):
        await bench.result("delete_file", _id="2", path="/a")
