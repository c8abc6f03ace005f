"""An answer that was cut off, or is empty, is never reported as finished."""

from __future__ import annotations

from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import ModelError, UnfinishedAnswer
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.decorators import after_model
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ThinkingBlock
from deep_agent_mcp.harness.tools.tool import tool
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.loop.models import Turns, call, says
from tests.loop.streaming import read
from tests.loop.test_dropped_deltas import shown
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

WHOLE = "The quick brown fox jumps over the lazy dog."
MARK = "\n\n[The answer was cut off here.]"
REASONS = ["max_tokens", "model_context_window_exceeded"]


@tool
async def write(text: str = "") -> str:
    """Write."""
    written.append(text)
    return "written"


written: list[str] = []


def pieces(count: int, reason: str = "max_tokens") -> list[Answer]:
    """Return the beginning of an answer in so many pieces, each cut off."""
    size = len(WHOLE) // (count + 1)
    parts = [WHOLE[n * size : (n + 1) * size] for n in range(count)]
    return [Answer(text=one, stop_reason=reason) for one in parts]


def rest(count: int) -> Answer:
    return Answer(text=WHOLE[count * (len(WHOLE) // (count + 1)) :])


# --- answers that were cut off --------------------------------------------------------------


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("hooked", [False, True])
async def test_an_answer_that_was_cut_off_goes_on_where_it_stopped(
    count: int, reason: str, hooked: bool
) -> None:
    @after_model
    def watch(state: Any, runtime: Any) -> None: ...

    async with FakeAnthropic([*pieces(count, reason), rest(count)]) as api, claude(api.url) as m:
        agent = create_agent(m, middleware=[watch] if hooked else [])
        events, result = await read(agent, "messages", "tasks")
    assert (result.run.status, result.run.answer, result.run.reason) == ("done", WHOLE, None)
    assert shown(events).replace("|", "") == WHOLE
    assert result.used.model_calls == len(api.requests) == count + 1
    *_, asked = api.requests[-1]["messages"]
    assert asked["role"] == "user"  # newer models refuse to go on from their own words
    assert "Go on exactly where it stopped" in asked["content"][-1]["text"]


@pytest.mark.parametrize("reason", [*REASONS, "pause_turn"])
async def test_an_answer_that_is_cut_off_again_and_again_fails_and_is_marked(reason: str) -> None:
    cuts = [Answer(text=one, stop_reason=reason) for one in ("One, ", "two, ", "three, ", "four")]
    async with FakeAnthropic(cuts) as api, claude(api.url) as model:
        agent = create_agent(model)
        failed = await agent.ainvoke("count")
        assert failed.run.status == "failed"
        assert isinstance(failed.error, UnfinishedAnswer)
        assert f"cut off 4 times ({reason})" in (failed.run.reason or "")
        answer = failed.run.answer or ""
        assert answer.endswith(f"four{MARK}")
        api.add(", five.")
        resumed = await agent.aresume(failed.run.id)
    assert (resumed.run.status, resumed.run.reason) == ("done", None)
    assert resumed.run.answer == answer.removesuffix(MARK) + ", five."


async def test_a_search_that_pauses_without_end_is_asked_for_an_answer() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    pauses = [Answer(blocks=[search], stop_reason="pause_turn")] * 9  # what the adapter bears
    async with FakeAnthropic([*pauses, "It is so."]) as api, claude(api.url) as model:
        result = await create_agent(model).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "It is so.")
    assert len(api.requests) == 10


async def test_a_new_message_goes_before_the_rest_of_a_cut_off_answer() -> None:
    async with FakeAnthropic([*pieces(4)]) as api, claude(api.url) as model:
        agent = create_agent(model)
        failed = await agent.ainvoke("tell me", thread_id="t")
        assert failed.run.status == "failed"
        api.add("Four.")
        result = await agent.ainvoke("2 + 2?", thread_id="t")
    assert result.run.answer == "Four."
    assert "Go on exactly" not in api.requests[-1]["messages"][-1]["content"][-1]["text"]


async def test_thinking_that_leaves_no_room_is_not_an_answer() -> None:
    thought = Answer(blocks=[{"type": "thinking", "thinking": "hm", "signature": ""}],
                     stop_reason="max_tokens")  # fmt: skip
    async with FakeAnthropic([thought, "Short."]) as api, claude(api.url) as model:
        result = await create_agent(model).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "Short.")
    (sent,) = api.requests[-1]["messages"]
    assert "before it said anything" in sent["content"][-1]["text"]


async def test_pieces_are_stored_so_that_a_failure_in_between_repeats_none(tmp_path: Any) -> None:
    script = [*pieces(1), Answer(status=401)]
    async with (
        FakeAnthropic(script) as api,
        claude(api.url) as model,
        SqliteCheckpointer(tmp_path / "journal.db") as journal,
    ):
        failed = await create_agent(model, checkpointer=journal).ainvoke("go")
        assert failed.run.status == "failed"
        api.add(rest(1))
        result = await create_agent(model, checkpointer=journal).aresume(failed.run.id)
    assert result.run.answer == WHOLE
    assert len(api.requests) == 3


async def test_what_no_longer_fits_the_window_is_said_to_be_cut_off() -> None:
    too_long = Answer(status=400, message="prompt is too long: 9 tokens > 8")
    script = [*pieces(1, "model_context_window_exceeded"), too_long]
    async with FakeAnthropic(script) as api, claude(api.url) as model:
        result = await create_agent(model).ainvoke("go")
    assert result.run.status == "failed"
    assert "cut off once (model_context_window_exceeded)" in (result.run.reason or "")
    assert result.run.answer == WHOLE[:22] + MARK


async def test_a_limit_that_is_met_meanwhile_is_the_reason() -> None:
    async with FakeAnthropic([*pieces(3)]) as api, claude(api.url) as model:
        agent = create_agent(model, limits=Limits(model_calls=2))
        result = await agent.ainvoke("go")
    assert (result.run.status, result.stop_reason) == ("failed", "model_calls")


# --- calls that were cut off ----------------------------------------------------------------


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("raw", ["", '{"text": "a', '{"text": "a"', "{"])
async def test_a_call_that_was_cut_off_does_not_run_and_those_before_it_do(
    raw: str, reason: str
) -> None:
    written.clear()
    calls = [{"name": "write", "input": {"text": "whole"}}, {"name": "write", "raw": raw}]
    cut = Answer(text="I write", tool_calls=calls, stop_reason=reason)
    async with FakeAnthropic([cut, "Done."]) as api, claude(api.url) as model:
        result = await create_agent(model, [write]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "Done.")
    assert written == ["whole"]
    results = [one for one in result.state["messages"] if one.type == "tool"]
    assert [one.status for one in results] == ["success", "error"]
    assert "in smaller parts" in results[1].text


# --- empty answers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "empty", [Answer(), Answer(text="  \n"), Answer(thinking="hm"), Answer(redacted="b64==")]
)
async def test_an_empty_answer_is_asked_for_once_more(empty: Answer) -> None:
    looks = Answer(text="I write.", tool_calls=[{"name": "write"}])
    async with FakeAnthropic([looks, empty, "It is written."]) as api, claude(api.url) as model:
        result = await create_agent(model, [write]).ainvoke("go")
    assert (result.run.status, result.run.answer) == ("done", "It is written.")
    assert len(api.requests) == 3


