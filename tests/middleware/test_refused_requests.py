"""A provider that refuses long requests: the run goes on with less in view, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.profiles import Profile
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.fake_anthropic.refusals import Refused, refuse_bad
from tests.models.calls import claude

pytestmark = pytest.mark.anyio

MOST = 20_000
"""Characters of messages that the provider takes; it says that it takes far more."""

SUMMARISER = "You condense the older part"
FILES = 12


def refuse_long(body: Any) -> None:
    refuse_bad(body)
    size = len(json.dumps(body["messages"]))
    if size > MOST:
        raise Refused(f"prompt is too long: {size} tokens > {MOST} maximum")


def is_summary(body: Mapping[str, Any]) -> bool:
    return SUMMARISER in json.dumps(body.get("system", ""))


def reads(*numbers: int) -> Answer:
    calls = [{"name": "read_file", "input": {"path": f"/{one}.txt"}} for one in numbers]
    return Answer(tool_calls=calls)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(FILES):
        text = f"file {number}\n" + "Some words of a line.\n" * 120
        (tmp_path / f"{number}.txt").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "turns",
    [[reads(one) for one in range(FILES)], [reads(*range(FILES))]],
    ids=["one after the other", "all in one answer"],
)
async def test_a_run_goes_on_and_keeps_all_it_did(root: Path, turns: list[Answer]) -> None:
    summary = Answer(match=SUMMARISER, text="It read files.", repeat=True)
    async with (
        FakeAnthropic([summary, *turns, "Done."], check=refuse_long) as api,
        claude(api.url) as model,
    ):
        agent = create_deep_agent(model, backend=DirectoryBackend(root))
        result = await agent.ainvoke("Read everything; the word is PINEAPPLE.")
    assert result.run.answer == "Done."
    assert any(one.refused for one in api.recorded), "it was refused"
    asked = [one.body for one in api.recorded if not is_summary(one.body)]
    assert all("PINEAPPLE" in json.dumps(one["messages"]) for one in asked)
    # The log is whole, whatever was left out of what the model saw.
    read = [one.text for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [f"file {number}" in text for number, text in enumerate(read)] == [True] * FILES
    assert all("Some words" in text for text in read)
    spent = {line.agent: line.calls for line in result.used.ledger}
    answered = [one for one in api.recorded if one.refused is None]
    assert spent["main"] == sum(not is_summary(one.body) for one in answered)
    assert spent.get("summarization", 0) == sum(is_summary(one.body) for one in answered)


async def test_a_counter_of_the_provider_decides_when_to_summarise(root: Path) -> None:
    summary = Answer(match=SUMMARISER, text="It read files.", repeat=True)
    turns = [reads(one) for one in range(FILES)]
    async with FakeAnthropic([summary, *turns, "Done."]) as api, claude(api.url) as model:
        counted: list[int] = []

        async def count(request: Any) -> int:
            counted.append(await model.count_tokens(request))
            return counted[-1]

        sizes = {"trigger": ("tokens", 8_000), "keep": ("messages", 2), "token_counter": count}
        profile = Profile(extra_middleware={"SummarizationMiddleware": sizes})
        agent = create_deep_agent(model, backend=DirectoryBackend(root), profile=profile)
        result = await agent.ainvoke("Read everything.")
    assert result.run.answer == "Done."
    assert all(one.refused is None for one in api.recorded)
    summaries = sum(is_summary(one) for one in api.requests)
    assert summaries == sum(one >= 8_000 for one in counted) > 0
