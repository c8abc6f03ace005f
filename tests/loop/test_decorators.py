"""Middleware from functions, and how hooks are found and checked."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NotRequired, TypedDict

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.errors import AgentBuildError, MiddlewareError
from deep_agent_mcp.harness.loop.hooks.decorators import (
    after_agent,
    after_model,
    before_agent,
    before_model,
    dynamic_prompt,
    wrap_model_call,
    wrap_tool_call,
)
from deep_agent_mcp.harness.loop.hooks.middleware import (
    AgentMiddleware,
    check_middleware,
    hook_config,
    hooks_of,
    is_async_hook,
    jumps_of,
)
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.models.base import PromptSection
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

NODES: dict[str, Callable[..., Any]] = {
    "before_agent": before_agent,
    "before_model": before_model,
    "after_model": after_model,
    "after_agent": after_agent,
}
WRAPS: dict[str, Callable[..., Any]] = {
    "wrap_model_call": wrap_model_call,
    "wrap_tool_call": wrap_tool_call,
}
DECORATORS = {**NODES, **WRAPS}


class Counted(TypedDict):
    count: NotRequired[int]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# --- what a decorator makes ----------------------------------------------------------------


@pytest.mark.parametrize("hook", DECORATORS)
def test_a_decorated_function_is_middleware_with_one_hook_and_the_functions_name(hook):
    @DECORATORS[hook]
    def watch(first, second):
        return None

    @DECORATORS[hook]()
    async def watch_async(first, second):
        return None

    for made, name in ((watch, "watch"), (watch_async, "watch_async")):
        assert isinstance(made, AgentMiddleware)
        assert (made.name, repr(made)) == (name, f"<@{hook} {name}>")
        assert [one for one in DECORATORS if hooks_of([made], one)] == [hook]
        assert jumps_of(made, hook) == frozenset()
        check_middleware(made)
    assert not is_async_hook(watch, hook)
    assert is_async_hook(watch_async, hook)


@pytest.mark.parametrize("hook", DECORATORS)
def test_options_of_a_decorator(hook):
    def double(a: int) -> int:
        return 2 * a

    made = DECORATORS[hook](state_schema=Counted, tools=[add, double], name="other")(
        lambda first, second: None
    )
    assert (made.name, made.state_schema) == ("other", Counted)
    assert [one.name for one in made.tools] == ["add", "double"]
    assert AgentMiddleware.state_schema is None


@pytest.mark.parametrize("hook", NODES)
def test_jumps_belong_to_one_use_of_a_function(hook):
    def go(state, runtime):
        return None

    jumping = NODES[hook](can_jump_to=["end", "model"])(go)
    assert jumps_of(jumping, hook) == {"end", "model"}
    assert jumps_of(NODES[hook](go), hook) == frozenset()
    marked = hook_config(can_jump_to=["tools"])(go)
    assert jumps_of(NODES[hook](marked), hook) == {"tools"}
    assert jumps_of(NODES[hook](can_jump_to=[])(marked), hook) == frozenset()


class Watcher:
    def watch(self, state, runtime):
        return None


async def _quiet(state, runtime, extra):
    return None


@pytest.mark.parametrize(
    ("function", "name", "waits"),
    [
        (Watcher().watch, "watch", False),
        (functools.partial(_quiet, extra=1), "_quiet", True),
    ],
)
def test_methods_and_partials_can_be_decorated(function, name, waits):
    made = before_model(function)
    assert (made.name, is_async_hook(made, "before_model")) == (name, waits)


@pytest.mark.parametrize("decorator", [*DECORATORS.values(), dynamic_prompt])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda decorate: decorate(Watcher), "decorates a function"),
        (lambda decorate: decorate("before_model"), "decorates a function"),
        (lambda decorate: decorate(before_model(lambda s, r: None, name="x")), "a function"),
        (lambda decorate: decorate(lambda *_: None), "a lambda needs a name"),
        (lambda decorate: decorate(name="x")(lambda: None), "is a function of ("),
        (lambda decorate: decorate(_three), "is a function of ("),
        (lambda decorate: decorate(jump_to=["end"]), "has no option jump_to; it takes"),
    ],
)
def test_wrong_use_says_what_is_expected(decorator, wrong, text):
    with pytest.raises(AgentBuildError) as caught:
        wrong(decorator)
    assert text in str(caught.value)
    assert "@" in str(caught.value)


def _three(one, two, three):
    return None


def test_only_hooks_that_can_jump_take_can_jump_to():
    for decorator in (*WRAPS.values(), dynamic_prompt):
        with pytest.raises(AgentBuildError, match="no option can_jump_to"):
            decorator(can_jump_to=["end"])
    with pytest.raises(AgentBuildError, match="can_jump_to accepts model, tools, end"):
        before_model(can_jump_to=["__end__"])(_two)  # type: ignore[list-item]


def _two(state, runtime):
    return None


def test_a_generator_is_no_hook():
    def stream(state, runtime):
        yield {}

    with pytest.raises(AgentBuildError, match="this one is a generator"):
        before_model(stream)


# --- in an agent ---------------------------------------------------------------------------


async def test_decorated_functions_run_where_their_hooks_do():
    log: list[str] = []

    @before_agent
    def begin(values, /, at):  # what they are called does not matter
        log.append(f"begin {at.agent_name}")

    @before_model(state_schema=Counted)
    async def count(state, runtime):
        log.append(f"before {runtime.agent_name}")
        return {"count": state.get("count", 0) + 1}

    @after_model
    def after(state, runtime):
        log.append("after")

    @after_agent
    async def end(state, runtime):
        log.append(f"end {state['count']}")

    @wrap_model_call
    async def model(request, handler):
        log.append("model")
        return await handler(request)

    @wrap_tool_call
    async def around(request, handler):
        log.append(f"tool {request.call.name}")
        return await handler(request)

    agent = create_agent(
        Turns(says("", call("1", "add", a=1, b=2)), says("3")),
        [add],
        middleware=[begin, count, after, end, model, around],
    )
    result = await agent.ainvoke("go")
    assert result.run.answer == "3"
    turn = ["before agent", "model", "after"]
    assert log == ["begin agent", *turn, "tool add", *turn, "end 2"]


async def test_a_decorated_hook_may_jump():
    @before_model(can_jump_to=["end"])
    def stop(state, runtime):
        return {"jump_to": "end", "messages": [says("stopped")]}

    result = await create_agent(Turns(), middleware=[stop]).ainvoke("go")
    assert result.run.status == "done"


async def _system(*middleware: AgentMiddleware) -> list[tuple[str, str]]:
    model = Turns(says("ok"))
    agent = create_agent(model, system_prompt="Original.", middleware=middleware)
    await agent.ainvoke("go")
    return [(one.name, one.text) for one in model.requests[0].system]


@wrap_model_call(name="adds")
async def adds(request, handler):
    return await handler(request.with_section("adds", "Added."))


@pytest.mark.parametrize(
    ("prompt", "sections"),
    [
        ("New.", [("agent", "New.")]),
        ("", []),
        (PromptSection("own", "New."), [("own", "New.")]),
        ([PromptSection("a", "A."), PromptSection("b", "B.")], [("a", "A."), ("b", "B.")]),
    ],
)
async def test_a_dynamic_prompt_replaces_the_system_prompt(prompt, sections):
    @dynamic_prompt
    def sync_prompt(request):
        assert isinstance(request.messages[0], HumanMessage)
        return prompt

    @dynamic_prompt(name="later")
    async def async_prompt(request):
        return prompt

    assert repr(sync_prompt) == "<@dynamic_prompt sync_prompt>"
    assert async_prompt.name == "later"
    for made in (sync_prompt, async_prompt):
        assert await _system(made) == sections
        assert await _system(made, adds) == [*sections, ("adds", "Added.")]
        assert await _system(adds, made) == sections


async def test_a_dynamic_prompt_that_is_no_text_fails_the_run_by_name():
    @dynamic_prompt
    def numbers(request):
        return 42

    result = await create_agent(Turns(says("x")), middleware=[numbers]).ainvoke("go")
    assert isinstance(result.error, MiddlewareError)
    assert "numbers: a dynamic prompt must be text" in str(result.error)


# --- finding hooks -------------------------------------------------------------------------


class Base(AgentMiddleware):
    @hook_config(can_jump_to=["end"])
    def before_model(self, state, runtime):
        return None

    async def after_model(self, state, runtime):
        return None


class Inherits(Base):
    pass


class Overrides(Base):
    async def before_model(self, state, runtime):
        return None


class Static(AgentMiddleware):
    @hook_config(can_jump_to=["end"])
    @staticmethod
    def before_model(state, runtime):
        return None


class Partial(AgentMiddleware):
    before_model = staticmethod(functools.partial(_quiet, extra=1))  # type: ignore[assignment]


class OnInstance(AgentMiddleware):
    def __init__(self) -> None:
        self.before_model = _two  # type: ignore[method-assign]


class Nothing(AgentMiddleware):
    after_model = AgentMiddleware.after_model


@pytest.mark.parametrize(
    ("one", "waits", "jumps"),
    [
        (Base(), False, {"end"}),
        (Inherits(), False, {"end"}),
        (Overrides(), True, set()),
        (Static(), False, {"end"}),
        (Partial(), True, set()),
        (OnInstance(), False, set()),
    ],
)
def test_hooks_are_found_however_they_are_set(one, waits, jumps):
    check_middleware(one)
    assert hooks_of([one], "before_model") == [one]
    assert hooks_of([one], "before_agent") == []
    assert is_async_hook(one, "before_model") is waits
    assert jumps_of(one, "before_model") == jumps


def test_a_hook_that_is_the_bases_own_does_not_count():
    assert hooks_of([Nothing(), AgentMiddleware()], "after_model") == []


async def test_the_wraps_of_the_base_class_pass_on_whatever_the_handler_gives():
    async def later(request):
        return f"async {request}"

    base = AgentMiddleware()
    passed = base.wrap_tool_call("x", lambda request: f"sync {request}")  # type: ignore[arg-type]
    assert passed == "sync x"
    waiting = base.wrap_model_call("x", later)  # type: ignore[arg-type]
    assert inspect.isawaitable(waiting)
    assert await waiting == "async x"


# --- checking middleware -------------------------------------------------------------------


def _with(**names: Any) -> AgentMiddleware:
    return type("Mine", (AgentMiddleware,), names)()


def _request(self, request):
    return None


async def _async_request(self, request):
    return None


def _hook(self, state, runtime):
    return None


@hook_config(can_jump_to=["end"])
def _jumping(self, request, handler):
    return handler(request)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"before_modal": _hook}, "meant to be the hook before_model"),
        ({"beforeModel": _hook}, "meant to be the hook before_model"),
        ({"after_agents": _hook}, "meant to be the hook after_agent"),
        ({"wrap_toolcall": _hook}, "meant to be the hook wrap_tool_call"),
        ({"wrap_model": _hook}, "meant to be the hook wrap_model_call"),
        ({"abefore_model": _hook}, "Write `async def before_model(…)`"),
        ({"awrap_tool_call": _hook}, "Write `async def wrap_tool_call(…)`"),
        ({"aredact": _hook}, "Write `async def redact(…)`"),
        ({"before_tool": _hook}, "Override wrap_tool_call, and call the handler"),
        ({"after_tool": _hook}, "Override wrap_tool_call"),
        ({"afterToolCall": _hook}, "Override wrap_tool_call"),
        ({"abefore_tool": _hook}, "Override wrap_tool_call"),
        ({"wrap_tool": _hook}, "Override wrap_tool_call"),
        ({"wrap_agent_call": _hook}, "Override before_agent and after_agent"),
        ({"awrap_agent_call": _hook}, "Override before_agent and after_agent"),
        ({"modify_model_request": _hook}, "Override wrap_model_call"),
        ({"before_model": _request}, "Mine.before_model: before_model is a function of (state"),
        ({"before_model": None}, "got None"),
        ({"judge": _async_request}, "must not be async"),
        ({"judge": _hook}, "judge is a function of (request)"),
        ({"redact": _hook}, "redact must be async"),
        ({"wrap_tool_call": _jumping}, "Mine.wrap_tool_call cannot jump"),
    ],
)
def test_what_would_be_ignored_is_refused_by_name(names, text):
    with pytest.raises(AgentBuildError) as caught:
        check_middleware(_with(**names))
    assert "Mine" in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        {"_before_modal": _hook},
        {"before_modal": 3, "before_tool": 3},
        {"_before_tool": _hook, "tool": _hook, "agent_call": _hook, "a": _hook},
        {"ask": _hook, "message_for": _hook, "retries": _hook, "redacted": _hook},
        {"judge": _request},
    ],
)
def test_helpers_are_nobodys_business(names):
    check_middleware(_with(**names))


@pytest.mark.parametrize("wrong", [Base, "Base", None, _two])
def test_middleware_is_given_as_instances(wrong):
    with pytest.raises(AgentBuildError, match="takes instances of AgentMiddleware"):
        check_middleware(wrong)


def test_misspelt_names_of_a_base_and_of_an_instance_are_found():
    with pytest.raises(AgentBuildError, match="before_modal"):
        check_middleware(type("Child", (type(_with(before_modal=_hook)),), {})())
    one = Base()
    one.after_modle = _two  # type: ignore[attr-defined]
    with pytest.raises(AgentBuildError, match="after_modle"):
        check_middleware(one)
