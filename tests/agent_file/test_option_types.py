"""Options of middleware are compared with the annotations of its class before anything starts."""

from typing import Any

import pytest

from deep_agent_mcp.harness.agent_file.middlewares import made_middleware, stack_changes
from deep_agent_mcp.harness.agent_file.schema import MiddlewareTable
from deep_agent_mcp.harness.agent_file.values import AgentFileError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.middleware import HumanInTheLoopMiddleware

ASKED = {"allowed_decisions": ["approve"]}
LEN, PI = {"import": "builtins:len"}, {"import": "math:pi"}


class Counted(AgentMiddleware):
    """Takes what no shipped middleware takes."""

    def __init__(
        self,
        *limits: int | None,
        table: dict[str, list[int]] | None = None,
        anything: Any = None,
        unknown: "NoSuchName | None" = None,  # noqa: F821
    ) -> None:
        self.limits, self.table, self.anything, self.unknown = limits, table, anything, unknown


OWN = f"{__name__}:Counted"


@pytest.mark.parametrize(
    ("use", "options"),
    [
        ("tool_retry", {"max_retries": 3, "tools": ["ls"], "initial_delay": 1}),
        ("tool_retry", {"retry_on": {"import": "builtins:ValueError"}, "on_failure": LEN}),
        (
            "pii",
            {
                "pii_type": "email",
                "strategy": "tokenize",
                "reveal_to": ["send_*"],
                "detector": {"import": "re:sub"},
            },
        ),
        ("summarization", {"trigger": {"tokens": 120_000}, "keep": ["messages", 20]}),
        ("summarization", {"trigger": [["tokens", 9], {"messages": 3}], "token_counter": LEN}),
        ("model_fallback", {"first_model": "anthropic:a", "additional": ["anthropic:b"]}),
        (
            "human_in_the_loop",
            {"interrupt_on": {"a": True, "b": {"allowed_decisions": ["approve"]}}},
        ),
        ("execute", {"jobs": {"running": 2}, "env": {"A": "1"}}),
        ("shell_tool", {"startup_commands": "true"}),
        ("shell_tool", {"startup_commands": ["true"]}),
        ("tool_exclusion", {"tools": ["a"]}),
        ("context_editing", {"edits": [{"trigger": 5}]}),
        (OWN, {"limits": [1, 2], "table": {"a": [1]}, "anything": {"x": [1]}, "unknown": 3}),
    ],
)
def test_what_the_annotation_allows_is_taken(use: str, options: dict[str, Any]) -> None:
    stack_changes([MiddlewareTable(use=use, options=options)])


@pytest.mark.parametrize(
    ("use", "options", "keys", "told"),
    [
        ("tool_retry", {"max_retries": "many"}, ("max_retries",), "a whole number; got 'many'"),
        ("tool_retry", {"max_retries": True}, ("max_retries",), "a whole number; got True"),
        ("tool_retry", {"tools": "ls"}, ("tools",), "a list; got 'ls'"),
        ("tool_retry", {"tools": ["ls", 3]}, ("tools", 1), "a text; got 3"),
        (
            "tool_retry",
            {"on_failure": "explode"},
            ("on_failure",),
            "'continue' or 'error' or",
        ),
        ("tool_retry", {"retry_on": PI}, ("retry_on",), "got 3.14"),
        ("pii", {"pii_type": "email", "strategy": "redakt"}, ("strategy",), "'block' or 'redact'"),
        ("pii", {"pii_type": "email", "reveal_to": "x"}, ("reveal_to",), "a list of texts"),
        ("summarization", {"trigger": {"tokens": "x"}}, ("trigger", "tokens"), "a number; got 'x'"),
        ("summarization", {"trigger": 5}, ("trigger",), "a list or a table; got 5"),
        ("summarization", {"token_counter": "x"}, ("token_counter",), "a function, as { import"),
        ("summarization", {"token_counter": PI}, ("token_counter",), "a function, as { import"),
        ("summarization", {"model": ["a"]}, ("model",), "or a text; got ['a']"),
        (
            "model_fallback",
            {"first_model": "anthropic:a", "additional": "b"},
            ("additional",),
            "list",
        ),
        ("human_in_the_loop", {"interrupt_on": ["x"]}, ("interrupt_on",), "a table; got ['x']"),
        ("human_in_the_loop", {"interrupt_on": {"a": 3}}, ("interrupt_on", "a"), "true or false"),
        ("execute", {"env": {"A": 1}}, ("env", "A"), "a text; got 1"),
        ("execute", {"jobs": 3}, ("jobs",), "a table; got 3"),
        ("shell_tool", {"startup_commands": [1]}, ("startup_commands", 0), "a text; got 1"),
        ("prompt_caching", {"ttl": "5h"}, ("ttl",), "'5m' or '1h'; got '5h'"),
        ("tool_exclusion", {"tools": "a"}, ("tools",), "a list of texts; got 'a'"),
        ("tool_description", {"descriptions": {"a": 1}}, ("descriptions", "a"), "a text; got 1"),
        (OWN, {"limits": ["x"]}, ("limits", 0), "a whole number; got 'x'"),
        (OWN, {"table": {"a": [1, "b"]}}, ("table", "a", 1), "a whole number; got 'b'"),
    ],
)
def test_anything_else_is_refused_at_its_key(
    use: str, options: dict[str, Any], keys: tuple[str | int, ...], told: str
) -> None:
    with pytest.raises(AgentFileError) as refused:
        stack_changes([MiddlewareTable(use=use, options=options)])
    assert refused.value.keys == ("middleware", 0, *keys)
    assert refused.value.problem.startswith("expected ") and told in refused.value.problem


def test_tables_become_the_objects_that_a_class_takes() -> None:
    entry = MiddlewareTable(use="human_in_the_loop", options={"interrupt_on": {"a": ASKED}})
    made = made_middleware(entry)
    assert isinstance(made, HumanInTheLoopMiddleware)
    config = made._config("a")
    assert isinstance(config, InterruptOnConfig) and [*config.allowed_decisions] == ["approve"]
