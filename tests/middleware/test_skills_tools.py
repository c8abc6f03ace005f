"""Pinned skills, tools that come with skills, `allowed-tools` in force, and sizes."""

from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, Message, ToolMessage
from deep_agent_mcp.harness.middleware.context.summarization import (
    SummarizationMiddleware,
    SummaryChunk,
)
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.skills import SkillsMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.middleware.hooks import Thread
from tests.skills.folders import save_by_rename, skill_text, write_skill

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("looks_at_files_each_time")]


def offered(request: ChatRequest) -> list[str]:
    return [one.name for one in request.tools if isinstance(one, ToolSpec)]


def prompt(request: ChatRequest) -> str:
    return "\n".join(section.text for section in request.system)


def with_field(name: str, field: str) -> str:
    return f"---\nname: {name}\ndescription: Does it.\n{field}---\n\nDo.\n"


def results(request: ChatRequest) -> list[str]:
    return [one.text for one in request.messages if isinstance(one, ToolMessage)]


@tool
def deploy(place: str) -> str:
    """Deploy."""
    return f"deployed to {place}"


@tool
def look() -> str:
    """Look."""
    return "seen"


# pinned skills


async def test_a_pinned_skill_is_in_the_prompt_from_the_beginning_and_stays_as_it_was(
    tmp_path: Path,
):
    path = write_skill(tmp_path, "style", body="Write in verse.")
    registry = SkillRegistry([tmp_path])
    model, journal = Turns(says("ok"), says("ok")), MemoryCheckpointer()
    for _ in range(2):
        middleware = SkillsMiddleware(registry, pinned=["style"])
        agent = create_agent(model, middleware=[middleware], checkpointer=journal)
        await agent.ainvoke("go", thread_id="t")
        save_by_rename(path, skill_text("style", body="Write in prose."))
        registry.reload()
    first, second = model.requests
    assert "Write in verse." in prompt(first)
    assert prompt(first) == prompt(second)
    assert any("Changed skills" in one.text for one in second.messages)


async def test_a_caller_pins_and_unpins_skills(tmp_path: Path):
    for name in ("one", "two"):
        write_skill(tmp_path, name, body=f"Body of {name}.")
    model = Turns(says("a"), says("b"), says("c"))
    agent = create_agent(model, middleware=[SkillsMiddleware(SkillRegistry([tmp_path]))])
    for pinned in (["one"], ["one", "two"], []):
        message = HumanMessage("go")
        await agent.ainvoke({"messages": [message], "pinned_skills": pinned}, thread_id="t")
    seen = [
        [name in prompt(one) for name in ("Body of one", "Body of two")] for one in model.requests
    ]
    assert seen == [[True, False], [True, True], [False, False]]


async def test_a_skill_that_is_not_there_cannot_be_pinned(tmp_path: Path):
    write_skill(tmp_path, "style")
    model = Turns(says("ok"))
    agent = create_agent(model, middleware=[SkillsMiddleware(SkillRegistry([tmp_path]))])
    message = HumanMessage("go")
    result = await agent.ainvoke({"messages": [message], "pinned_skills": ["styl"]}, thread_id="t")
    assert result.run.status == "failed" and model.requests == []
    assert "Did you mean 'style'" in str(result.error)
    await agent.ainvoke({"messages": [message], "pinned_skills": ["style"]}, thread_id="t")
    assert len(model.requests) == 1


async def test_a_pinned_skill_that_is_long_is_cut_with_the_call_for_the_rest(tmp_path: Path):
    write_skill(tmp_path, "long", body="".join(f"line {n}\n" for n in range(9_000)))
    middleware = SkillsMiddleware(SkillRegistry([tmp_path]), pinned=["long"])
    thread = Thread(middleware)
    await thread.start()
    section = await thread.section() or ""
    assert len(section) < 22_000
    assert 'skill(name="long", offset=20000)' in section


# tools that come with a skill


def releasing(tmp_path: Path) -> SkillRegistry:
    write_skill(tmp_path, "release", with_field("release", "metadata:\n  include_tools: deploy\n"))
    return SkillRegistry([tmp_path])