async def test_an_answer_that_stays_empty_is_a_failure_that_says_so() -> None:
    async with FakeAnthropic([Answer(), Answer()]) as api, claude(api.url) as model:
        agent = create_agent(model)
        failed = await agent.ainvoke("go")
        assert (failed.run.status, failed.run.answer) == ("failed", "")
        assert "answer was empty, also when it was asked for it again" in (failed.run.reason or "")
        api.add("Here.")
        assert (await agent.aresume(failed.run.id)).run.answer == "Here."


# --- subagents ------------------------------------------------------------------------------


def delegates(*answers: Answer | str) -> list[Answer | str]:
    task = {"name": "task", "input": {"description": "dig deep"}}
    return [Answer(tool_calls=[task]), *answers]


async def test_a_parent_gets_the_whole_report_of_a_subagent_that_was_cut_off() -> None:
    script = delegates(*pieces(2), rest(2), "Done.")
    async with FakeAnthropic(script) as api, claude(api.url) as model:
        result = await create_deep_agent(model).ainvoke("go")
    (report,) = [one for one in result.state["messages"] if one.type == "tool"]
    assert (result.run.answer, report.status) == ("Done.", "success")
    assert report.text.startswith(f"{WHOLE}\n\n[")


async def test_a_parent_is_told_that_a_report_is_cut_off_or_empty() -> None:
    for answers, why, said in (
        (pieces(4), "cut off 4 times (max_tokens)", f"{WHOLE[:32]}{MARK}"),
        ([Answer(), Answer()], "answer was empty", ""),
    ):
        async with FakeAnthropic(delegates(*answers, "Done.")) as api, claude(api.url) as model:
            result = await create_deep_agent(model).ainvoke("go")
        (report,) = [one for one in result.state["messages"] if one.type == "tool"]
        assert (result.run.answer, report.status) == ("Done.", "error")
        assert why in report.text
        assert report.text.endswith(said)
        assert ("What it said until then" in report.text) == bool(said)


# --- what is left alone ---------------------------------------------------------------------


async def test_answers_of_middleware_are_taken_as_they_are() -> None:
    @after_model(can_jump_to=["end"])
    def stop(state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [AIMessage((), source="stop")], "jump_to": "end"}

    agent = create_agent(Turns(says("", call("1", "write"))), [write], middleware=[stop])
    assert (await agent.ainvoke("go")).run.status == "done"


async def test_a_structured_answer_that_was_cut_off_is_repaired_and_not_gone_on_with() -> None:
    schema = {"title": "Fact", "type": "object", "properties": {"text": {"type": "string"}}}
    script = [Answer(text='{"text": "ha', stop_reason="max_tokens"), '{"text": "half"}']
    async with FakeAnthropic(script) as api, claude(api.url) as model:
        result = await create_agent(model, response_format=schema).ainvoke("go")
    assert result.structured_response == {"text": "half"}
    assert "Go on exactly" not in str(api.requests[-1]["messages"])


async def test_other_models_say_that_they_were_cut_off_in_the_same_words() -> None:
    half = AIMessage((ThinkingBlock("hm"), *says("Half ").content), stop_reason="max_tokens")
    model = Turns(half, says("an answer."))
    result = await create_agent(model).ainvoke("go")
    assert result.run.answer == "Half an answer."
    assert isinstance(model.requests[1].messages[-1], HumanMessage)
    assert issubclass(UnfinishedAnswer, ModelError)
