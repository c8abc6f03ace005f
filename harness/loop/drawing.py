"""Drawing of an agent's loop as a Mermaid flowchart: its hooks in order, and their jumps.

The picture follows `engine` and `routing`. Solid edges are the path of the loop, dashed edges the
jumps that hooks declare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import get_args

from .._internal.records import record
from .definition import AgentDefinition
from .hooks.middleware import HookName, hooks_of

__all__ = ["draw_mermaid"]

_START, _MODEL, _TOOLS, _END = "start", "model", "tools", "finish"
_HOOKS: tuple[HookName, ...] = get_args(HookName)


def draw_mermaid(definition: AgentDefinition) -> str:
    """Return the loop of an agent as the text of a Mermaid flowchart.

    There is one node for each hook of a middleware, one for `model`, and one for `tools` if the
    agent has a tool, a wrapper that could supply one, or a hook that may jump there. Wraps are a
    box around `model` and `tools` that lists them, outermost first. Calls that tools send (`Send`)
    stay inside `tools`.
    """
    loop = _Loop(definition)
    lines = ["flowchart TD", *loop.nodes(), *(edge.line() for edge in loop.edges())]
    return "\n    ".join(lines) + "\n"


@record
class _Edge:
    source: str
    target: str
    label: str = ""
    dashed: bool = False

    def line(self) -> str:
        arrow = "-.->" if self.dashed else "-->"
        label = f'|"{self.label}"|' if self.label else ""
        return f"{self.source} {arrow}{label} {self.target}"


class _Loop:
    """The nodes and edges of one agent's loop."""

    def __init__(self, definition: AgentDefinition) -> None:
        self._agent = definition
        self._model_wraps = [one.name for one in hooks_of(definition.middleware, "wrap_model_call")]
        self._tool_wraps = [one.name for one in hooks_of(definition.middleware, "wrap_tool_call")]
        self._jumps = [
            (hook, f"{hook}_{place}", target)
            for hook in _HOOKS
            for place, one in enumerate(definition.hooks(hook))
            for target in sorted(one.jumps)
        ]
        self._structured = definition.output is not None
        self._has_tools = bool(
            definition.tools
            or self._tool_wraps
            or any(target == "tools" for _, _, target in self._jumps)
        )

    # --- nodes -----------------------------------------------------------------------------

    def nodes(self) -> Iterator[str]:
        """Yield the declarations of all nodes."""
        yield f'{_START}(["start"])'
        for hook in _HOOKS:
            for place, one in enumerate(self._agent.hooks(hook)):
                yield f'{hook}_{place}["{_escaped(one.author)}"]'
        yield from _wrapped(_MODEL, "wrap_model_call", self._model_wraps)
        if self._has_tools:
            yield from _wrapped(_TOOLS, "wrap_tool_call", self._tool_wraps)
        yield f'{_END}(["end"])'

    def _chain(self, hook: HookName) -> list[str]:
        return [f"{hook}_{place}" for place in range(len(self._agent.hooks(hook)))]

    @property
    def _entry(self) -> str:
        """The node where the loop begins again."""
        return next(iter(self._chain("before_model")), _MODEL)

    @property
    def _exit(self) -> str:
        """The node where the run ends, or its exit hooks begin."""
        return next(iter(self._chain("after_agent")), _END)

    # --- edges -----------------------------------------------------------------------------

    def edges(self) -> Iterator[_Edge]:
        """Yield all edges, in the order of a run."""
        way = [_START, *self._chain("before_agent"), *self._chain("before_model"), _MODEL]
        way += self._chain("after_model")
        yield from (_Edge(*pair) for pair in pairwise(way))
        yield from self._after_model(way[-1])
        if self._has_tools:
            yield from self._after_tools()
        yield from (_Edge(*pair) for pair in pairwise([*self._chain("after_agent"), _END]))
        yield from self._jump_edges()

    def _after_model(self, decided: str) -> Iterator[_Edge]:
        """Yield the edges from an answer, after all hooks."""
        if self._has_tools:
            yield _Edge(decided, _TOOLS, "calls")
        if self._agent.hooks("after_model"):
            yield _Edge(decided, self._entry, "calls answered by hooks")
        if self._structured:
            yield _Edge(decided, self._entry, "repair")
            yield _Edge(decided, self._exit, "structured response")
        else:
            yield _Edge(decided, self._exit, "no calls" if self._has_tools else "")

    def _after_tools(self) -> Iterator[_Edge]:
        """Yield the edges from tool results."""
        yield _Edge(_TOOLS, self._entry, "results")
        if any(tool.return_direct for tool in self._agent.tools.values()):
            yield _Edge(_TOOLS, self._exit, "return_direct")
        if self._structured:
            yield _Edge(_TOOLS, self._exit, "structured response")

    def _jump_edges(self) -> Iterator[_Edge]:
        places = {"model": self._entry, "tools": _TOOLS, "end": self._exit}
        for hook, node, target in self._jumps:
            if hook == "before_model" and target == "model":
                continue  # declared, but the loop refuses it
            leaves = hook == "after_agent" and target == "end"
            yield _Edge(node, _END if leaves else places[target], f"jump to {target}", dashed=True)


def _wrapped(node: str, hook: str, names: Sequence[str]) -> Iterator[str]:
    """Yield a node, inside a box that lists its wraps if there are any."""
    if not names:
        yield f'{node}["{node}"]'
        return
    yield f'subgraph around_{node}["{hook}: {", ".join(map(_escaped, names))}"]'
    yield f'    {node}["{node}"]'
    yield "end"


def _escaped(name: str) -> str:
    """Return text that is safe between quotes, with special characters as character codes."""
    return "".join(char if char.isalnum() or char in " _." else f"#{ord(char)};" for char in name)
