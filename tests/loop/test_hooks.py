"""Node hooks: their order, what they return, where they jump, what they send."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.errors import InvalidUpdate, MiddlewareError
from deep_agent_mcp.harness.loop.hooks.decorators import (
    after_agent,
    after_model,
    before_agent,
    before_model,
)
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import Command, Send
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

DECORATORS = {
    "before_agent": before_agent,
    "before_model": before_model,
    "after_model": after_model,
    "after_agent": after_agent,
}
NODES = tuple(DECORATORS)
WRAPS = ("wrap_model_call", "wrap_tool_call")


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def hook(kind, function, jumps=("model", "tools", "end"), name="hk"):
    return DECORATORS[kind](can_jump_to=list(jumps), name=name)(function)


def first_time(result):
    """A hook that returns this once and then nothing."""
    left = [result]
    return lambda state, runtime: left.pop() if left else None


def logger(kind, name, log, result=None):
    return hook(kind, lambda state, runtime: log.append(name) or result, name=name)


def texts(result) -> list[str]:
    return [one.text for one in result.state["messages"]]


def pairs(result) -> bool:
    """Whether every call has exactly one result, in call order, before the next answer."""
    transcript = result.state["messages"]
    for place, message in enumerate(transcript):
        if isinstance(message, AIMessage):
            following = []
            for one in transcript[place + 1 :]:
                if isinstance(one, AIMessage):
                    break
                following += [one.tool_call_id] if isinstance(one, ToolMessage) else []
            if following != [one.id for one in message.tool_calls]:
                return False
    return True


ADD = says("", call("1", "add", a=1, b=2))


# --- order ---------------------------------------------------------------------------------


def recorder(name: str, kinds: dict[str, bool], log: list[str]) -> AgentMiddleware:
    """A middleware with these hooks, each async or not, that log."""

    def node(kind, waits):
        def sync_hook(self, state, runtime):
            log.append(f"{name}.{kind}")

        async def async_hook(self, state, runtime):
            await anyio.lowlevel.checkpoint()
            log.append(f"{name}.{kind}")

        return async_hook if waits else sync_hook

    def wrap(kind, waits):
        def sync_wrap(self, request, handler):
            log.append(f"{name}>{kind}")
            result = handler(request)
            log.append(f"{name}<{kind}")
            return result

        async def async_wrap(self, request, handler):
            log.append(f"{name}>{kind}")
            result = await handler(request)
            log.append(f"{name}<{kind}")
            return result

        return async_wrap if waits else sync_wrap

    made = {kind: (node if kind in NODES else wrap)(kind, kinds[kind]) for kind in kinds}
    return type(name, (AgentMiddleware,), made)()


def onion(stack: dict[str, dict[str, bool]], rounds: int) -> list[str]:
    """The order DESIGN promises: in, through the wraps, and out again."""

    def before(kind):
        return [f"{name}.{kind}" for name, kinds in stack.items() if kind in kinds]

    def after(kind):
        return before(kind)[::-1]

    def around(kind):
        names = [name for name, kinds in stack.items() if kind in kinds]
        return [f"{name}>{kind}" for name in names] + [f"{name}<{kind}" for name in names[::-1]]

    model = [*before("before_model"), *around("wrap_model_call"), *after("after_model")]
    tools = around("wrap_tool_call")
    loop = [*model, *(tools + model) * rounds]
    return [*before("before_agent"), *loop, *after("after_agent")]


stacks = st.lists(
    st.dictionaries(st.sampled_from([*NODES, *WRAPS]), st.booleans(), max_size=6), max_size=4
).map(lambda all_kinds: {f"M{n}": kinds for n, kinds in enumerate(all_kinds)})


@given(stack=stacks, rounds=st.integers(0, 2))
def test_hooks_of_any_stack_run_as_an_onion(stack, rounds):
    log: list[str] = []
    middleware = [recorder(name, kinds, log) for name, kinds in stack.items()]
    turns = [says("", call(str(n), "add", a=n, b=n)) for n in range(rounds)]
    agent = create_agent(Turns(*turns, says("end")), [add], middleware=middleware)
    assert anyio.run(agent.ainvoke, "go").run.answer == "end"
    assert log == onion(stack, rounds)


async def test_agent_hooks_run_again_for_the_next_run_on_the_thread():
    log: list[str] = []
    hooks = [logger("before_agent", "in", log), logger("after_agent", "out", log)]
    agent = create_agent(Turns(says("1"), says("2")), middleware=hooks)
    for text in ("a", "b"):
        await agent.ainvoke(text, thread_id="t")
    assert log == ["in", "out", "in", "out"]


async def test_a_run_that_waited_does_not_begin_again():
    log: list[str] = []
    hooks = [logger("before_agent", "in", log), logger("before_model", "model", log),
             logger("after_model", "answered", log)]  # fmt: skip
    policy = Policy((Rule("ask", "add"),))
    agent = create_agent(Turns(ADD, says("end")), [add], middleware=hooks, policy=policy)
    waiting = await agent.ainvoke("go")
    assert log == ["in", "model", "answered"]
    await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: {"decision": "approve"}})
    assert log == ["in", *["model", "answered"] * 2]


# --- what hooks return ---------------------------------------------------------------------


async def test_hooks_of_one_phase_see_what_the_earlier_ones_wrote_and_share_a_step():
    def note(text):
        return lambda state, runtime: {
            "messages": [HumanMessage(f"{len(state['messages'])} {text}", source="x")]
        }

    hooks = [hook("before_agent", note("a"), name="a"), hook("before_agent", note("b"), name="b")]
    agent = create_agent(Turns(says("end")), middleware=hooks)
    result = await agent.ainvoke("go", thread_id="t")
    assert texts(result) == ["go", "1 a", "2 b", "end"]
    assert [one.author for one in await agent.get_state_history("t")] == ["model", "input"]


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize(
    ("nonsense", "error", "text"),
    [
        (["x"], MiddlewareError, "returned list; return None, a mapping"),
        ("end", MiddlewareError, "returned str"),
        (Command(5), MiddlewareError, "`update` is a mapping"),  # type: ignore[arg-type]
        (Command(send=["add"]), MiddlewareError, "list of Send(tool, args)"),  # type: ignore[list-item]
        (Command({"jump_to": "end"}), InvalidUpdate, "undeclared state 'jump_to'"),
        ({"nope": 1}, InvalidUpdate, "undeclared state 'nope'"),
        ({"messages": 5}, InvalidUpdate, "'messages' was given a wrong value"),
        ({"messages": [RemoveMessage("9")]}, InvalidUpdate, "cannot remove message '9'"),
    ],
)
async def test_nonsense_fails_the_run_by_the_hooks_name_and_the_thread_goes_on(
    kind, nonsense, error, text
):
    agent = create_agent(
        Turns(says("x"), says("y"), says("z")), middleware=[hook(kind, first_time(nonsense))]
    )
    result = await agent.ainvoke("go", thread_id="t")
    assert (result.run.status, type(result.error)) == ("failed", error)
    assert f"hk.{kind}" in str(result.error)
    assert text in str(result.error)
    assert (await agent.aresume(result.run.id)).run.status == "done"


async def test_the_runtime_tells_where_the_run_is_and_takes_events():
    seen, events = [], []

    async def look(state, runtime):
        seen.append(runtime)
        runtime.stream_writer({"n": len(seen)})

    store = object()
    agent = create_agent(
        Turns(ADD, says("end")), [add], middleware=[hook("before_model", look)], store=store,
        name="ann",
    )  # fmt: skip
    options = RunOptions(run_id="run_1", context={"user": 1}, emit=events.append, modes=["custom"])
    await agent.ainvoke("go", thread_id="t", options=options)
    first, second = seen
    assert (first.thread_id, first.run_id, first.ns, first.attempt) == ("t", "run_1", "", 1)
    assert (first.agent_name, first.agent_path) == ("ann", ("ann",))
    assert first.context == {"user": 1}
    assert first.store is store
    history = [one.id for one in await agent.get_state_history("t")]
    assert (first.checkpoint_id, second.checkpoint_id) == (history[-1], history[1])
    assert [(one.data, one.path) for one in events] == [
        ({"data": {"n": 1}}, ("ann",)), ({"data": {"n": 2}}, ("ann",)),
    ]  # fmt: skip


# --- jumps ---------------------------------------------------------------------------------


async def test_a_jump_holds_for_one_step_and_leaves_no_trace_in_the_state():
    back = hook("after_agent", first_time({"jump_to": "model"}))
    agent = create_agent(Turns(says("1"), says("2"), says("3")), middleware=[back])
    result = await agent.ainvoke("go", thread_id="t")
    assert texts(result) == ["go", "1", "2"]
    assert "jump_to" not in result.state
    assert texts(await agent.ainvoke("on", thread_id="t"))[-1] == "3"


async def test_end_skips_the_rest_of_the_phase_but_not_after_agent():
    log: list[str] = []
    hooks = [
        logger("after_model", "outer", log), logger("after_agent", "leave", log),
        logger("after_model", "inner", log, {"jump_to": "end"}),
    ]  # fmt: skip
    result = await create_agent(Turns(ADD), [add], middleware=hooks).ainvoke("go")
    assert (result.run.status, log) == ("done", ["inner", "leave"])


async def test_before_agent_may_end_the_run_before_the_model():
    log: list[str] = []
    hooks = [
        hook("before_agent", lambda state, runtime: {"jump_to": "end"}),
        logger("before_agent", "second", log), logger("after_agent", "leave", log),
    ]  # fmt: skip
    model = Turns()
    result = await create_agent(model, middleware=hooks).ainvoke("go")
    assert (result.run.status, log, model.requests) == ("done", ["leave"], [])


async def test_model_means_through_before_model_again():
    log: list[str] = []
    hooks = [
        logger("before_model", "before", log), logger("before_agent", "begin", log),
        hook("after_model", first_time({"jump_to": "model"})),
    ]  # fmt: skip
    result = await create_agent(Turns(says("1"), says("2")), middleware=hooks).ainvoke("go")
    assert (texts(result), log) == (["go", "1", "2"], ["begin", "before", "before"])


@pytest.mark.parametrize("kind", ["before_agent", "before_model"])
async def test_calls_that_a_hook_wrote_may_be_jumped_to(kind):
    written = AIMessage(ADD.content, source="hk")
    jump = hook(kind, first_time({"messages": [written], "jump_to": "tools"}))
    result = await create_agent(Turns(says("end")), [add], middleware=[jump]).ainvoke("go")
    assert texts(result) == ["go", "", "3", "end"]


async def test_calls_that_a_hook_answered_go_back_to_the_model_without_running():
    def answer(state, runtime):
        calls = state["messages"][-1].tool_calls
        return {"messages": [ToolMessage(one.id, "no need") for one in calls]}

    result = await create_agent(
        Turns(ADD, says("end")), [add], middleware=[hook("after_model", answer)]
    ).ainvoke("go")
    assert texts(result) == ["go", "", "no need", "end"]


async def test_calls_that_a_jump_to_the_model_passes_over_are_answered():
    jump = hook("after_model", first_time({"jump_to": "model"}))
    result = await create_agent(Turns(ADD, says("end")), [add], middleware=[jump]).ainvoke("go")
    (told,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert (told.tool_call_id, told.status) == ("1", "error")
    assert "add did not run: hk.after_model went back to the model" in told.text
    assert pairs(result)


# --- Send ----------------------------------------------------------------------------------

SENT = Command(send=[Send("add", {"a": 4, "b": 4}), Send("nope"), Send("add", {"a": 5, "b": 5})])


@pytest.mark.parametrize("kind", NODES)
@pytest.mark.parametrize("answer", [ADD, says("text")], ids=["calls", "text"])
async def test_calls_that_a_hook_sends_run_in_order_and_are_paired(kind, answer):
    model = Turns(answer, says("end"), says("end"))
    result = await create_agent(
        model, [add], middleware=[hook(kind, first_time(SENT))]
    ).ainvoke("go")  # fmt: skip
    told = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [one.text for one in told if one.text in ("8", "10")] == ["8", "10"]
    assert any("no tool 'nope'" in one.text for one in told)
    assert result.run.status == "done"
    assert pairs(result)


async def test_what_a_hook_sends_passes_the_gate_and_survives_the_wait():
    agent = create_agent(
        Turns(says("end")), [add], middleware=[hook("before_model", first_time(SENT))],
        policy=Policy((Rule("ask", "add"),)),
    )  # fmt: skip
    waiting = await agent.ainvoke("go")
    assert [one.payload["args"] for one in waiting.interrupts] == [
        {"a": 4, "b": 4}, {"a": 5, "b": 5},
    ]  # fmt: skip
    answers = [{"decision": "reject"}, {"decision": "approve"}]
    done = await agent.aresume(
        waiting.run.id, dict(zip([one.id for one in waiting.interrupts], answers, strict=True))
    )
    told = [one for one in done.state["messages"] if isinstance(one, ToolMessage)]
    assert [one.status for one in told] == ["error", "error", "success"]
    assert pairs(done)


@pytest.mark.parametrize(
    ("command", "jumps", "text"),
    [
        (SENT, ("end",), "jumped to 'tools' without declaring it"),
        (Command(send=[Send("add")], jump_to="end"), ("end", "tools"), "sent calls and jumped to"),
    ],
)
async def test_a_wrong_send_is_an_error_that_names_the_hook(command, jumps, text):
    one = hook("before_model", first_time(command), jumps)
    result = await create_agent(Turns(says("x")), [add], middleware=[one]).ainvoke("go")
    assert isinstance(result.error, MiddlewareError)
    assert "hk.before_model" in str(result.error)
    assert text in str(result.error)
