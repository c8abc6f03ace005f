"""Server instructions, within the 2,000 characters that every client shows.

Most important first; of tools that are not offered it says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..settings.toolsets import TOOLSETS

__all__ = ["instructions"]

_DRIVEN = (*TOOLSETS["todos"], *TOOLSETS["files"], *TOOLSETS["skills"])


def instructions(withheld: Collection[str] = ()) -> str:
    """Return the instructions of a server that withholds some tools."""
    parts = [
        "A durable deep agent: todos, files, skills and agents, kept in threads that survive "
        "restarts.",
        "\n".join(_ways(withheld)),
        "\n".join(["Rules", *_rules(withheld)]),
    ]
    return "\n\n".join(part for part in parts if part)


def _ways(withheld: Collection[str]) -> Iterator[str]:
    driven = [name for name in _DRIVEN if name not in withheld]
    drive = f"call {_listed(driven)} yourself."
    delegate = "task(goal) lets an agent with its own model work until it is done."
    if driven and "task" not in withheld:
        yield "Two ways to work, freely mixed on one thread:"
        yield f"- Drive: {drive}"
        yield f"- Delegate: {delegate}"
    elif driven:
        yield f"To work, {drive}"
    elif "task" not in withheld:
        yield f"To work, delegate: {delegate}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def _rules(withheld: Collection[str]) -> Iterator[str]:
    def offered(*names: str) -> bool:
        return not any(name in withheld for name in names)

    yield (
        "- Every result names its thread_id. Pass it on in each later call of the same work; "
        "without it a new thread begins."
    )
    if offered("write_todos"):
        yield (
            "- For work of three or more steps keep a list with write_todos, and update it as you "
            "go."
        )
    if offered("skill"):
        yield (
            "- Before work that a skill may cover, call skill() to see what there is, then "
            "skill(name)."
        )
    if offered("wait"):
        who = "task and wait return" if offered("task") else "A call returns"
        yield (
            f'- {who} when the run is done, or status "running" when the time is over: that is no '
            "error. Call wait(run_id); it blocks, so do not poll. A run goes on without you."
        )
    if offered("reply"):
        yield (
            '- status "needs_approval": show the pending questions to the user and pass the '
            "decision on with reply(run_id, …). Never decide for the user."
        )
    if history := "; ".join(_history(withheld)):
        yield f"- {history}."
    yield "- Errors say what failed, whether anything happened, and what to call next."


def _history(withheld: Collection[str]) -> Iterator[str]:
    if "threads" not in withheld:
        yield (
            "threads() finds threads and runs again; threads(thread_id) shows todos, runs, "
            "questions and checkpoints"
        )
    if "rewind" not in withheld:
        yield "rewind(thread_id, checkpoint_id) undoes, files on disk included"
