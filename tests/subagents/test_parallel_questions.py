"""Eight parallel subagents whose questions are answered in no order, by changing processes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.messages.message import AIMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import call, says
from tests.subagents.family import Cast, family, task, told

pytestmark = pytest.mark.anyio

CHILDREN = 8
ROUNDS = 3
APPROVE = {"decision": "approve"}


@pytest.mark.parametrize("seed", range(3))
async def test_questions_are_answered_a_few_at_a_time_and_every_call_runs_once(
    journal: MemoryCheckpointer, seed: int
) -> None:
    acts = Counter[str]()

    @tool
    async def act(what: str) -> str:
        """Act."""
        acts[what] += 1
        return f"did {what}"

    def work(request: ChatRequest) -> AIMessage:
        name = request.messages[0].text
        place = sum(isinstance(one, AIMessage) for one in request.messages)
        if place == ROUNDS:
            return says(f"report of {name}")
        tag = f"{name}-{place}"
        write = call(f"{tag}-w", "write_file", path=f"/{name}.txt", content=tag)
        return says("", call(tag, "act", what=tag), write)

    def build() -> Agent:
        tasks = [task(f"c{n}", f"n{n}", "worker") for n in range(CHILDREN)]
        return family(
            Cast(main=[says("", *tasks), says("done")], worker=[work] * (ROUNDS + 1)),
            [act],
            subagents=[SubAgent("worker", "Works.", "You work.")],
            checkpointer=journal,
            interrupt_on={"act": True},
        )

    chance = random.Random(seed)
    result = await build().ainvoke("go", thread_id="t")
    while result.interrupts:
        asked = result.interrupts
        assert [one.path for one in asked] == sorted(one.path for one in asked)
        assert {one.path[:1] + one.path[2:3] for one in asked} == {("main", "worker")}
        some = chance.sample(list(asked), chance.randint(1, len(asked)))
        result = await build().aresume(result.run.id, {one.id: APPROVE for one in some})
        untouched = {one.id for one in asked} - {one.id for one in some}
        assert untouched <= {one.id for one in result.interrupts}, "their questions stay theirs"
    assert result.run.answer == "done"
    assert acts == {f"n{n}-{m}": 1 for n in range(CHILDREN) for m in range(ROUNDS)}
    reports = [one.text.split("\n")[0] for one in told(result)]
    assert reports == [f"report of n{n}" for n in range(CHILDREN)]
    files = {path: one.content for path, one in result.state["files"].items()}
    assert files == {f"/n{n}.txt": f"n{n}-{ROUNDS - 1}" for n in range(CHILDREN)}
