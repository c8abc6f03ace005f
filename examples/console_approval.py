"""Approvals on the console: a question that is left open is asked again by the next process.

Run `python examples/console_approval.py` twice and leave a question open the first time. The run
waits in `approvals.sqlite3`, in the current directory. The model is scripted: no key, no network.
"""

import json
import sys
from typing import Any

import anyio
from anyio import to_thread

from deep_agent_mcp import (
    HarnessError,
    HumanInTheLoopMiddleware,
    ScriptedModel,
    SqliteCheckpointer,
    create_agent,
    tool,
)
from deep_agent_mcp.harness.checkpoint.base import Interrupt


@tool
def order(item: str, amount: int) -> str:
    """Order an item."""
    print("ordering", amount, item)
    return f"ordered {amount} {item}"


def orders(**amounts: int) -> list[dict[str, Any]]:
    return [
        {"id": item, "name": "order", "args": {"item": item, "amount": amount}}
        for item, amount in amounts.items()
    ]


SCRIPT = [
    {"tool_calls": orders(pears=10, plums=500)},
    {
        "expect": {"results": {"order": ["ordered 10 pears", "ordered 50 plums"]}},
        "tool_calls": orders(gold=1, figs=5),
    },
    {"expect": {"results": {"order": ["too dear", "in the cellar"]}}, "text": "All is settled."},
]


def decide(question: Interrupt) -> dict[str, Any] | None:
    """Ask a person; None leaves the question open."""
    print(" > ".join(question.path), "|", question.message, "|", question.payload["args"])
    decision, _, rest = sys.stdin.readline().strip().partition(" ")
    more = {"args": json.loads(rest)} if decision == "edit" else {"message": rest} if rest else {}
    return {"decision": decision, **more} if decision else None


async def main() -> None:
    async with SqliteCheckpointer("approvals.sqlite3") as journal:
        ask = [HumanInTheLoopMiddleware({"order": True})]
        agent = create_agent(ScriptedModel(SCRIPT), [order], middleware=ask, checkpointer=journal)
        waiting = await journal.find_runs(status="needs_approval")
        print("Answer: approve, edit {JSON}, reject WHY, respond RESULT, or nothing to do it later")
        print("runs that wait from last time:", len(waiting))
        result = await (agent.aresume(waiting[0].id) if waiting else agent.ainvoke("Restock."))
        while result.interrupts:
            try:
                asked = {one.id: await to_thread.run_sync(decide, one) for one in result.interrupts}
                answers = {key: answer for key, answer in asked.items() if answer is not None}
                if not answers:
                    break
                result = await agent.aresume(result.run.id, answers)
            except (HarnessError, ValueError) as error:
                print("not accepted:", str(error).partition(". Expected")[0])
        print("status:", result.run.status, result.run.answer or "")


if __name__ == "__main__":
    anyio.run(main)