async def test_a_tool_comes_with_its_skill_and_stays(tmp_path: Path):
    registry = releasing(tmp_path)
    model = Turns(
        says("", call("1", "deploy", place="x")),
        says("", call("2", "skill", name="release")),
        says("", call("3", "deploy", place="y")),
        says("done"),
        says("again"),
    )
    journal = MemoryCheckpointer()
    for word in ("go", "more"):
        middleware = SkillsMiddleware(registry, tools=[deploy])
        agent = create_agent(model, [look], middleware=[middleware], checkpointer=journal)
        await agent.ainvoke(word, thread_id="t")
    assert [sorted(offered(one)) for one in model.requests] == [
        ["look", "skill"],
        ["look", "skill"],
        ["deploy", "look", "skill"],
        ["deploy", "look", "skill"],
        ["deploy", "look", "skill"],
    ]
    refused, loaded, ran = results(model.requests[3])
    assert 'call skill(name="release") first' in refused
    assert "Tools that come with it, from your next answer on: deploy" in loaded
    assert ran == "deployed to y"


async def test_a_pinned_skill_brings_its_tools(tmp_path: Path):
    middleware = SkillsMiddleware(releasing(tmp_path), tools=[deploy], pinned=["release"])
    model = Turns(says("", call("1", "deploy", place="x")), says("ok"))
    await create_agent(model, middleware=[middleware]).ainvoke("go")
    assert "deploy" in offered(model.requests[0])
    assert results(model.requests[1]) == ["deployed to x"]


async def test_a_skill_does_not_bring_tools_that_were_not_handed_over(tmp_path: Path):
    write_skill(tmp_path, "a", with_field("a", "metadata:\n  include_tools: [look, deploy]\n"))
    middleware = SkillsMiddleware(SkillRegistry([tmp_path]), tools=[deploy])
    model = Turns(says("", call("1", "skill", name="a")), says("ok"))
    await create_agent(model, middleware=[middleware]).ainvoke("go")
    assert sorted(offered(model.requests[1])) == ["deploy", "skill"]


# allowed-tools


def careful(tmp_path: Path, names: str = "look edit_* Bash(git:*)") -> SkillRegistry:
    write_skill(tmp_path, "careful", with_field("careful", f"allowed-tools: {names}\n"))
    write_skill(tmp_path, "free")
    return SkillRegistry([tmp_path])


async def test_while_a_skill_is_in_use_only_the_tools_it_names_run(tmp_path: Path):
    model = Turns(
        says("", call("1", "deploy", place="before")),
        says("", call("2", "skill", name="careful")),
        says("", call("3", "deploy", place="during"), call("4", "look")),
        says("", call("5", "skill", name="free")),
        says("", call("6", "deploy", place="still")),
        says("done"),
        says("", call("7", "deploy", place="after")),
        says("done"),
    )
    middleware = SkillsMiddleware(careful(tmp_path), beyond_allowed_tools="deny")
    agent = create_agent(model, [deploy, look], middleware=[middleware])
    for word in ("go", "more"):
        await agent.ainvoke(word, thread_id="t")
    before, _, during, looked, _, still, after = results(model.requests[-1])
    assert before == "deployed to before" and looked == "seen" and after == "deployed to after"
    assert "the skill in use (careful) does not name deploy" in during
    assert "refused" in still, "another skill does not lift it"


async def test_what_a_skill_does_not_name_can_be_put_before_a_person(tmp_path: Path):
    model = Turns(
        says("", call("1", "skill", name="careful")), says("", call("2", "deploy", place="x"))
    )
    model.turns = [*model.turns, says("done")]
    middleware = SkillsMiddleware(careful(tmp_path), beyond_allowed_tools="ask")
    agent = create_agent(model, [deploy], middleware=[middleware])
    waiting = await agent.ainvoke("go", thread_id="t")
    (question,) = waiting.interrupts
    assert "does not name deploy" in question.message
    await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    assert results(model.requests[-1])[-1] == "deployed to x"


async def test_a_deep_agent_holds_itself_and_not_a_client_that_drives(tmp_path: Path):
    model = Turns(
        says("", call("1", "skill", name="careful")),
        says("", call("2", "deploy", place="x")),
        says("ok"),
    )
    agent = create_deep_agent(
        model, [deploy], skills=careful(tmp_path), beyond_allowed_tools="deny"
    )
    await agent.ainvoke("go", thread_id="t")
    assert "the skill in use (careful) does not name deploy" in results(model.requests[-1])[-1]
    driven = await agent.adrive([call("3", "skill", name="careful")], thread_id="t")
    driven = await agent.adrive([call("4", "deploy", place="y")], thread_id="t")
    assert [one.text for one in driven.results] == ["deployed to y"]


async def test_an_entry_with_bounds_permits_nothing(tmp_path: Path):
    registry = careful(tmp_path, "deploy(staging)")
    model = Turns(
        says("", call("1", "skill", name="careful")),
        says("", call("2", "deploy", place="x")),
        says("ok"),
    )
    middleware = SkillsMiddleware(registry, beyond_allowed_tools="deny")
    await create_agent(model, [deploy], middleware=[middleware]).ainvoke("go")
    assert "refused" in results(model.requests[-1])[-1]


