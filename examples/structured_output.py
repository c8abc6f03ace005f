"""An answer that is one of two types instead of prose, and a wrong one that the model repairs.

Run it with `python examples/structured_output.py`. The model is scripted: no key, no network.
"""

from typing import Literal

import anyio
from pydantic import BaseModel, Field

from deep_agent_mcp import ScriptedModel, create_agent, tool


class Refund(BaseModel):
    """The customer gets money back."""

    order: int
    cents: int = Field(gt=0, description="What to pay back, at most the price of the order.")


class Handover(BaseModel):
    """A person has to look at it."""

    reason: str
    urgency: Literal["low", "high"]


@tool(read_only=True)
def price_of(order: int) -> int:
    """Return the price of an order, in cents."""
    return {7: 1250, 8: 99_900}[order]


# What a real model would answer, turn by turn. To it each type of the union is a tool; where its
# provider can hold a text to a schema, that is used instead (`AutoStrategy`, the default).
BROKEN = [
    {"tool_calls": [{"name": "price_of", "args": {"order": 7}}]},
    {
        "expect": {"last": "1250", "tools": ["Refund", "Handover"]},
        "tool_calls": [{"name": "Refund", "args": {"order": 7, "cents": "12.50"}}],
    },
    {"tool_calls": [{"name": "Refund", "args": {"order": 7, "cents": 1250}}]},
]
LOST = [
    {"text": "Somebody should look at this."},
    {
        "expect": {"last": "calling Refund or Handover"},
        "tool_calls": [{"name": "Handover", "args": {"reason": "lost", "urgency": "high"}}],
    },
]
SCRIPT = {
    "runs": [
        {"match": "came broken", "agents": {"*": BROKEN}},
        {"match": "never came", "agents": {"*": LOST}},
    ]
}


async def main() -> None:
    agent = create_agent(ScriptedModel(SCRIPT), [price_of], response_format=Refund | Handover)
    for complaint in ("Order 7 came broken.", "Order 8 never came."):
        result = await agent.ainvoke(complaint)
        for message in result.state["messages"]:
            if message.type == "tool" and message.status == "error":
                print("sent back:", message.text.split(" Expected")[0])
        print("answer:", repr(result.structured_response))


if __name__ == "__main__":
    anyio.run(main)
