import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    Message,
    ProviderBlock,
    TextBlock,
    ToolCall,
    Usage,
)
from deep_agent_mcp.harness.models.base import (
    RunningCount,
    message_tokens,
    messages_tokens,
    reported_tokens,
    text_tokens,
    tools_tokens,
)
from deep_agent_mcp.harness.tools.tool import tool
from tests.middleware.support import answer, loops


@given(st.text(), st.text())
def test_more_text_never_costs_less(one: str, other: str) -> None:
    assert max(text_tokens(one), text_tokens(other)) <= text_tokens(one + other)
    assert (text_tokens(one) == 0) == (one == "")


def test_text_counts_by_script() -> None:
    assert text_tokens("word" * 100) == 100
    assert 80 <= text_tokens("漢字" * 50) <= 120


def test_every_kind_of_content_counts() -> None:
    plain = message_tokens(answer("hello"))
    args = ToolCall("c", "write", {"text": "y" * 400, "flags": [1, True, None, {"deep": "z" * 40}]})
    assert message_tokens(answer("hello", args)) > plain + 110
    assert message_tokens(answer("", ToolCall("c", "write", invalid="{" * 400))) > 100
    block = ProviderBlock("anthropic", {"result": "r" * 400})
    assert message_tokens(AIMessage((TextBlock("hello"), block))) > plain + 100
    assert message_tokens(HumanMessage((ImageBlock("image/png", "A" * 10**6),))) < 2_000


def test_tool_schemas_count() -> None:
    @tool
    def read(path: str, limit: int = 10) -> str:
        """Read a file and return its lines."""
        return path

    tokens = tools_tokens([read])
    assert tokens > text_tokens(read.description)
    assert tools_tokens([read, read]) == 2 * tokens
    assert tools_tokens([{"type": "web_search", "name": "search"}]) > 0


def test_reported_usage_covers_the_call_and_estimates_what_follows() -> None:
    used = AIMessage((TextBlock("x"),), usage=Usage(100, 20, 30, 40))
    later = [HumanMessage("y" * 40)]
    assert reported_tokens([used, *later]) == 190 + messages_tokens(later)
    assert reported_tokens([used, *later], since=1) is None
    assert reported_tokens([used, answer("no usage")]) is None
    assert reported_tokens([]) is None


@pytest.mark.parametrize(
    "block",
    [
        ProviderBlock("anthropic", {"type": "web_search_tool_result", "tool_use_id": "s1"}),
        ProviderBlock(
            "openai-responses", {"part_kind": "builtin-tool-call", "tool_name": "search"}
        ),
    ],
)
def test_usage_that_adds_up_requests_of_a_provider_is_no_size_of_the_conversation(
    block: ProviderBlock,
) -> None:
    used = AIMessage((TextBlock("x"),), usage=Usage(100, 20))
    searched = AIMessage((block, TextBlock("y")), usage=Usage(900, 30))
    assert reported_tokens([used, searched]) == 120 + messages_tokens([searched])
    assert reported_tokens([searched]) is None
    extra = ProviderBlock("google", {"of": "a1", "part_kind": "tool-call", "signature": "s"})
    own = AIMessage((ToolCall("c", "read"), extra), usage=Usage(900, 30))
    assert reported_tokens([used, own]) == 930


def test_a_running_count_equals_a_full_count() -> None:
    counter = RunningCount()
    messages: list[Message] = [HumanMessage("go")]
    for start in range(5):
        messages = [*messages, *loops(2, start=2 * start)]
        assert counter.count("t", messages) == messages_tokens(messages)
    shorter = [messages[0], *messages[7:]]
    assert counter.count("t", shorter) == messages_tokens(shorter)
    assert counter.count("t", messages[:3]) == messages_tokens(messages[:3])
    assert counter.count("t", []) == 0


def test_a_running_count_of_more_threads_than_it_remembers_is_still_right() -> None:
    counter = RunningCount(max_threads=2)
    for round_number in range(1, 4):
        for key in ("a", "b", "c"):
            messages = loops(round_number)
            assert counter.count(key, messages) == messages_tokens(messages)
