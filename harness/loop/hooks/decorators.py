"""Middleware from one function: `@before_model`, `@wrap_tool_call`, `@dynamic_prompt` and more.

Each decorator makes an `AgentMiddleware` for `middleware=[…]` from a sync or async function, and
takes its name from the function. You can use it with or without parentheses. Arguments are passed
by position, so their names are free.

    @before_model(can_jump_to=["end"])
    def stop_when_done(state, runtime):
        return {"jump_to": "end"} if state.get("done") else None
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, Unpack, cast, overload

from ...errors import AgentBuildError, MiddlewareError
from ...models.base import PromptSection
from ...tools.signatures import name_of
from ...tools.tool import Tool, tool
from .middleware import AgentMiddleware, check_call, check_hook, hook_config, settle
from .requests import (
    HookResult,
    JumpTo,
    ModelHandler,
    ModelRequest,
    ModelResponse,
    Runtime,
)

__all__ = [
    "FunctionMiddleware",
    "NodeOptions",
    "WrapOptions",
    "after_agent",
    "after_model",
    "before_agent",
    "before_model",
    "dynamic_prompt",
    "wrap_model_call",
    "wrap_tool_call",
]


class WrapOptions(TypedDict, total=False):
    """Options of the `wrap_*` decorators.

    Attributes:
        state_schema: A TypedDict with the state keys the function reads or writes.
        tools: Tools it adds, or functions to make tools from.
        name: Unique within an agent; the function's name by default.
    """

    state_schema: type | None
    tools: Sequence[Tool | Callable[..., Any]]
    name: str


class NodeOptions(WrapOptions, total=False):
    """Options of the `before_*` and `after_*` decorators.

    Attributes:
        can_jump_to: Where the function may jump.
    """

    can_jump_to: Sequence[JumpTo]


# The state can be any TypedDict of the author's, so its type is left open.
NodeFunction: TypeAlias = Callable[[Any, Runtime], HookResult | Awaitable[HookResult]]
# A wrap's handler and result are sync or async alike; see `AgentMiddleware.wrap_model_call`.
WrapFunction: TypeAlias = Callable[[Any, Any], Any]
Prompt: TypeAlias = str | PromptSection | Sequence[PromptSection]
PromptFunction: TypeAlias = Callable[[ModelRequest], Prompt | Awaitable[Prompt]]


class FunctionMiddleware(AgentMiddleware):
    """A function as one hook; made by the decorators of this module.

    Args:
        hook: The hook.
        function: What runs as it.
        options: Options of the decorator.
        decorator: The decorator's name, when it is not the hook's.

    Raises:
        AgentBuildError: The function or an option is invalid.
    """

    def __init__(
        self,
        hook: str,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        *,
        decorator: str | None = None,
    ) -> None:
        self._decorator = decorator or hook
        self._name: str = options.get("name") or name_of(function)
        if self._name == "<lambda>":
            raise AgentBuildError(f"@{self._decorator}: a lambda needs a name: name=…")
        check_hook(f"@{self._decorator} {self._name}", hook, function)
        # A copy, so that its jumps do not affect another use of the function.
        own = functools.partial(function)
        jumps = options.get("can_jump_to")
        if jumps is not None:
            hook_config(can_jump_to=jumps)(own)
        # Elsewhere both belong to the class; here each instance has its own.
        for attribute, value in ((hook, own), ("state_schema", options.get("state_schema"))):
            setattr(self, attribute, value)
        self.tools = tuple(
            one if isinstance(one, Tool) else tool(one) for one in options.get("tools", ())
        )

    @property
    def name(self) -> str:
        """The function's name, unless another was given."""
        return self._name

    def __repr__(self) -> str:
        return f"<@{self._decorator} {self._name}>"


# --- node hooks ----------------------------------------------------------------------------


@overload
def before_agent(function: NodeFunction, /) -> AgentMiddleware: ...
@overload
def before_agent(
    **options: Unpack[NodeOptions],
) -> Callable[[NodeFunction], AgentMiddleware]: ...
def before_agent(
    function: NodeFunction | None = None, /, **options: Unpack[NodeOptions]
) -> AgentMiddleware | Callable[[NodeFunction], AgentMiddleware]:
    """Make middleware that runs `function(state, runtime)` once when a run begins."""
    return _decorate("before_agent", function, NodeOptions, options)


@overload
def before_model(function: NodeFunction, /) -> AgentMiddleware: ...
@overload
def before_model(
    **options: Unpack[NodeOptions],
) -> Callable[[NodeFunction], AgentMiddleware]: ...
def before_model(
    function: NodeFunction | None = None, /, **options: Unpack[NodeOptions]
) -> AgentMiddleware | Callable[[NodeFunction], AgentMiddleware]:
    """Make middleware that runs `function(state, runtime)` before each model call."""
    return _decorate("before_model", function, NodeOptions, options)


