"""What `wrap_model_call` may do with a model call, and what becomes of its updates."""

from typing import Annotated, NotRequired, TypedDict

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.errors import InvalidUpdate, MiddlewareError, ModelError
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.hooks.decorators import wrap_model_call
from deep_agent_mcp.harness.loop.hooks.requests import (
    Command,
    ExtendedModelResponse,
    ModelResponse,
)
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage
from deep_agent_mcp.harness.state.channels import Reducer
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio


class Notes(TypedDict):
    notes: NotRequired[Annotated[list[str], Reducer(lambda old, new: old + new, default=list)]]
    last: NotRequired[str]


def wrap(function, name=None):
    return wrap_model_call(name=name or function.__name__, state_schema=Notes)(function)


def noting(name: str, **more):
    async def note(request, handler):
        response = await handler(request)
        return response.with_update(notes=[name], **more)

    return wrap(note, name)


async def run(model, *middleware, **options):
    return await create_agent(model, middleware=middleware, **options).ainvoke("go")


# --- how often and with what the model is asked --------------------------------------------


async def test_a_wrapper_may_try_again_until_the_model_answers():
    failures = [ModelError("529"), ModelError("529")]

    def flaky(request):
        if failures:
            raise failures.pop()
        return says("at last")

    async def retry(request, handler):
        for _ in range(3):
            try:
                return await handler(request)
            except ModelError as error:
                last = error
        raise last

    model = Turns(flaky)
    result = await run(model, wrap(retry))
    assert (result.run.answer, len(model.requests)) == ("at last", 3)
    assert result.used.model_calls == 3


async def test_every_attempt_counts_against_the_limits():
    async def stubborn(request, handler):
        while True:
            try:
                return await handler(request)
            except ModelError:
                pass

    agent = create_agent(Turns(ModelError("529")), middleware=[wrap(stubborn)])
    result = await agent.ainvoke("go", options=RunOptions(limits=Limits(model_calls=4)))
    assert (result.run.status, result.stop_reason) == ("failed", "model_calls")


async def test_an_error_may_become_an_answer():
    async def soften(request, handler):
        try:
            return await handler(request)
        except ModelError as error:
            return says(f"sorry: {error}")

    result = await run(Turns(ModelError("down")), wrap(soften))
    assert (result.run.status, result.run.answer) == ("done", "sorry: down")


async def test_a_wrapper_may_answer_without_the_model_and_inner_ones_are_not_asked():
    log = []

    async def canned(request, handler):
        return AIMessage(says("from the shelf").content)

    async def inner(request, handler):
        log.append("inner")
        return await handler(request)

    model = Turns()
    result = await run(model, wrap(canned), wrap(inner))
    assert (result.run.answer, model.requests, log) == ("from the shelf", [], [])


async def test_several_models_may_be_asked_and_one_answer_goes_on():
    cheap, dear = Turns(says("hm")), Turns(says("certainly"))

    async def compare(request, handler):
        first = await handler(request.override(model=cheap))
        second = await handler(request.override(model=dear))
        assert (first.message.text, second.message.text) == ("hm", "certainly")
        return second

    own = Turns()
    result = await run(own, wrap(compare))
    assert [one.text for one in result.state["messages"]] == ["go", "certainly"]
    assert [len(one.requests) for one in (own, cheap, dear)] == [0, 1, 1]


async def test_models_may_race_and_the_slower_one_is_cancelled():
    slow, fast = Turns(says("slow")), Turns(says("fast"))
    slow.gate = anyio.Event()
    ended = []

    async def race(request, handler):
        answers = []

        async def ask(model):
            try:
                answers.append(await handler(request.override(model=model)))
                group.cancel_scope.cancel()
            finally:
                ended.append(model)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, slow)
            await slow.asked.wait()
            group.start_soon(ask, fast)
        return answers[0]

    with anyio.fail_after(5):
        result = await run(Turns(), wrap(race))
    assert result.run.answer == "fast"
    assert set(ended) == {slow, fast}


