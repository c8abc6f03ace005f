"""What hooks are handed: immutable requests that change through `override`,
and what of them reaches the model."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_model_call, wrap_tool_call
from deep_agent_mcp.harness.loop.hooks.requests import ModelRequest, ModelResponse
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolCall
from deep_agent_mcp.harness.models.base import PromptSection
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
BASE = PromptSection("agent", "Be kind.", cache=True)


async def model_request(model=None, tools=(add, multiply, SEARCH), *changes, **options):
    """Run once with wrappers that each change the request; return the request that came first."""
    seen = []

    @wrap_model_call(name="look")
    async def look(request, handler):
        seen.append(request)
        return await handler(request)

    layers = [look, *(_changing(n, change) for n, change in enumerate(changes))]
    agent = create_agent(
        model or Turns(says("end")), tools, system_prompt=[BASE], middleware=layers, **options
    )
    result = await agent.ainvoke("go")
    assert result.run.status == "done", result.run.reason
    return seen[0]


def _changing(n, change):
    @wrap_model_call(name=f"layer {n}")
    async def layer(request, handler):
        return await handler(change(request))

    return layer


async def test_a_request_tells_everything_about_the_call():
    model = Turns(says("end"))
    request = await model_request(model)
    assert request.model is model
    assert [one.text for one in request.messages] == ["go"]
    assert request.system == (BASE,)
    assert request.tools == (add, multiply, SEARCH)
    assert (request.tool_choice, dict(request.settings)) == ("auto", {})
    assert (request.response_format, request.cache_tools, request.cache_messages) == (
        None,
        False,
        (),
    )
    assert request.state["messages"] is request.messages
    assert request.runtime.agent_name == "agent"


OVERRIDES = {
    "model": Turns(),
    "messages": (HumanMessage("other"),),
    "system": (PromptSection("x", "y"),),
    "tools": (add,),
    "tool_choice": "any",
    "settings": {"max_tokens": 5},
    "response_format": {"title": "T", "type": "object", "properties": {}},
    "cache_tools": True,
    "cache_messages": (0,),
}


@pytest.mark.parametrize("field", OVERRIDES)
async def test_override_copies_and_everything_else_keeps_its_identity(field):
    request = await model_request()
    before = {one.name: getattr(request, one.name) for one in fields(request)}
    changed = request.override(**{field: OVERRIDES[field]})
    assert changed is not request
    assert getattr(changed, field) is OVERRIDES[field]
    for name, value in before.items():
        assert getattr(request, name) is value
        if name != field:
            assert getattr(changed, name) is value


async def test_overrides_chain_and_the_last_one_counts():
    request = await model_request()
    one = request.override(tool_choice="any").override(settings={"a": 1}).override(tools=[])
    assert (one.tool_choice, one.settings, one.tools) == ("any", {"a": 1}, [])
    assert one.override(tool_choice="none").tool_choice == "none"
    assert request.override() == request


async def test_requests_and_responses_cannot_be_changed_in_place():
    request = await model_request()
    for thing, name in (
        (request, "tools"), (request.runtime, "context"), (ModelResponse(says("x")), "message"),
    ):  # fmt: skip
        with pytest.raises(FrozenInstanceError):
            setattr(thing, name, None)


@pytest.mark.parametrize("wrong", ["system_prompt", "system_message", "nope"])
async def test_a_field_that_is_not_there_is_refused(wrong):
    request = await model_request()
    with pytest.raises(TypeError, match=wrong):
        request.override(**{wrong: "x"})


# --- what reaches the model ----------------------------------------------------------------


async def test_sections_keep_order_and_cache_marks_through_all_layers():
    model = Turns(says("end"))
    await model_request(
        model,
        (add,),
        lambda one: one.with_section("first", "1."),
        lambda one: one.override(
            system=[*one.system[:1], PromptSection("mid", "2.", cache=True), *one.system[1:]]
        ),
        lambda one: one.with_section("last", "3."),
    )
    assert list(model.requests[0].system) == [
        BASE, PromptSection("mid", "2.", cache=True), PromptSection("first", "1."),
        PromptSection("last", "3."),
    ]  # fmt: skip


async def test_the_system_prompt_is_not_in_the_transcript_and_may_be_empty():
    model = Turns(says("end"))
    result = await create_agent(model, system_prompt="Be brief.").ainvoke("go")
    assert [one.text for one in model.requests[0].system] == ["Be brief."]
    assert [one.text for one in result.state["messages"]] == ["go", "end"]
    model = Turns(says("end"))
    await create_agent(model).ainvoke("go")
    assert list(model.requests[0].system) == []


async def test_settings_choice_and_message_marks_arrive():
    model = Turns(says("end"))
    await model_request(
        model,
        (add,),
        lambda one: one.override(settings={**one.settings, "max_tokens": 9}, tool_choice="add"),
        lambda one: one.override(settings={**one.settings, "top_k": 1}, cache_messages=[0]),
    )
    (asked,) = model.requests
    assert asked.settings == {"max_tokens": 9, "top_k": 1}
    assert (asked.tool_choice, list(asked.cache_messages)) == ("add", [0])


@pytest.mark.parametrize(
    ("choose", "names"),
    [
        (lambda tools: tools, ["add", "multiply", "web_search"]),
        (lambda tools: tools[::-1], ["web_search", "multiply", "add"]),
        (lambda tools: tools[1:], ["multiply", "web_search"]),
        (lambda tools: (), []),
        (lambda tools: [SEARCH], ["web_search"]),
        (lambda tools: [replace(add, description="Sum.")], ["add"]),
    ],
)
async def test_tools_are_offered_as_chosen_per_call(choose, names):
    model = Turns(says("end"))
    await model_request(
        model, (add, multiply, SEARCH), lambda one: one.override(tools=choose(one.tools))
    )
    offered = model.requests[0].tools
    assert [one.name if isinstance(one, ToolSpec) else one["name"] for one in offered] == names


async def test_the_cache_mark_stands_after_the_last_tool_of_ours():
    model = Turns(says("end"))
    await model_request(model, (add, multiply, SEARCH), lambda one: one.override(cache_tools=True))
    first, second, search = model.requests[0].tools
    assert isinstance(first, ToolSpec) and isinstance(second, ToolSpec)
    assert (first.cache, second.cache, search) == (False, True, SEARCH)
    assert not add.spec().cache


async def test_a_tool_left_out_of_a_request_can_still_be_run_when_it_is_called():
    model = Turns(says("", call("1", "multiply", a=3, b=4)), says("end"))
    request = await model_request(model, (add, multiply), lambda one: one.override(tools=[add]))
    assert isinstance(request, ModelRequest)
    assert model.requests[1].messages[-1].text == "12"


async def test_another_model_is_asked_only_where_it_was_put():
    own, other = Turns(says("", call("1", "add", a=1, b=1)), says("own")), Turns(says("other"))
    other.turns = (says(""), says("other"))
    result = await create_agent(
        own, [add],
        middleware=[
            _changing(0, lambda one: one.override(model=other) if len(one.messages) > 1 else one)
        ],
    ).ainvoke("go")  # fmt: skip
    assert result.run.answer == "other"
    assert (len(own.requests), len(other.requests)) == (1, 1)


async def test_answers_carry_the_agents_name_and_requests_name_who_asks():
    model = Turns(says("", call("1", "add", a=1, b=1)), says("end"))
    result = await create_agent(model, [add], name="ann").ainvoke("go")
    answers = [one for one in result.state["messages"] if isinstance(one, AIMessage)]
    assert [one.name for one in answers] == ["ann", "ann"]
    assert [one.agent for one in model.requests] == ["ann", "ann"]


# --- tool calls ----------------------------------------------------------------------------


async def test_a_tool_call_request_is_a_copy_too_and_does_not_touch_the_transcript():
    seen = []

    @wrap_tool_call(name="look")
    async def look(request, handler):
        changed = request.override(call=replace(request.call, args={"a": 5, "b": 5}))
        seen.extend([request, changed])
        return await handler(changed)

    model = Turns(says("", call("1", "add", a=1, b=1)), says("end"))
    result = await create_agent(model, [add], middleware=[look]).ainvoke("go")
    request, changed = seen
    assert request.call == ToolCall("1", "add", {"a": 1, "b": 1})
    assert changed.tool is request.tool
    assert changed.runtime is request.runtime
    assert changed.state is request.runtime.state
    assert result.state["messages"][1].tool_calls == (request.call,)
    assert result.state["messages"][2].text == "10"
    with pytest.raises(FrozenInstanceError):
        request.call = changed.call
    with pytest.raises(TypeError, match="state"):
        request.override(state={})


# --- tools as the model sees them ----------------------------------------------------------


async def test_tools_in_a_list_are_shown_as_they_are_now():
    tools = [add]
    request = (await model_request()).override(tools=tools)
    assert [one.name for one in request.tool_specs()] == ["add"]
    tools.append(multiply)
    assert [one.name for one in request.tool_specs()] == ["add", "multiply"]
    assert request.override(cache_tools=True).tool_specs()[-1].cache


async def test_lists_do_not_crowd_out_what_is_remembered_of_the_agents_own_tools():
    request = (await model_request()).override(cache_tools=True)
    shown = request.tool_specs()[1]
    for _ in range(200):
        request.override(tools=[add]).tool_specs()
    assert request.tool_specs()[1] is shown


async def test_what_is_done_to_a_list_of_specs_is_done_to_nobody_elses():
    request = await model_request()
    request.tool_specs().clear()
    assert [one.name for one in request.tool_specs()[:2]] == ["add", "multiply"]
