"""What the caller of one run chooses for it: schema, model, effort, limits; kept with the run."""

import json
import time
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.run.choices import RunChoices
from deep_agent_mcp.harness.messages.message import ToolCall, Usage
from deep_agent_mcp.harness.models.settings import effort_settings
from deep_agent_mcp.harness.profiles import Profile
from deep_agent_mcp.harness.structured_output.given_schemas import InvalidSchema, checked_schema
from deep_agent_mcp.harness.structured_output.schemas import SchemaMismatch, members_of
from deep_agent_mcp.harness.subagents.background.launcher import BackgroundSubAgents
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from tests.loop.models import Turns, call, says

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("looks_at_files_each_time")]

TOWN = {
    "title": "town",
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["name", "people"],
}
BERN = {"name": "Bern", "people": 134_000}


class Weather(BaseModel):
    sky: str


def options(**chosen: object) -> RunOptions:
    return RunOptions(choices=RunChoices(**chosen))  # type: ignore[arg-type]


def answers(**data: object) -> object:
    return says("", call(f"c{len(str(data))}", "town", **data))


async def test_an_answer_that_does_not_fit_the_chosen_schema_is_repaired():
    model = Turns(answers(name="Bern"), answers(**BERN))  # type: ignore[arg-type]
    result = await create_agent(model).ainvoke("Which?", options=options(output_schema=TOWN))
    assert result.structured_response == BERN
    assert json.loads(result.run.answer or "") == BERN


async def test_a_resumed_run_keeps_its_choices_whoever_goes_on_with_it():
    journal, asks = MemoryCheckpointer(), {"write_file": True}
    writes = says("", call("w", "write_file", path="/a", content="a"))

    def agent() -> Agent:
        model = Turns(writes, answers(**BERN))  # type: ignore[arg-type]
        return create_deep_agent(model, checkpointer=journal, interrupt_on=asks)

    begun = await agent().ainvoke("Go", options=options(output_schema=TOWN, seconds=50))
    assert begun.run.status == "needs_approval"
    other = agent()
    result = await other.aresume(begun.run.id, {begun.interrupts[0].id: {"decision": "approve"}})
    assert (result.run.status, result.structured_response) == ("done", BERN)
    assert await other.choices_of(begun.run.id) == RunChoices(TOWN, seconds=50)


async def test_choices_hold_for_one_run_and_not_for_the_next_on_its_thread():
    model = Turns(answers(**BERN), says("Just words."))  # type: ignore[arg-type]
    agent = create_agent(model)
    first = await agent.ainvoke("Which?", options=options(output_schema=TOWN))
    second = await agent.ainvoke("And now?", thread_id=first.run.thread_id)
    assert second.run.answer == "Just words."
    assert await agent.choices_of(first.run.id) == RunChoices(TOWN)
    assert await agent.choices_of(second.run.id) is None


async def test_a_chosen_schema_takes_the_place_of_the_agents_own_for_one_run():
    journal = MemoryCheckpointer()
    turns = (answers(**BERN), says("", call("w", "Weather", sky="blue")))

    def agent() -> Agent:  # with nothing in its caches
        return create_agent(Turns(*turns), response_format=Weather, checkpointer=journal)  # type: ignore[arg-type]

    first = await agent().ainvoke("Which?", options=options(output_schema=TOWN))
    assert first.structured_response == BERN
    second = await agent().ainvoke("The sky?", thread_id=first.run.thread_id)
    assert second.structured_response == Weather(sky="blue")
    assert json.loads(second.run.answer or "") == {"sky": "blue"}


@pytest.mark.parametrize("kind", ["own", "callers", "fork"])
async def test_choices_of_a_driven_task_hold_for_its_subagent(kind: str, tmp_path: Path):
    chosen = script(tmp_path / "chosen.yaml", {"*": [{"tool_calls": [town()]}]})
    own = script(tmp_path / "own.yaml", {"*": [{"text": "not me"}]})
    sub = SubAgent(
        "scout", "Scouts.", "You scout.", model=own if kind == "own" else None,
        mode="fork" if kind == "fork" else "fresh",
    )  # fmt: skip
    agent = create_deep_agent(Turns(says("nor me")), subagents=[sub])
    task = ToolCall("t", "task", {"description": "Which?", "subagent_type": "scout"})
    result = await agent.adrive([task], options=options(output_schema=TOWN, model=chosen))
    (answer,) = result.results
    assert isinstance(answer.artifact, dict)
    assert answer.artifact["answer"] == BERN


async def test_a_chosen_model_answers_with_its_profile_and_for_subagents_too(tmp_path: Path):
    hands_over = {"id": "t", "name": "task", "args": {"description": "Look."}}
    turns = {"main": [{"tool_calls": [hands_over]}, {"text": "Both."}], "*": [{"text": "Looked."}]}
    chosen = script(tmp_path / "chosen.yaml", turns)
    agent = create_deep_agent(Turns())
    result = await agent.ainvoke("Go", options=options(model=chosen))
    assert result.run.answer == "Both."
    models = {one.model for one in result.used.ledger}
    assert models == {"scripted:chosen"}