async def test_a_pinned_skill_bounds_the_tools_of_every_turn(tmp_path: Path):
    model = Turns(
        says("", call("1", "deploy", place="x"), call("2", "look")),
        says("ok"),
        says("", call("3", "deploy", place="y")),
        says("ok"),
    )
    middleware = SkillsMiddleware(
        careful(tmp_path), beyond_allowed_tools="deny", pinned=["careful"]
    )
    agent = create_agent(model, [deploy, look], middleware=[middleware])
    for word in ("go", "more"):
        await agent.ainvoke(word, thread_id="t")
    first, looked, later = results(model.requests[-1])
    assert "the skill in use (careful) does not name deploy" in first
    assert looked == "seen"
    assert "the skill in use (careful) does not name deploy" in later


async def test_by_default_allowed_tools_are_only_shown(tmp_path: Path):
    model = Turns(
        says("", call("1", "skill", name="careful")),
        says("", call("2", "deploy", place="x")),
        says("ok"),
    )
    middleware = SkillsMiddleware(careful(tmp_path))
    await create_agent(model, [deploy], middleware=[middleware]).ainvoke("go")
    assert results(model.requests[-1])[-1] == "deployed to x"
    assert "no permission to use them): look" in results(model.requests[-1])[0]


def test_wrong_options_are_refused(tmp_path: Path):
    registry = SkillRegistry([tmp_path])
    with pytest.raises(AgentBuildError, match="allow, deny, ask"):
        SkillsMiddleware(registry, beyond_allowed_tools="never")  # type: ignore[arg-type]

    @tool(name="skill")
    def other() -> str:
        """Other."""
        return ""

    with pytest.raises(AgentBuildError, match="cannot be named 'skill'"):
        SkillsMiddleware(registry, tools=[other])


# sizes


@pytest.mark.parametrize("count", [40, 320])
async def test_a_long_listing_is_cut_and_says_where_the_rest_is(tmp_path: Path, count: int):
    for number in range(count):
        write_skill(tmp_path, f"skill-{number:03}", description="word " * 200)
    thread = Thread(SkillsMiddleware(SkillRegistry([tmp_path])))
    await thread.start()
    section = await thread.section() or ""
    assert len(section) < 25_000
    assert "- skill-000: word" in section
    assert ("further skills; skill() lists all" in section) == (count > 300)


# notices and summaries


async def test_when_a_summary_took_the_notice_the_listing_is_made_anew(tmp_path: Path):
    write_skill(tmp_path, "old", description="Old.")
    registry = SkillRegistry([tmp_path])
    thread = Thread(SkillsMiddleware(registry))
    await thread.start()
    write_skill(tmp_path, "new", description="New.")
    registry.reload()
    await thread.notice()
    notice = thread.state["messages"]
    after: list[Message] = [AIMessage("more"), AIMessage("more")]  # type: ignore[arg-type]
    thread.state = {**thread.state, "messages": [*notice, *after]}
    for upto, stale in ((None, True), (0, False)):
        chunk = SummaryChunk("m", "s", 1, upto_index=upto or 0)
        chunks = [] if upto is None else [chunk]
        thread.state = {**thread.state, "summaries": chunks}
        assert await thread.notice() is None
        assert ("- new: New." not in (await thread.section() or "")) is stale


async def test_it_works_beside_summaries_in_an_agent(tmp_path: Path):
    write_skill(tmp_path, "old", description="Old.")
    registry = SkillRegistry([tmp_path])

    class Main(Turns):
        context_window = 6_000  # type: ignore[assignment]

    def turn(request: ChatRequest) -> AIMessage:
        if request.agent == "summarization":
            return says("SUMMARY")
        count = sum(isinstance(one, AIMessage) for one in request.messages)
        if count == 1 and len(registry.skills) == 1:
            write_skill(tmp_path, "new", description="New.")
            registry.reload()
        if "- new: New." in prompt(request):
            return says("The prompt has it.")
        args: dict[str, Any] = {"path": f"/{len(model.requests)}", "content": "x" * 1_500}
        return says("", call(f"c{len(model.requests)}", "write_file", **args))

    model = Main(*[turn] * 80)
    agent = create_agent(
        model,
        middleware=[
            FilesystemMiddleware(StateBackend()),
            SkillsMiddleware(registry),
            SummarizationMiddleware(),
        ],
    )
    result = await agent.ainvoke("go")
    assert result.run.answer == "The prompt has it."
    asked = [one for one in model.requests if one.agent != "summarization"]
    assert len({prompt(one) for one in asked}) == 2
