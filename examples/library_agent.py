"""The engine as a library: a tool of your own, an approval, and a run that waits for it.

Run it with `python examples/library_agent.py`. The model is scripted: no key, no network.
"""

import anyio

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.harness.tools.tool import tool

STOCK = {"apples": 12, "pears": 3}


@tool
def count_stock(item: str) -> int:
    """Return how many of an item are in stock."""
    return STOCK[item]


@tool
def order(item: str, amount: int) -> str:
    """Order more of an item."""
    STOCK[item] += amount
    return f"ordered {amount} {item}"


# What a real model would answer, turn by turn. Name one instead, such as
# create_agent("anthropic:<model id>", …), and the rest of this file stays as it is.
SCRIPT = [
    {
        "tool_calls": [
            {"name": "count_stock", "args": {"item": "apples"}},
            {"name": "count_stock", "args": {"item": "pears"}},
        ]
    },
    {
        "expect": {"results": {"count_stock": ["12", "3"]}},
        "text": "Pears are low.",
        "tool_calls": [{"name": "order", "args": {"item": "pears", "amount": 10}}],
    },
    {"expect": {"last": "ordered 10 pears"}, "text": "There were 3 pears left; I ordered 10."},
]


async def main() -> None:
    agent = create_agent(
        ScriptedModel(SCRIPT),
        [count_stock, order],
        middleware=[HumanInTheLoopMiddleware({"order": True})],
    )

    result = await agent.ainvoke("Restock what is low.")
    print("status:", result.run.status)
    for question in result.interrupts:
        print("asked:", question.payload["tool"], question.payload["args"])
    print("pears while it waits:", STOCK["pears"])

    # The run is in the journal. With a SqliteCheckpointer another process could answer, tomorrow.
    approvals = {question.id: {"decision": "approve"} for question in result.interrupts}
    result = await agent.aresume(result.run.id, approvals)
    print("status:", result.run.status)
    print("pears now:", STOCK["pears"])
    print("answer:", result.run.answer)


if __name__ == "__main__":
    anyio.run(main)
