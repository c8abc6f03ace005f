"""Tools that calculate, and a state with a reducer that adds."""

from typing import Annotated, NotRequired, TypedDict

from deep_agent_mcp.harness.state.channels import Reducer
from deep_agent_mcp.harness.tools.tool import tool

__all__ = ["Sums", "add", "multiply"]


class Sums(TypedDict):
    total: NotRequired[Annotated[int, Reducer(lambda old, new: old + new, default=int)]]
    last: NotRequired[int]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b
