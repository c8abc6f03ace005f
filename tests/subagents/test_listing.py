"""Who there is to hand work to: pinned in the prompt, changes told as messages."""

from pathlib import Path

import pytest

from deep_agent_mcp.harness.definitions.registry import DefinitionRegistry
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.middleware.subagents import SubAgentMiddleware, notice, section
from deep_agent_mcp.harness.profiles import Profile
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from tests.loop.models import Turns, call, says
from tests.subagents.family import Cast, family, task, told

pytestmark = pytest.mark.anyio


def write(folder: Path, name: str, description: str = "Reads.", body: str = "You read.") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")
    return path


def prompt(request) -> str:
    return next(one.text for one in request.system if one.name == "subagents")


def notices(request) -> list[str]:
    return [
        one.text
        for one in request.messages
        if isinstance(one, HumanMessage) and one.source == "subagents"
    ]


async def test_all_kinds_are_listed_and_a_multi_line_description_takes_one_line():
    model = Turns(says("ok"))
    subagents = [
        SubAgent("b", "Two\n  lines.", "p"),
        CompiledSubAgent("a", "A function.", lambda text: text),
        SubAgent("c", "Your twin.", mode="fork"),
    ]
    await family(model, subagents=subagents).ainvoke("go")
    lines = prompt(model.requests[0]).splitlines()
    assert lines[:3] == ["Subagents for the `task` tool:", "- a: A function.", "- b: Two lines."]
    assert lines[3] == "- c: (fork) Your twin."
    assert lines[4].startswith("- general-purpose: ")


async def test_what_changes_in_a_run_is_told_as_a_message_and_the_prompt_stays(tmp_path: Path):
    path = write(tmp_path, "reader")
    write(tmp_path, "writer", "Writes.")
    registry: DefinitionRegistry[object] = SubAgentRegistry(tmp_path)  # type: ignore[assignment]

    def change(request):
        write(tmp_path, "reader", "Reads well.")
        write(tmp_path, "critic", "Finds faults.")
        (tmp_path / "writer.md").unlink()
        registry.reload()
        return says("", call("1", "ls"))

    model = Cast(
        main=[change, says("", task("2", "x", "critic")), says("ok"), says("later")],
        critic=[says("faults")],
    )
    agent = family(model, subagents=registry)
    result = await agent.ainvoke("go", thread_id="t")
    assert told(result)[1].text.startswith("faults")
    first, second, third = model.asked_by("main")
    assert first.system == second.system == third.system
    assert notices(first) == []
    assert notices(second) == [
        "[Notice from the system, not from the user: subagents changed.]\n"
        "New:\n- critic: Finds faults.\n"
        "Descriptions changed:\n- reader: Reads well.\n"
        "No longer there: writer."
    ]
    assert notices(third) == notices(second)
    # What is not said of a subagent in the list is no news.
    path.write_text(path.read_text() + "More.\n")
    registry.reload()
    await agent.ainvoke("again", thread_id="t")
    assert notices(model.requests[-1]) == notices(second)


async def test_a_run_that_changed_back_is_told_so(tmp_path: Path):
    registry = SubAgentRegistry(tmp_path / "agents")

    def add(request):
        write(tmp_path / "agents", "reader")
        registry.reload()
        return says("", call("1", "ls"))

    def remove(request):
        (tmp_path / "agents" / "reader.md").unlink()
        registry.reload()
        return says("", call("2", "ls"))

    model = Turns(add, remove, says("ok"))
    await family(model, subagents=registry).ainvoke("go")
    assert [one.splitlines()[1] for one in notices(model.requests[-1])] == [
        "New:", "No longer there: reader.",
    ]  # fmt: skip


async def test_once_a_summary_has_cut_the_notice_the_prompt_is_made_anew(tmp_path: Path):
    registry = SubAgentRegistry(tmp_path / "agents")

    def add(request):
        write(tmp_path / "agents", "reader")
        registry.reload()
        return says("", call("0", "ls"))

    class Summarising(Turns):
        async def stream(self, request):
            self.requests.append(request)
            if request.agent == "summarization":
                yield says("It looked around.")
            elif len(self.requests) == 1:
                yield add(request)
            elif len(self.requests) < 12:
                at = len(self.requests)
                yield says("", call(f"c{at}", "write_file", path=f"/{at}", content="x"))
            else:
                yield says("ok")

    model = Summarising()
    sizes = {"trigger": ("messages", 8), "keep": ("messages", 2)}
    profile = Profile(extra_middleware={"SummarizationMiddleware": sizes})
    result = await family(model, subagents=registry, profile=profile).ainvoke("go")
    assert result.run.status == "done"
    own = [one for one in model.requests if one.agent == "main"]
    assert "reader" not in prompt(own[0])
    assert notices(own[1])
    assert not notices(own[-1])
    assert "- reader: Reads." in prompt(own[-1])


async def test_the_section_and_the_tool_can_be_described_in_other_words():
    registry = SubAgentRegistry(None, builtin=(), given=[SubAgent("x", "X.", "p")])

    def build(definition):
        raise AssertionError

    own = SubAgentMiddleware(
        registry, build, system_prompt=lambda who: f"Ask {', '.join(who)}.",
        task_description="Ask a colleague.",
    )  # fmt: skip
    from deep_agent_mcp.harness.agent import create_agent

    model = Turns(says("ok"))
    await create_agent(model, middleware=[own]).ainvoke("go")
    (request,) = model.requests
    assert prompt(request) == "Ask x."
    assert [one.description for one in request.tools] == ["Ask a colleague."]


def test_texts():
    assert section({}) == "Subagents for the `task` tool:\n(none at present)"
    assert notice({"a": "x"}, {"a": "x", "b": "y"}).endswith("changed.]\nNew:\n- b: y")