def test_a_deep_agent_is_built_anew_with_the_profile_of_the_chosen_model():
    agent = create_deep_agent("anthropic:claude-sonnet-5-5", profile=Profile())
    other = agent.definition.with_model("openai:gpt-5.2-codex", "high")
    assert other.settings == {"output_config": {"effort": "high"}}
    assert other.model.name == "openai:gpt-5.2-codex"
    assert other is agent.definition.with_model("openai:gpt-5.2-codex", "high")
    assert agent.definition.settings == {}


def test_background_tasks_stay_those_of_the_agent_as_it_was_built():
    background = BackgroundSubAgents(MemoryCheckpointer())
    agent = create_deep_agent("anthropic:claude-sonnet-5-5", background=background)
    agent.definition.with_model("openai:gpt-5.2-codex")
    assert background.main is agent


async def test_effort_reaches_the_model_as_a_setting():
    model = Turns(says("ok"))
    model.name = "anthropic:claude-sonnet-5-5"
    await create_deep_agent(model).ainvoke("Go", options=options(effort="low"))
    assert model.requests[0].settings["output_config"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("model", "effort"),
    [("scripted:a", "low"), ("anthropic:claude-haiku-4-5", "low"), ("openai:gpt-5.2", "much"),
     ("anthropic:claude-sonnet-5-5", "minimal")],
)  # fmt: skip
def test_an_effort_a_model_does_not_take_is_refused(model: str, effort: str):
    with pytest.raises(HarnessError, match="effort"):
        effort_settings(model, effort)


async def test_chosen_limits_only_narrow_and_hold_for_the_run():
    usage = Usage(input_tokens=600)
    turns = [says("", call(f"c{n}", "ls", path="/")) for n in range(9)]
    model = Turns(*(type(one)(one.content, usage=usage) for one in turns))
    agent = create_deep_agent(model, limits=Limits(tokens=100_000))
    result = await agent.ainvoke("Go", options=options(tokens=1_000))
    assert result.stop_reason == "tokens"
    wider = RunChoices(tokens=200_000, seconds=5).narrow(Limits(tokens=100_000))
    assert (wider.tokens, wider.seconds) == (100_000, 5)


async def test_nothing_begins_with_a_model_that_is_not_there():
    journal = MemoryCheckpointer()
    agent = create_agent(Turns(says("no")), checkpointer=journal)
    with pytest.raises(HarnessError, match="unknown model"):
        await agent.ainvoke("Go", thread_id="thr_1", options=options(model="nobody:x"))
    assert await journal.load("thr_1") is None


def bomb() -> dict[str, object]:
    """A small schema that is as large as a library once its references are written out."""
    defs: dict[str, object] = {"d0": {"type": "string"}}
    for n in range(1, 31):
        last = {"$ref": f"#/$defs/d{n - 1}"}
        defs[f"d{n}"] = {"allOf": [last, last]}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d30"}}, "$defs": defs}


NESTED: dict[str, object] = {"type": "object", "properties": {}}
for _ in range(40):
    NESTED = {"type": "object", "properties": {"inner": NESTED}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": {"type": "string"}}, "schema of an object"),
        ({"type": "nonsense"}, "schema of an object"),
        ({}, "schema of an object"),
        ({"type": "object", "properties": []}, "not a JSON schema"),
        ({"type": "object", "properties": {"a": {"type": 7}}}, "not a JSON schema"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}}, "has no target"),
        ({"type": "object", "properties": {"a": {"$ref": "http://h/x"}}}, "has no target"),
        ({"type": "object", "properties": {"a": {"$dynamicRef": "http://h/x"}}}, "dynamicRef"),
        ({"type": "object", "description": "x" * 40_000, "properties": {}}, "bytes"),
        (NESTED, "levels"),
        (bomb(), "parts"),
    ],
)
def test_what_cannot_be_the_format_of_an_answer_is_refused(schema: dict[str, object], why: str):
    with pytest.raises(InvalidSchema, match=why):
        checked_schema(schema)  # type: ignore[arg-type]


def test_a_comparison_that_would_take_long_ends_in_a_second():
    (member,) = members_of(bomb()).values()
    began = time.monotonic()
    assert member.open_at is None
    with pytest.raises(SchemaMismatch, match="too long"):
        member.parse({"a": "text"})
    assert time.monotonic() - began < 5


def test_a_schema_that_refers_to_itself_without_end_is_a_mismatch():
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
              "$defs": {"a": {"$ref": "#/$defs/a"}}}  # fmt: skip
    (member,) = members_of(checked_schema(schema)).values()  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatch, match="without end"):
        member.parse({"a": 1})


def test_a_schema_with_the_name_of_a_tool_gets_another():
    assert checked_schema({**TOWN, "title": "ls"}, ["ls"])["title"] == "final_answer"


def town() -> dict[str, object]:
    return {"id": "c", "name": "town", "args": BERN}


def script(path: Path, agents: dict[str, object]) -> str:
    path.write_text(yaml.safe_dump({"name": path.stem, "agents": agents}), encoding="utf-8")
    return f"scripted:{path}"
