"""How much of each request a provider's prompt cache finds again, over runs of the whole stack."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.messages.message import ToolCall
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.profiles import Profile
from deep_agent_mcp.harness.skills import SkillRegistry
from tests.fake_anthropic import Answer
from tests.fake_anthropic.prompt_cache import LOOKBACK, CachingAnthropic, Lookup, blocks_of
from tests.models.calls import claude
from tests.skills.folders import write_skill

pytestmark = pytest.mark.anyio

STEADY = 0.9
"""The bar: the part of a request that comes from the cache when nothing had to change."""

SUMMARISER = "You condense the older part"
SUMMARY = Answer(match=SUMMARISER, text="It looked around.", repeat=True)


def use(tool: str, **args: Any) -> Answer:
    return Answer(tool_calls=[{"name": tool, "input": args}])


def todos(*statuses: str) -> Answer:
    items = [{"content": f"Part {at}", "status": status} for at, status in enumerate(statuses, 1)]
    return use("write_todos", todos=items)


ROUNDS = [
    todos("in_progress", "pending", "pending"),
    use("skill", name="surveying"),
    use("read_file", path="/AGENTS.md"),
    use("edit_file", path="/AGENTS.md", old_string="spaces", new_string="tabs"),
    todos("completed", "in_progress", "pending"),
    Answer(
        thinking="Two at once.",
        tool_calls=[
            {"name": "read_file", "input": {"path": "/long.txt"}},
            {"name": "write_file", "input": {"path": "/notes.md", "content": "Found it.\n" * 20}},
        ],
    ),
    use("grep", pattern="line 1"),
    todos("completed", "completed", "in_progress"),
    use("read_file", path="/notes.md"),
    use("ls", path="/"),
    todos("completed", "completed", "completed"),
]
"""Todos change, a skill is loaded and the memory edited."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "AGENTS.md").write_text("Indent with spaces.\n" + "A rule to follow.\n" * 40)
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(200)))
    write_skill(tmp_path / "skills", "surveying", body="Measure twice.\n" * 30)
    write_skill(tmp_path / "skills", "drawing")
    return root


def build(model: AnthropicModel, root: Path, **more: Any) -> Agent:
    return create_deep_agent(
        model,
        backend=DirectoryBackend(root),
        memory=MemoryFiles([root / "AGENTS.md"]),
        skills=SkillRegistry([root.parent / "skills"]),
        **more,
    )


def summarising(messages: int) -> Profile:
    """A profile whose view is summarised at this many messages, and keeps four."""
    sizes = {"trigger": ("messages", messages), "keep": ("messages", 4)}
    return Profile(extra_middleware={"SummarizationMiddleware": sizes})


def is_summary(body: Mapping[str, Any]) -> bool:
    return SUMMARISER in json.dumps(body["system"])


def plain(body: Mapping[str, Any], part: str) -> list[str]:
    """A part of a request, block by block, without breakpoints."""
    blocks = (
        body[part]
        if part != "messages"
        else [
            {"role": message["role"], **block}
            for message in body["messages"]
            for block in message["content"]
        ]
    )
    return [
        json.dumps({key: block[key] for key in block if key != "cache_control"}) for block in blocks
    ]


def kept(body: Mapping[str, Any]) -> list[str]:
    """The blocks of the messages without the reminder that only this view has."""
    blocks = plain(body, "messages")
    return blocks[:-1] if "Your todo list now." in blocks[-1] else blocks


def asked(api: CachingAnthropic) -> list[tuple[dict[str, Any], Lookup]]:
    """The agent's own requests, and what each found in the cache."""
    assert {one.refused for one in api.recorded} == {None}
    both = zip(api.requests, api.lookups, strict=True)
    return [(body, found) for body, found in both if not is_summary(body)]


async def test_each_request_begins_with_the_whole_one_before(root: Path) -> None:
    async with CachingAnthropic([*ROUNDS, "Done."]) as api, claude(api.url) as model:
        result = await build(model, root).ainvoke("Survey the files.")
        assert result.run.answer == "Done."
    requests = asked(api)
    assert len(requests) == len(ROUNDS) + 1
    notices = "memory files changed"
    assert notices in json.dumps(requests[-1][0]["messages"])
    for (before, _), (after, found) in pairwise(requests):
        assert plain(after, "tools") == plain(before, "tools")
        assert plain(after, "system") == plain(before, "system")
        assert plain(after, "messages")[: len(kept(before))] == kept(before)
        new = sum(map(len, plain(after, "messages")[len(kept(before)) :]))
        # What was not there before is all that is paid for.
        assert found.whole - found.read <= 1.1 * new + 100
    rates = [found.hit_rate for _, found in requests[1:]]
    assert sum(rates) / len(rates) >= STEADY
    (line,) = result.used.ledger
    assert line.cache_hit_rate >= 0.8


async def test_a_summary_costs_the_messages_but_not_tools_and_prompt(root: Path) -> None:
    async with CachingAnthropic([SUMMARY, *ROUNDS, "Done."]) as api, claude(api.url) as model:
        result = await build(model, root, profile=summarising(18)).ainvoke("Survey the files.")
        assert result.run.answer == "Done."
    requests = asked(api)
    assert len(api.requests) == len(requests) + 1, "one summary"
    cuts = [
        at
        for at, ((before, _), (after, _)) in enumerate(pairwise(requests), 1)
        if plain(after, "messages")[: len(kept(before))] != kept(before)
    ]
    # The notice of the memory's change stays for one call more. Then the prompt's volatile end says
    # it, which what follows would have had to be paid for anyway.
    cut, anew = cuts
    assert anew == cut + 1
    assert plain(requests[anew][0], "system") != plain(requests[cut][0], "system")
    for at, (body, found) in enumerate(requests):
        if at == cut:
            assert plain(body, "system") == plain(requests[at - 1][0], "system")
            static = len(body["tools"]) + len(body["system"])
            assert found.read >= sum(len(text) for text, _ in blocks_of(body)[:static])
    steady = [found.hit_rate for at, (_, found) in enumerate(requests) if at and at not in cuts]
    assert len(steady) >= 8
    assert sum(steady) / len(steady) >= STEADY


async def test_another_thread_finds_tools_and_stable_prompt_though_memory_differs(
    root: Path,
) -> None:
    answers = [*ROUNDS, "Done.", "Hello."]
    async with CachingAnthropic(answers) as api, claude(api.url) as model:
        agent = build(model, root)
        await agent.ainvoke("Survey the files.", thread_id="first")
        await agent.ainvoke("Hello.", thread_id="second")
    body, found = asked(api)[-1]
    first = asked(api)[0][0]
    assert plain(body, "tools") == plain(first, "tools")
    stable, volatile = plain(body, "system")
    assert [stable] == plain(first, "system")[:1]
    assert "Indent with tabs." in volatile, "the memory was edited"
    shared = len(body["tools"]) + 1
    assert found.read == sum(len(text) for text, _ in blocks_of(body)[:shared])


async def test_driven_calls_between_two_model_calls_cost_only_themselves(root: Path) -> None:
    async with CachingAnthropic([*ROUNDS[:3], "Done.", "Well."]) as api, claude(api.url) as model:
        agent = build(model, root)
        await agent.ainvoke("Survey the files.", thread_id="t")
        for turn in range(2):
            calls = [ToolCall(f"c{turn}_{one}", "ls", {"path": "/"}) for one in range(LOOKBACK)]
            await agent.adrive(calls, thread_id="t")
        await agent.ainvoke("And now?", thread_id="t")
    before, after = asked(api)[-2:]
    assert after[1].read >= before[1].whole
