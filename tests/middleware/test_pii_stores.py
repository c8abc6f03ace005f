"""What tools and hooks keep in the long-term store, and what is logged of errors, is clean."""

import logging
from typing import Any

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.loop.hooks.requests import Runtime
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.state.channels import State
from deep_agent_mcp.harness.store.base import Get, Put
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

MAIL = "ann@example.org"


@tool
async def remember(runtime: ToolRuntime) -> str:
    """Keep what was found out."""
    assert runtime.store is not None
    await runtime.store.put(("notes",), "one", {"who": [f"Ann <{MAIL}>"], MAIL: 1})
    await runtime.store.batch([Put(("notes",), "two", {"to": MAIL}), Get(("notes",), "one")])
    found = await runtime.store.search(("notes",), query="Ann")
    return f"{len(found)} found"


def model() -> Turns:
    return Turns(says("", call("1", "remember")), says("done"))


def tools_redacted(strategy: Any = "redact", **more: Any) -> PIIMiddleware:
    return PIIMiddleware("email", strategy=strategy, apply_to_tool_results=True, **more)


async def kept(store: MemoryStore, key: str) -> Any:
    item = await store.get(("notes",), key)
    return None if item is None else item.value


async def test_a_tool_stores_clean_values_and_reads_as_ever() -> None:
    store = MemoryStore()
    agent = create_agent(model(), [remember], middleware=[tools_redacted()], store=store)
    result = await agent.ainvoke("go")
    assert await kept(store, "one") == {"who": ["Ann <[REDACTED_EMAIL]>"], "[REDACTED_EMAIL]": 1}
    assert await kept(store, "two") == {"to": "[REDACTED_EMAIL]"}
    assert result.state["messages"][2].text == "1 found"


async def test_a_rule_that_is_not_for_tools_leaves_what_they_store() -> None:
    store = MemoryStore()
    agent = create_agent(model(), [remember], middleware=[PIIMiddleware("email")], store=store)
    await agent.ainvoke("go")
    assert await kept(store, "two") == {"to": MAIL}


async def test_a_rule_that_blocks_keeps_it_out_of_the_store() -> None:
    store = MemoryStore()
    agent = create_agent(model(), [remember], middleware=[tools_redacted("block")], store=store)
    result = await agent.ainvoke("go")
    assert await store.search(()) == []
    assert "may not pass (email)" in result.state["messages"][2].text


async def test_tokens_are_in_the_vault_before_an_item_names_them() -> None:
    store, vault = MemoryStore(), MemoryStore()
    from deep_agent_mcp.harness.redaction.values import StoreVault

    middleware = tools_redacted("tokenize", vault=StoreVault(vault))
    agent = create_agent(model(), [remember], middleware=[middleware], store=store)
    await agent.ainvoke("go")
    token = (await kept(store, "two"))["to"]
    assert token.startswith("<email_ref:")
    assert any(
        item.value == {"value": MAIL} and item.key == token for item in await vault.search(())
    )


async def test_a_hook_stores_clean_values_too() -> None:
    class Noting(AgentMiddleware):
        async def before_agent(self, state: State, runtime: Runtime) -> None:
            assert runtime.store is not None
            await runtime.store.put(("notes",), "hook", {"to": MAIL})

    store = MemoryStore()
    middleware = [PIIMiddleware("email"), Noting()]
    await create_agent(Turns(says("hi")), middleware=middleware, store=store).ainvoke("go")
    assert await kept(store, "hook") == {"to": "[REDACTED_EMAIL]"}


async def test_files_in_the_agents_store_stay_as_they_were_written() -> None:
    store = MemoryStore()
    write = call("1", "write_file", path="/a.txt", content=f"to {MAIL}")
    read = call("2", "read_file", path="/a.txt")
    files = FilesystemMiddleware(StoreBackend(None, ("files",)))
    agent = create_agent(
        Turns(says("", write), says("", read), says("ok")),
        middleware=[files, tools_redacted()],
        store=store,
    )
    result = await agent.ainvoke("go")
    shown = result.state["messages"][4].text
    assert "[REDACTED_EMAIL]" in shown and MAIL not in shown
    assert any(MAIL in str(item.value) for item in await store.search(()))


@pytest.mark.parametrize("redacts", [True, False])
async def test_errors_of_tools_are_logged_without_what_must_go(
    redacts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def look_up() -> str:
        """Look up."""
        try:
            raise KeyError(MAIL)
        except KeyError as error:
            raise RuntimeError(f"no such person: {MAIL}") from error

    middleware = [tools_redacted()] if redacts else []
    agent = create_agent(
        Turns(says("", call("1", "look_up")), says("ok")), [look_up], middleware=middleware
    )
    with caplog.at_level(logging.WARNING):
        await agent.ainvoke("go")
    assert "tool look_up failed" in caplog.text
    assert "in look_up" in caplog.text, "where it failed is told"
    assert (MAIL in caplog.text) is not redacts
