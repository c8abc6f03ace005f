"""What comes back from a cache: an answer, or a tool's result."""

import pytest

from deep_agent_mcp.harness.cache import MemoryCache, SqliteCache
from deep_agent_mcp.harness.cache.entries import ModelCache, ToolCache
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    ImageBlock,
    ProviderBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    Usage,
)
from deep_agent_mcp.harness.state.channels import ChannelWrite
from deep_agent_mcp.harness.tools.tool import CachePolicy, ToolResult, tool

pytestmark = pytest.mark.anyio

ANSWER = AIMessage(
    (
        ThinkingBlock("hm", "signature"),
        RedactedThinkingBlock("secret"),
        TextBlock(
            "näïve \ud83d text".encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        ),
        ToolCall("c1", "read", {"path": "/a", "deep": {"x": [1, None]}}),
        ToolCall("c2", "read", invalid="{nope"),
        ProviderBlock("anthropic", {"type": "search", "n": 1}),
    ),
    model="anthropic:m",
    stop_reason="tool_use",
    usage=Usage(1, 2, 3, 4),
    name="agent",
)


async def test_an_answer_is_replayed_with_an_id_of_its_own_and_no_usage(tmp_path):
    async with SqliteCache(tmp_path / "cache.db") as cache:
        await ModelCache(cache).set("k", ANSWER)
    async with SqliteCache(tmp_path / "cache.db") as cache:
        found = await ModelCache(cache).get("k")
        again = await ModelCache(cache).get("k")
    assert found is not None
    assert again is not None
    assert found.content == ANSWER.content
    assert (found.model, found.stop_reason) == (ANSWER.model, ANSWER.stop_reason)
    assert (found.usage, found.name) == (None, None)
    assert len({ANSWER.id, found.id, again.id}) == 3


async def test_an_answer_lives_as_long_as_its_ttl():
    now = 0.0
    answers = ModelCache(MemoryCache(clock=lambda: now), ttl=10)
    await answers.set("k", ANSWER)
    assert await answers.get("k") is not None
    now = 10.0
    assert await answers.get("k") is None


async def test_an_answer_does_not_come_back_into_the_thread_it_is_in():
    answers = ModelCache(MemoryCache())
    await answers.set("k", ANSWER)
    await answers.set("text", AIMessage((TextBlock("hi"),)))
    thread = [HumanMessage("go"), ANSWER]
    assert await answers.get("k", thread) is None
    assert await answers.get("k", thread[:1]) is not None
    assert await answers.get("text", thread) is not None


async def test_a_result_comes_back_with_its_artifact():
    results = ToolCache(MemoryCache())
    blocks = (TextBlock("see"), ImageBlock("image/png", "AAAA"))
    await results.set("k", ToolResult(blocks, artifact={"n": [1]}))
    assert await results.get("k") == ToolResult(blocks, artifact={"n": [1]})
    await results.set("plain", ToolResult("text"))
    assert await results.get("plain") == ToolResult("text")


@pytest.mark.parametrize(
    "result",
    [
        ToolResult("no", status="error"),
        ToolResult("done", update={"todos": []}),
        ToolResult("done", writes=[ChannelWrite("todos", [])]),
    ],
)
async def test_errors_and_state_changes_are_not_stored(result):
    results = ToolCache(MemoryCache())
    await results.set("k", result)
    assert await results.get("k") is None


async def test_a_result_that_is_not_data_is_not_stored():
    results = ToolCache(MemoryCache())
    await results.set("k", ToolResult("x", artifact=object()))  # type: ignore[arg-type]
    assert await results.get("k") is None


async def test_a_tools_policy_says_how_long_and_under_which_key():
    now = 0.0
    results = ToolCache(MemoryCache(clock=lambda: now))
    policy = CachePolicy(ttl=5, key=lambda args: str(args["path"]))

    @tool(read_only=True, cacheable=policy)
    def read(path: str, trace: str) -> str:
        """Read."""
        return path + trace

    key = results.key(read, {"path": "/a", "trace": "1"})
    assert key == results.key(read, {"path": "/a", "trace": "2"})
    await results.set(key, ToolResult("A"), read.cacheable)
    assert await results.get(key) == ToolResult("A")
    now = 5.0
    assert await results.get(key) is None
    await results.set(key, ToolResult("A"), False)
    assert await results.get(key) is None
