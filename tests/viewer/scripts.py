"""Scripts of the model for tests of the page."""

from __future__ import annotations

from typing import Any

HOSTILE = (
    "<script>window.owned = 1</script><img src=x onerror='window.owned = 2'>"
    '<a href="javascript:window.owned = 3">click</a> \u202egpj.exe\u202c \u200b</script><!--'
)
EXACT = {
    "account": 12_345_678_901_234_567_891,
    "amount": 1e22,
    "note": "a\u200bb\u3164c\u00a0d \u2764\ufe0f \u0645\u06cc\u200c\u062e",
}
"""Arguments that JavaScript would change, or that look like other ones."""
HUGE = "\U0001f600x" * 30_000


def write(path: str, content: str = "x\n") -> dict[str, Any]:
    return {"name": "write_file", "args": {"path": path, "content": content}}


def give(description: str) -> dict[str, Any]:
    args = {"description": description, "subagent_type": "general-purpose"}
    return {"name": "task", "args": args}


def todos(*contents: str) -> dict[str, Any]:
    listed = [
        {"content": one, "status": "pending" if at else "in_progress"}
        for at, one in enumerate(contents)
    ]
    return {"name": "write_todos", "args": {"todos": listed}}


USAGE = {"input_tokens": 1_200, "output_tokens": 34}


def run(match: str, *turns: dict[str, Any], **others: list[dict[str, Any]]) -> dict[str, Any]:
    agents = {name.replace("_", "-"): one for name, one in others.items()}
    return {"match": match, "agents": {"main": list(turns), **agents}}


DOWN = {
    "kind": "overloaded",
    "message": "Overloaded. " * 40,
    "retryable": True,
    "retry_after": 300,
}

SCRIPT = {
    "name": "viewer",
    "runs": [
        run(
            "survey the house",
            {"text": "I make a plan.", "tool_calls": [todos("look around", "write it down")]},
            {"tool_calls": [give("look at the attic"), give("look at the cellar")], "usage": USAGE},
            {"tool_calls": [write("/survey.txt")]},
            {"text": "The survey is written."},
            general_purpose=[
                {"tool_calls": [{"name": "ls", "args": {"path": "/"}}], "delay": 0.2},
                {"text": "Nothing there.", "usage": USAGE},
            ],
        ),
        run("ask twice", {"tool_calls": [write("/a.txt"), write("/b.txt")]}, {"text": "Asked."}),
        run("write once", {"tool_calls": [write("/once.txt")]}, {"text": "It went on."}),
        run(
            "ask the person",
            {"tool_calls": [{"name": "ask_person", "args": {"question": "Which name?"}}]},
            {
                "tool_calls": [
                    {"name": "ask_person", "args": {"question": "How many?", "form": True}}
                ]
            },
            {"text": "Thank you."},
        ),
        run(
            "look everywhere",
            *(
                {
                    "tool_calls": [
                        {"name": "glob", "args": {"pattern": f"{turn}{one}*"}} for one in "abc"
                    ]
                }
                for turn in range(140)
            ),
            {"text": "Looked."},
        ),
        run(
            "pay exactly",
            {"tool_calls": [{"name": "pay", "args": EXACT}]},
            {"text": "Paid."},
        ),
        run(
            "write much",
            {"tool_calls": [write(f"/{one}.txt", "y" * 1_700) for one in range(6)]},
            {"text": "Written."},
        ),
        run(
            "write too much",
            {"tool_calls": [write("/a"), write("/b", "y" * 3_000), write("/c")]},
            {"text": "Written."},
        ),
        run("take your time", {"text": "At last.", "delay": 600}),
        run("wait for the model", {"error": DOWN}),
        run("fail at once", {"text": "x", "expect": {"last_type": "tool"}}),
        run("say much", {"text": "0123456789" * 3_000}),
        run(
            HOSTILE[:40],
            {
                "text": HOSTILE,
                "tool_calls": [
                    todos(HOSTILE),
                    give(HOSTILE),
                    {"name": "glob", "args": {"pattern": HOSTILE}},
                ],
            },
            {"text": HUGE, "tool_calls": [write("/" + "x" * 20, HOSTILE)]},
            {"tool_calls": [{"name": "ask_person", "args": {"question": HOSTILE}}]},
            {"text": HOSTILE},
        ),
    ],
    "agents": {"*": [{"text": "Nothing to do."}]},
}