async def test_requests_and_responses_are_rewritten_layer_by_layer():
    def layer(name):
        async def rewrite(request, handler):
            messages = [*request.messages, HumanMessage(f"{name} asks", source=name)]
            response = await handler(request.override(messages=messages))
            return says(f"{name}({response.message.text})")

        return wrap(rewrite, name)

    model = Turns(says("core"))
    result = await run(model, layer("A"), layer("B"), layer("C"))
    assert [one.text for one in model.requests[0].messages] == [
        "go", "A asks", "B asks", "C asks",
    ]  # fmt: skip
    assert result.run.answer == "A(B(C(core)))"
    # What was only shown to the model is not in the transcript.
    assert [one.text for one in result.state["messages"]] == ["go", "A(B(C(core)))"]


async def test_the_inner_of_two_wrappers_retries_without_the_outer_noticing():
    log = []

    async def outer(request, handler):
        log.append("outer")
        return await handler(request)

    async def inner(request, handler):
        for _ in range(2):
            log.append("inner")
            response = await handler(request)
        return response

    model = Turns(says("x"))
    await run(model, wrap(outer), wrap(inner))
    assert (log, len(model.requests)) == (["outer", "inner", "inner"], 2)


async def test_state_and_runtime_are_the_same_in_every_layer_and_attempt():
    seen = []

    def layer(name):
        async def look(request, handler):
            seen.append((request.state, request.runtime))
            return await handler(request.override(settings={name: 1}))

        return wrap(look, name)

    model = Turns(says("x"))
    await run(model, layer("A"), layer("B"), layer("C"))
    assert len(seen) == 3
    assert all(state is seen[0][0] and runtime is seen[0][1] for state, runtime in seen)
    assert seen[0][1].agent_name == "agent"
    assert model.requests[0].settings == {"C": 1}


# --- updates -------------------------------------------------------------------------------


async def test_updates_are_made_inner_first():
    result = await run(Turns(says("x")), noting("A"), noting("B"), noting("C"))
    assert result.state["notes"] == ["C", "B", "A"]


async def test_updates_of_an_attempt_that_was_repeated_are_dropped_with_it():
    async def twice(request, handler):
        await handler(request)
        return await handler(request)

    attempts = iter(["first", "second"])

    async def inner(request, handler):
        response = await handler(request)
        return response.with_update(notes=[next(attempts)])

    result = await run(Turns(says("x")), noting("outer"), wrap(twice), wrap(inner))
    assert result.state["notes"] == ["second", "outer"]


async def test_the_updates_that_count_are_those_of_the_response_handed_on():
    attempts = iter(["first", "second"])

    async def best(request, handler):
        first = await handler(request)
        await handler(request)
        return first

    async def inner(request, handler):
        await handler(request)
        name = next(attempts)
        return ModelResponse(says(name)).with_update(notes=[name])

    result = await run(Turns(says("x")), wrap(best), wrap(inner))
    assert (result.run.answer, result.state["notes"]) == ("first", ["first"])


@pytest.mark.parametrize("bare", [True, False])
async def test_a_rewritten_answer_keeps_the_updates_from_within(bare):
    async def shout(request, handler):
        response = await handler(request)
        loud = says(response.message.text.upper())
        return loud if bare else ModelResponse(loud)

    result = await run(Turns(says("x")), wrap(shout), noting("inner"))
    assert (result.run.answer, result.state["notes"]) == ("X", ["inner"])


async def test_an_answer_of_ones_own_may_bring_updates():
    async def canned(request, handler):
        return ExtendedModelResponse(says("shelf"), update={"notes": ["a"], "last": "b"})

    result = await run(Turns(), wrap(canned))
    assert (result.state["notes"], result.state["last"]) == (["a"], "b")


async def test_messages_of_an_update_follow_the_answer():
    async def remind(request, handler):
        response = await handler(request)
        if len(request.messages) > 1:
            return response
        reminder = HumanMessage("be brief", source="remind")
        return response.with_update(messages=[reminder])

    result = await run(Turns(says("x")), wrap(remind))
    assert [one.text for one in result.state["messages"]] == ["go", "x", "be brief"]


