"""All of a transcript reaches the model that summarises it, or there is no summary."""

import re
from collections.abc import AsyncGenerator
from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.limits.limits import Limits, Meter
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage
from deep_agent_mcp.harness.messages.transcript import transcript_text
from deep_agent_mcp.harness.middleware.context.summaries import (
    SummaryFailed,
    SummaryTemplate,
    SummaryWriter,
)
from deep_agent_mcp.harness.models.base import ChatRequest, text_tokens
from tests.loop.models import says

pytestmark = pytest.mark.anyio


class Writer:
    """A model that summarises what fits its window, which may be smaller than it says."""

    name = "writer:test"
    native_output = False

    def __init__(
        self, window: int | None = None, really: int = 1_000_000, says: str = "notes"
    ) -> None:
        self.context_window = window
        self._says = says
        self._really = really
        self.heard: list[str] = []

    async def stream(self, request: ChatRequest) -> AsyncGenerator[AIMessage, None]:
        text = request.messages[0].text
        if text_tokens(text) > self._really:
            raise ModelError("too long", kind="overflow")
        self.heard.append(text)
        yield says(self._says)

    async def aclose(self) -> None:
        pass


def writer(model: Writer, attempts: int = 3) -> SummaryWriter:
    template = SummaryTemplate("Summarise.")
    return SummaryWriter(model, Meter(Limits()), template, max_tokens=500, attempts=attempts)  # type: ignore[arg-type]


LONG = [HumanMessage("\n".join(f"line {number}" for number in range(4_000)))]


async def test_a_window_smaller_than_the_model_says_is_found_and_nothing_is_left_out():
    model = Writer(window=20_000, really=6_000)
    await writer(model).write(LONG, "", merge=False)
    heard = "\n".join(model.heard)
    assert all(f"line {number}\n" in heard for number in range(3_999))


async def test_a_model_that_takes_nothing_makes_no_summary():
    model = Writer(window=20_000, really=10)
    with pytest.raises(SummaryFailed, match="writer:test: overflow"):
        await writer(model).write(LONG, "", merge=False)
    assert model.heard == []


async def test_without_an_earlier_summary_none_is_spoken_of():
    model = Writer()
    await writer(model).write([HumanMessage("go")], "", merge=True)
    (heard,) = model.heard
    assert "what came before" not in heard
    assert heard.endswith("Summarise this transcript.")


def heard_parts(model: Writer) -> list[str]:
    """The parts of a transcript that the model was given."""
    fenced = re.compile(r"<transcript (\w+)>\n(.*)\n</transcript \1>", re.DOTALL)
    return [found[2] for text in model.heard if (found := fenced.search(text))]


@given(lines=st.lists(st.text(st.sampled_from("abü "), max_size=40), min_size=1, max_size=30))
def test_parts_are_all_of_a_transcript_and_none_is_too_long(lines: list[str]):
    model = Writer(window=50)
    messages = [HumanMessage("\n".join(lines))]

    async def write() -> None:
        await writer(model).write(messages, "", merge=False)

    anyio.run(write)
    assert "".join(heard_parts(model)) == transcript_text(messages)
    assert all(text_tokens(one) <= 40 for one in heard_parts(model))


async def test_parts_end_at_lines_where_that_leaves_half_of_them():
    model = Writer(window=50)  # parts of 160 characters
    text = "\n".join(["a" * 100, "b" * 100, "c" * 100])
    await writer(model).write([HumanMessage(text)], "", merge=False)
    first, second, third = heard_parts(model)
    assert first.endswith("a\n")
    assert second == "b" * 100 + "\n"
    assert third == "c" * 100


async def test_summaries_of_parts_that_are_too_long_together_are_joined_in_parts_too():
    model = Writer(window=1_000, says="note " * 100)
    summary = await writer(model).write(LONG, "", merge=False)
    assert summary == ("note " * 100).strip()
    assert all(text_tokens(one) <= 1_000 for one in model.heard)


async def test_summaries_that_never_get_shorter_end_the_work():
    model = Writer(window=50, says="note " * 100)
    with anyio.fail_after(60):
        summary = await writer(model).write([HumanMessage("word " * 100)], "", merge=False)
    assert summary.startswith("note note")


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("<analysis>hm</analysis>\n<summary>It is so.</summary>", "It is so."),
        ("<analysis>hm</analysis>It is so.", "It is so."),
        ("It is <analysis> so.", "It is <analysis> so."),
    ],
)
async def test_thoughts_before_a_summary_are_not_kept(answer: str, kept: str):
    model = Writer(says=answer)
    assert await writer(model).write([HumanMessage("go")], "", merge=False) == kept


async def test_an_answer_of_thoughts_alone_is_no_summary():
    with pytest.raises(SummaryFailed, match="empty answer"):
        model = Writer(says="<analysis>only thoughts")
        await writer(model).write([HumanMessage("go")], "", merge=False)


@pytest.mark.parametrize("said", ["Half a", "<analysis>hm</analysis>\n<summary>\nHalf a"])
async def test_a_summary_that_was_cut_off_says_so_at_its_end(said: str) -> None:
    class Short(Writer):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[AIMessage, None]:
            async for answer in super().stream(request):
                yield replace(answer, stop_reason="max_tokens")

    summary = await writer(Short(says=said)).write([HumanMessage("go")], "", merge=False)
    assert summary == "Half a\n\n[The answer was cut off here.]"
    with pytest.raises(SummaryFailed, match="empty answer"):
        await writer(Short(says="<analysis>hm")).write([HumanMessage("go")], "", merge=False)