@overload
def after_model(function: NodeFunction, /) -> AgentMiddleware: ...
@overload
def after_model(
    **options: Unpack[NodeOptions],
) -> Callable[[NodeFunction], AgentMiddleware]: ...
def after_model(
    function: NodeFunction | None = None, /, **options: Unpack[NodeOptions]
) -> AgentMiddleware | Callable[[NodeFunction], AgentMiddleware]:
    """Make middleware that runs `function(state, runtime)` after each model answer."""
    return _decorate("after_model", function, NodeOptions, options)


@overload
def after_agent(function: NodeFunction, /) -> AgentMiddleware: ...
@overload
def after_agent(
    **options: Unpack[NodeOptions],
) -> Callable[[NodeFunction], AgentMiddleware]: ...
def after_agent(
    function: NodeFunction | None = None, /, **options: Unpack[NodeOptions]
) -> AgentMiddleware | Callable[[NodeFunction], AgentMiddleware]:
    """Make middleware that runs `function(state, runtime)` once when a run ends."""
    return _decorate("after_agent", function, NodeOptions, options)


# --- wraps ---------------------------------------------------------------------------------


@overload
def wrap_model_call(function: WrapFunction, /) -> AgentMiddleware: ...
@overload
def wrap_model_call(
    **options: Unpack[WrapOptions],
) -> Callable[[WrapFunction], AgentMiddleware]: ...
def wrap_model_call(
    function: WrapFunction | None = None, /, **options: Unpack[WrapOptions]
) -> AgentMiddleware | Callable[[WrapFunction], AgentMiddleware]:
    """Make middleware that surrounds each model call with `function(request, handler)`."""
    return _decorate("wrap_model_call", function, WrapOptions, options)


@overload
def wrap_tool_call(function: WrapFunction, /) -> AgentMiddleware: ...
@overload
def wrap_tool_call(
    **options: Unpack[WrapOptions],
) -> Callable[[WrapFunction], AgentMiddleware]: ...
def wrap_tool_call(
    function: WrapFunction | None = None, /, **options: Unpack[WrapOptions]
) -> AgentMiddleware | Callable[[WrapFunction], AgentMiddleware]:
    """Make middleware that surrounds each tool call with `function(request, handler)`."""
    return _decorate("wrap_tool_call", function, WrapOptions, options)


@overload
def dynamic_prompt(function: PromptFunction, /) -> AgentMiddleware: ...
@overload
def dynamic_prompt(
    **options: Unpack[WrapOptions],
) -> Callable[[PromptFunction], AgentMiddleware]: ...
def dynamic_prompt(
    function: PromptFunction | None = None, /, **options: Unpack[WrapOptions]
) -> AgentMiddleware | Callable[[PromptFunction], AgentMiddleware]:
    """Make middleware whose `function(request)` writes the system prompt of each model call.

    It returns text, a `PromptSection` or several. They replace the system prompt up to that point:
    the agent's own and the sections of outer middleware. If you list it first, all other middleware
    still adds its sections. A sync function runs in the event loop, so it must not block.
    """
    return _decorate("dynamic_prompt", function, WrapOptions, options)


# --- how -----------------------------------------------------------------------------------


def _decorate(
    decorator: str,
    function: object,
    accepted: type[NodeOptions] | type[WrapOptions],
    options: Mapping[str, Any],
) -> Any:
    """Return the middleware of a function, or, without one, the decorator that makes it."""
    unknown = sorted(set(options) - set(accepted.__annotations__))
    if unknown:
        raise AgentBuildError(
            f"@{decorator} has no option {', '.join(unknown)}; it takes "
            f"{', '.join(sorted(accepted.__annotations__))}"
        )

    def make(given: object) -> AgentMiddleware:
        if not callable(given) or isinstance(given, type):
            raise AgentBuildError(
                f"@{decorator} decorates a function; got {given!r}. One function is one hook, "
                "and a class derives from AgentMiddleware instead."
            )
        if decorator == "dynamic_prompt":
            return _prompt_middleware(cast(PromptFunction, given), options)
        return FunctionMiddleware(decorator, given, options)

    return make if function is None else make(function)


def _prompt_middleware(function: PromptFunction, options: Mapping[str, Any]) -> AgentMiddleware:
    name = options.get("name") or name_of(function)
    check_call(f"@dynamic_prompt {name}", "dynamic_prompt", ("request",), function)

    async def write_prompt(request: ModelRequest, handler: ModelHandler) -> ModelResponse:
        prompt = await settle(function(request))
        return await handler(request.override(system=_sections(name, prompt)))

    named = {**options, "name": name}
    return FunctionMiddleware("wrap_model_call", write_prompt, named, decorator="dynamic_prompt")


def _sections(name: str, prompt: object) -> tuple[PromptSection, ...]:
    if isinstance(prompt, str):
        return (PromptSection("agent", prompt),) if prompt else ()
    if isinstance(prompt, PromptSection):
        return (prompt,)
    if isinstance(prompt, list | tuple):
        sections = cast(Sequence[object], prompt)
        if all(isinstance(one, PromptSection) for one in sections):
            return tuple(cast(Sequence[PromptSection], sections))
    raise MiddlewareError(
        f"{name}: a dynamic prompt must be text, a PromptSection or a list of them; got {prompt!r}"
    )