async def test_answer_and_updates_are_one_checkpoint():
    agent = create_agent(Turns(says("x")), middleware=[noting("A", last="l")])
    await agent.ainvoke("go", thread_id="t")
    history = await agent.get_state_history("t")
    assert [one.author for one in history] == ["model", "input"]
    values = (await agent.get_state("t", history[0].id)).values
    assert (values["notes"], values["last"]) == (["A"], "l")
    before = (await agent.get_state("t", history[1].id)).values
    assert (before["notes"], "last" in before) == ([], False)


async def test_two_wrappers_that_write_one_plain_key_fail_the_run_and_both_are_named():
    agent = create_agent(
        Turns(says("x")), middleware=[noting("A", last="a"), noting("B", last="b")]
    )
    result = await agent.ainvoke("go", thread_id="t")
    assert isinstance(result.error, MiddlewareError)
    assert "B.wrap_model_call and A.wrap_model_call both wrote 'last'" in str(result.error)
    assert "last" not in (await agent.get_state("t")).values


# --- nonsense ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nonsense", "text"),
    [
        (None, "returned NoneType; return the handler's ModelResponse"),
        ("hello", "returned str"),
        (HumanMessage("hello"), "returned HumanMessage"),
        (Command({"last": "x"}, jump_to="end"), "returned Command"),
        (ModelResponse("hello"), "returned ModelResponse"),  # type: ignore[arg-type]
        (ExtendedModelResponse(says("x"), update=None), "an update maps state keys; got None"),  # type: ignore[arg-type]
    ],
)
async def test_nonsense_fails_the_run_and_names_the_wrapper(nonsense, text):
    async def odd(request, handler):
        return nonsense

    result = await run(Turns(says("x")), wrap(odd))
    assert isinstance(result.error, MiddlewareError)
    assert str(result.error).startswith("odd.wrap_model_call")
    assert text in str(result.error)
    assert [one.text for one in result.state["messages"]] == ["go"]


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"color": "red"}, "odd.wrap_model_call wrote undeclared state 'color'"),
        ({"last": 5}, "odd.wrap_model_call: 'last' was given a wrong value"),
        ({"notes": 5}, "odd.wrap_model_call: 'notes' was given a wrong value"),
    ],
)
async def test_an_update_that_does_not_fit_names_wrapper_and_key(update, text):
    result = await run(Turns(says("x")), noting_only(update))
    assert isinstance(result.error, InvalidUpdate)
    assert text in str(result.error)


def noting_only(update):
    async def odd(request, handler):
        return (await handler(request)).with_update(**update)

    return wrap(odd)


async def test_what_a_wrapper_raises_names_it_and_a_models_error_stays_itself():
    async def broken(request, handler):
        raise KeyError("oops")

    async def passing(request, handler):
        return await handler(request)

    result = await run(Turns(says("x")), wrap(passing), wrap(broken))
    assert str(result.error) == "broken.wrap_model_call raised KeyError: 'oops'"
    result = await run(Turns(ModelError("no credit", kind="auth")), wrap(passing))
    assert isinstance(result.error, ModelError)
    assert result.error.kind == "auth"


async def test_a_failed_run_goes_on_where_the_wrapper_broke():
    broken = [True]

    async def once(request, handler):
        if broken:
            raise KeyError(broken.pop())
        return await handler(request)

    agent = create_agent(Turns(says("x")), middleware=[wrap(once)])
    failed = await agent.ainvoke("go")
    assert failed.run.status == "failed"
    assert (await agent.aresume(failed.run.id)).run.answer == "x"


async def test_calls_in_an_answer_that_a_wrapper_made_are_run_and_paired():
    from deep_agent_mcp.harness.tools.tool import tool

    @tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def plan(request, handler):
        if len(request.messages) == 1:
            return says("", call("1", "add", a=1, b=2))
        return await handler(request)

    agent = create_agent(Turns(says("never"), says("three")), [add], middleware=[wrap(plan)])
    result = await agent.ainvoke("go")
    assert [one.text for one in result.state["messages"]] == ["go", "", "3", "three"]
