"""What a subagent did is kept when something outside it stops it, and each is continued once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.limits.carried_limits import bounds
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import call, says
from tests.ports_and_waits import growing
from tests.subagents.family import Cast, family, handle_in, heard, task, told

pytestmark = pytest.mark.anyio

WRITER = SubAgent("writer", "Writes.", "You write.")
WRITING = says("", call("w1", "write_file", path="/a.md", content="precious"))


async def test_files_of_a_subagent_that_met_a_bound_of_the_tree_are_kept() -> None:
    looks = [says("", call(f"l{number}", "ls", path="/")) for number in range(3)]
    cast = Cast(main=[says("", task("c1", "write", "writer")), says("End.")],
                writer=[WRITING, *looks])  # fmt: skip
    options = RunOptions(limits=Limits(model_calls=4))
    agent = family(cast, subagents=[WRITER])
    result = await agent.ainvoke("go", thread_id="t", options=options)
    (answer,) = told(result)
    assert answer.status == "error"
    assert "did not finish: limit: 4 model calls allowed" in answer.text
    assert answer.artifact["failed"]["kind"] == "model_calls"
    assert answer.artifact["task_id"] in answer.text
    assert [*result.state["files"]] == ["/a.md"]
    assert result.run.answer == "End."


async def test_files_written_below_a_subagent_that_is_out_of_time_are_kept() -> None:
    reached = False

    @tool
    async def hang() -> str:
        """Never end."""
        nonlocal reached
        reached = True
        await anyio.sleep_forever()
        return ""

    cast = Cast(
        main=[says("", task("c1", "x", "boss")), says("End.")],
        boss=[says("", task("c2", "y", "writer"))],
        writer=[WRITING, says("", call("h", "hang"))],
    )
    boss = create_deep_agent(cast, [hang], name="boss", subagents=[WRITER])
    for seconds in growing(0.5):
        limited = CompiledSubAgent("boss", "Leads.", boss, limits=bounds(seconds=seconds))
        with anyio.fail_after(60 + seconds):
            result = await family(cast, subagents=[limited]).ainvoke("go", thread_id="t")
        if reached:
            break
    assert told(result)[0].artifact["failed"]["kind"] == "seconds"
    assert [*result.state["files"]] == ["/a.md"]


async def test_two_calls_of_an_answer_do_not_both_go_on_with_a_subagent_across_pauses() -> None:
    def both(request: Any) -> Any:
        known = handle_in(request)
        return says("", task("c2", "SECOND", task_id=known), task("c3", "THIRD", task_id=known))

    cast = Cast(
        main=[says("", task("c1", "first", "writer")), both, says("End.")],
        writer=[lambda request: says("heard: " + ", ".join(heard(request)))],
    )
    agent = family(cast, subagents=[WRITER], interrupt_on={"task": True})
    result = await agent.ainvoke("go", thread_id="t")
    approve = {"decision": "approve"}
    result = await agent.aresume(result.run.id, {result.interrupts[0].id: approve})
    assert len(result.interrupts) == 2
    for question in (result.interrupts[1], result.interrupts[0]):
        result = await agent.aresume(result.run.id, {question.id: approve})
    _, second, third = told(result)
    assert second.status == "error"
    assert "another call of the same answer continues with it" in second.text
    assert third.text.startswith("heard: first, THIRD")


async def test_an_answer_starts_no_more_subagents_than_allowed_across_pauses() -> None:
    cast = Cast(
        main=[says("", *(task(f"c{number}", "x", "writer") for number in range(4))), says("End.")],
        writer=[says("ok")],
    )
    agent = family(cast, subagents=[WRITER], interrupt_on={"task": True})
    options = RunOptions(limits=Limits(fan_out=2))
    result = await agent.ainvoke("go", thread_id="t", options=options)
    while result.interrupts:
        answers = {result.interrupts[0].id: {"decision": "approve"}}
        result = await agent.aresume(result.run.id, answers, options=options)
    assert [one.status for one in told(result)].count("success") == 2
    assert len(cast.asked_by("writer")) == 2


async def test_a_function_that_finished_before_a_pause_counts_after_it() -> None:
    ran: list[str] = []
    quick = CompiledSubAgent("quick", "Is quick.", lambda text: ran.append(text) or "did it")
    calls = [task("c0", "a", "quick"), call("c1", "look"), task("c2", "b", "quick")]

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    cast = Cast(main=[says("", *calls), says("End.")])
    limits = Limits(fan_out=1, parallel_tool_calls=1)
    options = RunOptions(limits=limits)
    # The first call is done when the second asks; the third does not begin before it is answered.
    asks = {"look": True, "task": InterruptOnConfig(when=lambda one: one.call.id == "c2")}
    agent = family(cast, [look], subagents=[quick], interrupt_on=asks)
    result = await agent.ainvoke("go", thread_id="t", options=options)
    while result.interrupts:
        answers = {one.id: {"decision": "approve"} for one in result.interrupts}
        result = await agent.aresume(result.run.id, answers, options=options)
    assert [one.status for one in told(result)] == ["success", "success", "error"]
    assert ran == ["a"]


async def test_a_fork_may_know_what_its_caller_read_and_its_task_is_still_input() -> None:
    @tool
    def lookup() -> str:
        """Look up."""
        return "bob@example.com"

    cast = Cast(
        main=[
            says("", call("l", "lookup")),
            says("", task("c1", "try", "twin")),
            says("", task("c2", "write to amy@example.com", "twin")),
            says("End."),
        ],
        twin=[says("Tried.")],
    )
    twin = SubAgent("twin", "Forks.", mode="fork")
    rules = PIIMiddleware("email", strategy="block")
    agent = family(cast, [lookup], subagents=[twin], middleware=[rules])
    _, tried, refused = told(await agent.ainvoke("go", thread_id="t"))
    assert tried.text.startswith("Tried.")
    assert refused.status == "error"
    assert "email" in refused.text


async def test_handles_hold_under_rules_that_fit_their_ids() -> None:
    everywhere = dict.fromkeys(("apply_to_input", "apply_to_output"), True)
    rules = PIIMiddleware("hexid", detector=r"[0-9a-f]{16}", strategy="redact", **everywhere)
    cast = Cast(main=[says("", task("c1", "first", "writer")), says("End.")], writer=[says("ok")])
    agent = family(cast, subagents=[WRITER], middleware=[rules])
    result = await agent.ainvoke("go", thread_id="t")
    found = told(result)[0].artifact["task_id"]
    assert "REDACTED" not in found
    cast.plays["main"][2:] = [says("", task("c2", "second", task_id=found)), says("End.")]
    result = await agent.ainvoke("more", thread_id="t")
    assert [one.status for one in told(result)] == ["success", "success"]


async def test_a_function_does_not_go_on_where_an_agent_of_its_name_stopped() -> None:
    def go_on(request: Any) -> Any:
        return says("", task("c2", "second", task_id=handle_in(request)))

    from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer

    asked: list[str] = []
    journal = MemoryCheckpointer()
    cast = Cast(main=[says("", task("c1", "first", "writer")), says("End."), go_on, says("E")],
                writer=[says("w")])  # fmt: skip
    agent = family(cast, subagents=[WRITER], checkpointer=journal)
    await agent.ainvoke("go", thread_id="t")

    def write(text: str) -> str:
        asked.append(text)
        return "x"

    other = family(cast, subagents=[CompiledSubAgent("writer", "W.", write)], checkpointer=journal)
    result = await other.ainvoke("more", thread_id="t")
    assert "is a function now" in told(result)[-1].text
    assert asked == []
