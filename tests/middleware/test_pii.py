"""No secret gets past the redaction, whichever way it takes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict, get_args

import anyio
import anyio.lowlevel
import pytest

from deep_agent_mcp.harness.agent import RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.cache import MemoryCache
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware, hook_config
from deep_agent_mcp.harness.loop.hooks.requests import Command, Send
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.loop.run.events import Event, StreamMode
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
)
from deep_agent_mcp.harness.middleware.call_limits import ModelCallLimitMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIDetectionError, PIIMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.models.base import Delta
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.redaction.rules import Strategy
from deep_agent_mcp.harness.store.base import StoreError
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.structured_output import ToolStrategy
from deep_agent_mcp.harness.tools.tool import Tool, ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says
from tests.middleware.pii_run import GIVEN, PLANTED, Seen, Typed, planted_run

pytestmark = pytest.mark.anyio

MODES: tuple[StreamMode, ...] = get_args(StreamMode)
EVERYWHERE: dict[str, Any] = {"apply_to_output": True, "apply_to_tool_results": True}


def everything(strategy: Strategy = "redact", **more: Any) -> list[PIIMiddleware]:
    kinds = ("email", "credit_card", "ip")
    return [PIIMiddleware(one, strategy=strategy, **EVERYWHERE, **more) for one in kinds]


async def collected(stream: Any) -> tuple[list[Event], RunResult]:
    async with aclosing(stream) as items:
        *events, result = [one async for one in items]
    return events, result


def streamed(events: Sequence[Event]) -> list[str]:
    """The texts that pieces of answers make when they are put together."""
    texts: defaultdict[object, str] = defaultdict(str)
    for one in events:
        if one.mode == "messages":
            data = one.data
            texts[one.path, data["kind"], data["tool_call_id"]] += str(data["text"])
    return list(texts.values())


def leaks(*where: object) -> list[str]:
    text = "\n".join(one if isinstance(one, str) else repr(one) for one in where)
    return [one for one in PLANTED if one in text]


def in_files(folder: Path) -> list[str]:
    raw = b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())
    return leaks(raw.decode("latin-1"))


async def dumped(journal: SqliteCheckpointer, thread_id: str, run_id: str) -> list[object]:
    """All that a journal tells about a thread, decompressed."""
    rows: list[object] = [await journal.run(run_id), await journal.interrupts(run_id)]
    rows.append(await journal.events(run_id, limit=1_000))
    for ns in await journal.namespaces(thread_id):
        for one in await journal.history(thread_id, ns):
            rows += [one, await journal.load(thread_id, ns, one.id)]
    return rows


@pytest.mark.parametrize("strategy", ["redact", "mask", "hash", "tokenize"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_full_of_secrets_leaves_none_anywhere(
    strategy: Strategy, durability: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    # A masked address keeps its local part, which is what is planted: hide it whole instead.
    middleware = everything(strategy)
    if strategy == "mask":
        middleware[0] = PIIMiddleware("email", detector=r"[\w.]+@example\.com", strategy="mask",
                                      **EVERYWHERE)  # fmt: skip
    options = RunOptions(log_events=True, durability=durability)
    path = tmp_path / "journal.db"
    async with SqliteCheckpointer(path) as journal:
        agent, model, child = planted_run(middleware, journal, store)
        events, paused = await collected(
            agent.astream(GIVEN, thread_id="t", modes=MODES, options=options)
        )
        assert paused.run.status == "needs_approval", paused.error
        assert {one.mode for one in events} == set(MODES)
        assert leaks(*events, *streamed(events), paused) == []
        assert in_files(tmp_path) == []
        (question,) = paused.interrupts
        # Another instance goes on, as after a restart.
        agent, more, _ = planted_run(middleware, journal, store)
        later: list[Event] = []
        result = await agent.aresume(
            paused.run.id,
            {question.id: "yes, says leak0x@example.com"},
            options=replace(options, emit=later.append, modes=MODES),
        )
        assert leaks(*later, *streamed(later)) == []
        assert result.run.status == "done", result.error
        assert result.run.goal.startswith("Pay ")
        assert leaks(result, await agent.get_state("t")) == []
        assert leaks(*(await dumped(journal, "t", paused.run.id))) == []
        asked = [*model.requests, *more.requests, *child.requests]
        assert len(asked) == 6
        assert leaks(*(one.messages for one in asked)) == []
        read = next(
            one for one in result.state["messages"]
            if isinstance(one, ToolMessage) and one.name == "read_file"
        )  # fmt: skip
        assert "of " in read.text
    assert in_files(tmp_path) == []
    kept = [one.value["value"] for one in await store.search(limit=100)]
    assert bool(kept) == (strategy == "tokenize")
    assert strategy != "tokenize" or "leak0x@example.com" in kept


async def test_streamed_text_is_the_stored_text() -> None:
    agent, _, _ = planted_run(everything("hash"), MemoryCheckpointer())
    events, result = await collected(agent.astream(GIVEN, modes=("messages",)))
    streamed = "".join(
        one.data["text"] for one in events if one.data["kind"] == "text" and one.path == ("main",)
    )
    answers = [one for one in result.state["messages"] if isinstance(one, AIMessage)]
    assert streamed == "".join(one.text for one in answers if one.source is None)
    by_call: defaultdict[str, str] = defaultdict(str)
    for one in events:
        if one.data["kind"] == "tool_args" and one.path == ("main",):
            by_call[one.data["tool_call_id"]] += one.data["text"]
    calls = [one for answer in answers for one in answer.tool_calls if answer.source is None]
    assert {one.id: one.args for one in calls if one.invalid is None} == {
        key: json.loads(text) for key, text in by_call.items() if key != "c3"
    }


# --- what the field misses -----------------------------------------------------


async def test_messages_from_before_the_middleware_are_redacted_for_model_and_callers() -> None:
    journal = MemoryCheckpointer()
    first = create_agent(Turns(says("hi")), checkpointer=journal)
    await first.ainvoke("I am old@example.com", thread_id="t")
    model = Turns(says("hi"), says("again"))
    agent = create_agent(model, middleware=[PIIMiddleware("email")], checkpointer=journal)
    events, result = await collected(agent.astream("and now?", thread_id="t", modes=MODES))
    assert "[REDACTED_EMAIL]" in model.requests[0].messages[0].text  # type: ignore[union-attr]
    assert "old@" not in repr([events, result, model.requests, await agent.get_state("t")])


async def test_all_messages_of_an_input_are_redacted_not_only_the_last() -> None:
    model = Turns(says("hi"), says("ok"))
    given = [
        {"role": "user", "content": "a@example.com"},
        {"role": "assistant", "content": "b@example.com"},
        HumanMessage((TextBlock("c@exam"), TextBlock("ple.com"))),
    ]
    result = await create_agent(model, middleware=[PIIMiddleware("email")]).ainvoke(given)
    texts = [one.text for one in result.state["messages"][:3]]
    assert texts == ["[REDACTED_EMAIL]"] * 3


@tool
async def send(to: str, extra: dict[str, Any] | None = None) -> ToolResult:
    """Send."""
    return ToolResult(f"sent to {to}", artifact={"to": to})


async def test_arguments_of_calls_are_redacted_in_state_and_for_the_tool() -> None:
    extra = {"b@example.com": ["c@example.com", 1]}
    model = Turns(says("", call("1", "send", to="a@example.com", extra=extra)), says("ok"))
    middleware = [PIIMiddleware("email", apply_to_output=True)]
    result = await create_agent(model, [send], middleware=middleware).ainvoke("go")
    answer, told = result.state["messages"][1:3]
    assert answer.tool_calls[0].args == {
        "to": "[REDACTED_EMAIL]",
        "extra": {"[REDACTED_EMAIL]": ["[REDACTED_EMAIL]", 1]},
    }
    assert told.artifact == {"to": "[REDACTED_EMAIL]"}


async def test_structured_content_keeps_its_structure() -> None:
    @tool
    async def look() -> ToolResult:
        """Look."""
        content = (TextBlock("mail a@example.com"), TextBlock("or call"))
        return ToolResult(
            content, artifact={"rows": [{"mail": "a@example.com", "n": 1}], "ok": True}
        )

    middleware = [PIIMiddleware("email", apply_to_tool_results=True)]
    model = Turns(says("", call("1", "look")), says("ok"))
    result = await create_agent(model, [look], middleware=middleware).ainvoke("go")
    told = result.state["messages"][2]
    assert told.content == (TextBlock("mail [REDACTED_EMAIL]"), TextBlock("or call"))
    assert told.artifact == {"rows": [{"mail": "[REDACTED_EMAIL]", "n": 1}], "ok": True}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("credit_card", "378282246310005"),
        ("credit_card", "6304000000000000000"),
        ("credit_card", "4222222222222"),
        ("ip", "2001:db8:85a3::8a2e:370:7334"),
    ],
)
async def test_cards_of_every_length_and_both_kinds_of_ip(kind: str, value: str) -> None:
    result = await create_agent(
        Turns(says(f"It is {value}.")), middleware=[PIIMiddleware(kind, apply_to_output=True)]
    ).ainvoke(f"Is it {value}?")
    label = f"[REDACTED_{kind.upper()}]"
    assert [one.text for one in result.state["messages"]] == [f"Is it {label}?", f"It is {label}."]


async def test_a_stream_holds_back_more_than_any_window() -> None:
    long = "https://example.com/" + "x" * 2_000 + "?email=hidden@example.com"
    middleware = [PIIMiddleware(one, apply_to_output=True) for one in ("url", "email")]
    agent = create_agent(Typed(says(f"See {long} there")), middleware=middleware)
    events, result = await collected(agent.astream("go", modes=("messages", "values")))
    seen = "".join(one.data["text"] for one in events if one.mode == "messages")
    assert seen == "See [REDACTED_URL] there"
    assert result.run.answer == "See [REDACTED_URL] there"


# --- block ------------------------------------------------------------------------------------


async def test_blocked_input_is_refused_and_nothing_is_stored() -> None:
    journal = MemoryCheckpointer()
    agent = create_agent(Turns(says("hi")), middleware=[PIIMiddleware("email", strategy="block")],
                         checkpointer=journal)  # fmt: skip
    with pytest.raises(PIIDetectionError, match="email") as raised:
        await agent.ainvoke("I am ann@example.com", thread_id="t")
    assert raised.value.pii_type == "email"
    assert "ann" not in str(raised.value)
    assert await journal.threads() == []
    with pytest.raises(PIIDetectionError):
        await agent.adrive([ToolCall("1", "x", {"to": "ann@example.com"})], thread_id="t")
    assert await journal.threads() == []


async def test_a_blocked_answer_fails_the_run_and_is_not_stored() -> None:
    journal = MemoryCheckpointer()
    middleware = [PIIMiddleware("email", strategy="block", apply_to_output=True)]
    agent = create_agent(Typed(says("It is ann@example.com, I think"), says("no")),
                         middleware=middleware, checkpointer=journal)  # fmt: skip
    events, result = await collected(agent.astream("who?", thread_id="t", modes=MODES))
    assert result.run.status == "failed"
    assert isinstance(result.error, PIIDetectionError)
    stored = await journal.load("t"), await journal.run(result.run.id)
    assert "ann@" not in repr([events, result, stored])
    assert [one.type for one in result.state["messages"]] == ["human"]


async def test_a_blocked_result_is_withheld_and_its_tool_is_not_run_again() -> None:
    runs: list[str] = []

    @tool
    async def look() -> ToolResult:
        """Look."""
        runs.append("ran")
        return ToolResult("ann@example.com", update={"notes": "x"})

    middleware = [PIIMiddleware("email", strategy="block", apply_to_tool_results=True)]
    agent = create_agent(Turns(says("", call("1", "look")), says("ok")), [look],
                         middleware=middleware, state_schema=Seen)  # fmt: skip
    result = await agent.ainvoke("go")
    told = result.state["messages"][2]
    assert (told.status, runs, result.run.status) == ("error", ["ran"], "done")
    assert "withheld" in told.text
    assert "email" in told.text


async def test_what_a_rule_blocks_and_was_stored_before_is_shown_redacted() -> None:
    journal = MemoryCheckpointer()
    before = create_agent(Turns(says("hi")), checkpointer=journal)
    await before.ainvoke("a@example.com", thread_id="t")
    middleware = [PIIMiddleware("email", strategy="block")]
    agent = create_agent(Turns(says("hi"), says("ok")), middleware=middleware, checkpointer=journal)
    result = await agent.ainvoke("next", thread_id="t")
    assert result.state["messages"][0].text == "[REDACTED_EMAIL]"


# --- flags, names, composition -----------------------------------------------------------------


async def test_only_input_is_looked_at_unless_told_otherwise() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "tool@example.com"

    model = Turns(says("ai@example.com", call("1", "look")), says("ok"))
    agent = create_agent(model, [look], middleware=[PIIMiddleware("email")])
    result = await agent.ainvoke("me@example.com")
    texts = [one.text for one in result.state["messages"]]
    assert texts == ["[REDACTED_EMAIL]", "ai@example.com", "tool@example.com", "ok"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"apply_to_output": True}, ["me@", "[RED", "tool"]),
        ({"apply_to_tool_results": True}, ["me@", "ai@e", "[RED"]),
    ],
)
async def test_each_flag_has_its_place(flags: dict[str, bool], expected: Sequence[str]) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "tool@example.com"

    model = Turns(says("ai@example.com", call("1", "look")), says("ok"))
    middleware = [PIIMiddleware("email", apply_to_input=False, **flags)]
    result = await create_agent(model, [look], middleware=middleware).ainvoke("me@example.com")
    texts = [one.text for one in result.state["messages"]]
    assert [text[: len(one)] for text, one in zip(texts, expected, strict=False)] == expected


async def test_instances_see_the_same_text() -> None:
    card = PIIMiddleware("credit_card", strategy="mask")
    url = PIIMiddleware("url", strategy="mask")
    text = "see https://x.example/4111111111111111/secret and 4111111111111111"
    for middleware in ([card, url], [url, card]):
        result = await create_agent(Turns(says("ok")), middleware=middleware).ainvoke(text)
        assert result.state["messages"][0].text == "see [REDACTED_URL] and ************1111"


async def test_own_detectors() -> None:
    def names(text: str) -> list[dict[str, Any]]:
        return [{"start": one.start(), "end": one.end()} for one in re.finditer("Ann Lee", text)]

    middleware = [
        PIIMiddleware("employee", detector=r"EMP-\d{4}", strategy="hash", salt="pepper"),
        PIIMiddleware("person", detector=names, strategy="redact"),
    ]
    agent = create_agent(Turns(says("ok")), middleware=middleware)
    said = [
        (await agent.ainvoke("EMP-1234 is Ann Lee")).state["messages"][0].text for _ in range(2)
    ]
    assert re.fullmatch(r"<employee_hash:[0-9a-f]{8}> is \[REDACTED_PERSON\]", said[0])
    assert said[0] == said[1]  # a deployment's salt makes hashes the same in all threads


class Person(TypedDict):
    person: NotRequired[dict[str, Any]]


async def test_an_own_pattern_hides_numbers_wherever_texts_are_hidden() -> None:
    number = 123456789

    @tool
    async def look(ssn: Any, runtime: ToolRuntime) -> ToolResult:
        """Look somebody up."""
        runtime.stream_writer({"ssn": number})
        runtime.interrupt("Go on?", payload={"ssn": number}, answer_schema={"maxLength": number})
        return ToolResult("found", artifact={"ssn": number}, update={"person": {"ssn": number}})

    schema = {"title": "found", "type": "object", "properties": {"ssn": {}}, "required": ["ssn"]}
    model = Typed(says("", call("1", "look", ssn=number)), says("", call("2", "found", ssn=number)))
    journal = MemoryCheckpointer()
    middleware = [PIIMiddleware("ssn", detector=r"\b\d{9}\b", **EVERYWHERE)]
    agent = create_agent(
        model, [look], middleware=middleware, checkpointer=journal, state_schema=Person,
        response_format=ToolStrategy(schema),
    )  # fmt: skip
    options = RunOptions(log_events=True)
    events, asked = await collected(agent.astream("go", modes=MODES, options=options))
    (question,) = asked.interrupts
    assert question.answer_schema == {"maxLength": number}
    assert question.payload == {"ssn": "[REDACTED_SSN]"}
    later: list[Event] = []
    options = replace(options, emit=later.append, modes=MODES)
    answers = {question.id: {"ssn": number}}
    done = await agent.aresume(asked.run.id, answers, options=options)
    assert done.structured_response == {"ssn": "[REDACTED_SSN]"}, done.error
    assert done.state["person"] == {"ssn": "[REDACTED_SSN]"}
    shown = [*events, *streamed(events), *later, *streamed(later), done, done.state]
    shown += await journal.events(asked.run.id, limit=1_000)
    assert str(number) not in repr(shown).replace(repr(question.answer_schema), "")


async def test_a_pattern_for_any_digit_leaves_what_middleware_counts() -> None:
    middleware = [
        PIIMiddleware("digit", detector=r"\d", **EVERYWHERE),
        ModelCallLimitMiddleware(thread_limit=5),
    ]
    agent = create_agent(Turns(says("ok")), middleware=middleware)
    result = await agent.ainvoke("go")
    assert result.run.status == "done", result.error


class Counted(TypedDict):
    total: NotRequired[int]
    notes: NotRequired[dict[str, Any]]


async def test_a_thread_with_typed_numbers_can_be_read_once_a_pattern_finds_them() -> None:
    journal, model = MemoryCheckpointer(), Turns(says("ok"), says("ok"))
    options: dict[str, Any] = {"checkpointer": journal, "state_schema": Counted}
    given = {"total": 12345, "notes": {"zip": 12345}}
    before = create_agent(model, **options)
    await before.ainvoke({"messages": [HumanMessage("go")], **given}, thread_id="t")
    middleware = [PIIMiddleware("zip", detector=r"\b\d{5}\b", **EVERYWHERE)]
    result = await create_agent(model, middleware=middleware, **options).ainvoke(
        "on", thread_id="t"
    )
    assert result.run.status == "done", result.error
    assert result.state["total"] == 12345
    assert result.state["notes"] == {"zip": "[REDACTED_ZIP]"}


async def test_without_a_salt_hashes_are_a_threads_own_and_stay_over_restarts() -> None:
    journal = MemoryCheckpointer()

    def agent() -> Any:
        model = Turns(says("ok"), says("ok"), says("ok"))
        return create_agent(model, middleware=[PIIMiddleware("email", strategy="hash")],
                            checkpointer=journal)  # fmt: skip

    said: list[str] = []
    for thread in ("t", "t", "u"):
        result = await agent().ainvoke("ann@example.com", thread_id=thread)
        said.append([one for one in result.state["messages"] if one.type == "human"][-1].text)
        assert "pii_salt" not in result.state
    assert said[0] == said[1] != said[2]


def test_names_tell_instances_apart_and_wrong_arguments_are_explained() -> None:
    assert PIIMiddleware("email").name == "PIIMiddleware[email]"
    for wrong, expected in [
        ({"pii_type": "Mail!"}, "lower-case"),
        ({"pii_type": "ssn"}, "no detector of 'ssn'"),
        ({"pii_type": "email", "strategy": "drop"}, "block, redact, mask, hash, tokenize"),
        ({"pii_type": "email", "apply_to_input": False}, "looks at nothing"),
        ({"pii_type": "x", "detector": "("}, "not a regular expression"),
        ({"pii_type": "x", "detector": 7}, "detector= takes"),
        ({"pii_type": "email", "salt": "x"}, "strategy='hash'"),
        ({"pii_type": "email", "reveal_to": ["send"]}, "strategy='tokenize'"),
        ({"pii_type": "email", "strategy": "tokenize", "reveal_to": "send"}, "list of tool names"),
    ]:  # fmt: skip
        with pytest.raises(AgentBuildError, match=re.escape(expected)):
            PIIMiddleware(**wrong)  # type: ignore[arg-type]
    with pytest.raises(AgentBuildError, match="store="):
        create_agent(Turns(), middleware=[PIIMiddleware("email", strategy="tokenize")])


async def test_a_subagents_own_rules_add_to_those_above_it() -> None:
    model_of_child: list[Typed] = []
    journal = MemoryCheckpointer()
    agent, _, child = planted_run(
        [PIIMiddleware("email", **EVERYWHERE)], journal, None,
        (PIIMiddleware("credit_card", **EVERYWHERE),),
    )  # fmt: skip
    model_of_child.append(child)
    _, result = await collected(agent.astream(GIVEN, thread_id="t", modes=MODES))
    (ns,) = [one for one in await journal.namespaces("t") if one]
    inside = repr(await journal.load("t", ns))
    assert "leak" not in inside
    assert "4111 1111" not in inside
    assert "dead::77" in inside
    assert "4111 1111" in repr(result.state)


async def test_redaction_only_in_a_subagent_leaves_the_caller_alone() -> None:
    inner = create_agent(Turns(says("I am child@example.com")), name="child",
                         middleware=[PIIMiddleware("email", **EVERYWHERE)])  # fmt: skip

    @tool
    async def task(runtime: ToolRuntime) -> str:
        """Delegate."""
        return (await runtime.run_subagent(inner, "ask task@example.com")).text

    model = Turns(says("my own@example.com", call("1", "task")), says("ok"))
    journal = MemoryCheckpointer()
    result = await create_agent(model, [task], checkpointer=journal).ainvoke("go", thread_id="t")
    assert result.state["messages"][1].text == "my own@example.com"
    assert result.state["messages"][2].text == "I am [REDACTED_EMAIL]"
    (ns,) = [one for one in await journal.namespaces("t") if one]
    assert "task@" not in repr([await journal.load("t", ns), await journal.history("t", ns)])


# --- tokens -----------------------------------------------------------------------------------


async def test_a_tool_that_may_see_a_value_gets_it_and_nobody_else() -> None:
    got: list[str] = []

    @tool
    async def deliver(to: str) -> str:
        """Deliver."""
        got.append(to)
        return f"delivered to {to}"

    @tool
    async def other(to: str) -> str:
        """Do something else."""
        got.append(to)
        return "ok"

    store, journal = MemoryStore(), MemoryCheckpointer()

    def answer(request: Any) -> AIMessage:
        to = request.messages[0].text.split()[-1]
        return says("", call("1", "deliver", to=to), call("2", "other", to=to))

    def agent() -> Any:
        email = PIIMiddleware("email", strategy="tokenize", reveal_to=["deliver"])
        gate = HumanInTheLoopMiddleware({"deliver": True})
        return create_agent(Turns(answer, says("done")), [deliver, other], middleware=[email, gate],
                            checkpointer=journal, store=store)  # fmt: skip

    stream = agent().astream("Send it to ann@example.com", thread_id="t", modes=MODES)
    events, paused = await collected(stream)
    (question,) = paused.interrupts
    assert question.payload["args"] == {"to": got[0]}  # a person decides about the token
    assert re.fullmatch(r"<email_ref:[a-p]{16}>", got[0])
    answers = {question.id: {"decision": "approve"}}
    result = await agent().aresume(paused.run.id, answers)  # another process
    assert got[1] == "ann@example.com"
    assert result.state["messages"][2].text == f"delivered to {got[0]}"
    assert "ann@" not in repr([events, result, paused, await journal.load("t")])


async def test_a_tool_that_takes_only_numbers_gets_the_value_of_a_token_as_a_number() -> None:
    got: list[Any] = []
    number, either = {"type": "integer"}, {"anyOf": [{"type": "number"}, {"type": "null"}]}
    properties: Any = {
        "card": number,
        "either": either,
        "all": {"type": "array", "items": {"type": "object", "properties": {"card": number}}},
        "text": {"type": "string"},
    }

    async def pay(args: dict[str, Any]) -> str:
        got.append(args)
        return "paid"

    card = 4_111_111_111_111_111
    given = {"card": card, "either": card, "all": [{"card": card}], "text": str(card)}
    schema = {"type": "object", "properties": properties}
    pii = PIIMiddleware("credit_card", strategy="tokenize", reveal_to=["pay"], apply_to_output=True)
    agent = create_agent(
        Turns(says("", call("1", "pay", **given)), says("ok")),
        [Tool.from_schema("pay", "Pay.", schema, pay)],
        middleware=[pii],
        store=MemoryStore(),
    )
    result = await agent.ainvoke("Pay")
    assert got == [given] and str(card) not in repr(result)


async def test_policy_judges_the_value_that_would_be_used() -> None:
    @tool
    async def deliver(path: str) -> str:
        """Deliver."""
        return "delivered"

    def answer(request: Any) -> AIMessage:
        return says("", call("1", "deliver", path=request.messages[0].text))

    email = PIIMiddleware("email", strategy="tokenize", reveal_to=["deliver"])
    rule = Rule("deny", path="/*@evil.example")
    agent = create_agent(Turns(answer, says("ok")), [deliver], middleware=[email],
                         store=MemoryStore(), policy=Policy([rule]))  # fmt: skip
    result = await agent.ainvoke("eve@evil.example")
    assert result.state["messages"][2].status == "error"


async def test_a_token_of_another_thread_is_worth_nothing() -> None:
    got: list[str] = []

    @tool
    async def deliver(to: str) -> str:
        """Deliver."""
        got.append(to)
        return "ok"

    def answer(request: Any) -> AIMessage:
        return says("", call("1", "deliver", to=request.messages[0].text))

    store = MemoryStore()
    email = PIIMiddleware("email", strategy="tokenize", reveal_to=["deliver"])
    agent = create_agent(Turns(answer, says("ok")), [deliver], middleware=[email], store=store)
    result = await agent.ainvoke("ann@example.com", thread_id="t")
    token = result.state["messages"][0].text
    await agent.ainvoke(token, thread_id="u")
    assert got == ["ann@example.com", token]


# --- other ways in ----------------------------------------------------------------------------


async def test_driven_calls_and_writes_from_outside_are_redacted() -> None:
    journal = MemoryCheckpointer()
    middleware = [PIIMiddleware("email", **EVERYWHERE)]
    agent = create_agent(Turns(says("ok")), [send], middleware=middleware, checkpointer=journal)
    result = await agent.adrive([ToolCall("1", "send", {"to": "ann@example.com"})], thread_id="t")
    assert result.results[0].text == "sent to [REDACTED_EMAIL]"
    await agent.update_state("t", {"messages": [HumanMessage("bob@example.com")]})
    assert "@example" not in repr([result, await journal.load("t"), await agent.get_state("t")])


async def test_errors_that_end_a_run_tell_nothing() -> None:
    @tool(strict=True)
    async def fail() -> str:
        """Fail."""
        raise ValueError("no user ann@example.com")

    journal = MemoryCheckpointer()
    agent = create_agent(Turns(says("", call("1", "fail"))), [fail],
                         middleware=[PIIMiddleware("email", apply_to_tool_results=True)],
                         checkpointer=journal)  # fmt: skip
    events, result = await collected(agent.astream("go", modes=MODES))
    assert result.run.status == "failed"
    assert "[REDACTED_EMAIL]" in (result.run.reason or "")
    cause = result.error.__cause__ if result.error else None
    assert "ann@" not in repr([events, result, cause, await journal.run(result.run.id)])


async def test_a_thought_that_had_to_change_loses_its_signature() -> None:
    thoughts = (ThinkingBlock("of ann@example.com", "s1"), ThinkingBlock("of nobody", "s2"))
    model = Turns(AIMessage((*thoughts, TextBlock("ok"))))
    agent = create_agent(model, middleware=[PIIMiddleware("email", apply_to_output=True)])
    answer = (await agent.ainvoke("go")).state["messages"][1]
    assert answer.content[:2] == (ThinkingBlock("of [REDACTED_EMAIL]"), thoughts[1])


async def test_old_messages_are_not_looked_at_again_in_each_step() -> None:
    looked: list[int] = []

    def counting(text: str) -> list[tuple[int, int]]:
        looked.append(len(text))
        return []

    @tool
    async def noop() -> str:
        """Do nothing."""
        return "nothing"

    rounds = 30
    turns = [says("working", call(str(one), "noop")) for one in range(rounds)]
    middleware = [PIIMiddleware("x", detector=counting, **EVERYWHERE)]
    agent = create_agent(Turns(*turns, says("done")), [noop], middleware=middleware)
    await agent.ainvoke([HumanMessage("m" * 10_000) for _ in range(50)])
    big = [one for one in looked if one == 10_000]
    assert len(big) <= 100  # once as they come in, once more at most
    assert len(looked) < 25 * rounds


# --- ways out that are easily forgotten ---------------------------------------------------------


class Mute(Turns):
    """Answers without a stream."""

    async def stream(self, request: Any) -> AsyncGenerator[Delta | AIMessage, None]:
        async with aclosing(super().stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AIMessage):
                    yield piece


async def test_an_answer_that_did_not_come_in_pieces_is_clean_in_the_stream() -> None:
    middleware = [PIIMiddleware("email", apply_to_output=True)]
    turn = says("for ann@example.com", call("1", "send", to="ann@example.com"))
    agent = create_agent(Mute(turn, says("ok")), [send], middleware=middleware)
    events, _ = await collected(agent.astream("go", modes=("messages",)))
    assert [one.data["text"] for one in events][:2] == [
        "for [REDACTED_EMAIL]",
        '{"to": "[REDACTED_EMAIL]"}',
    ]


async def test_a_cached_answer_holds_no_secret() -> None:
    cache = MemoryCache()
    middleware = [PIIMiddleware("email", apply_to_output=True)]
    for _ in range(2):
        agent = create_agent(Turns(says("for ann@example.com")), middleware=middleware, cache=cache)
        assert (await agent.ainvoke("go")).run.answer == "for [REDACTED_EMAIL]"
    assert "ann@" not in repr(vars(cache))


async def test_an_answer_that_was_cached_before_is_redacted() -> None:
    cache = MemoryCache()
    await create_agent(Turns(says("for ann@example.com")), cache=cache).ainvoke("go")
    middleware = [PIIMiddleware("email", apply_to_output=True)]
    model = Turns(says("not asked"))
    agent = create_agent(model, middleware=middleware, cache=cache)
    events, result = await collected(agent.astream("go", modes=MODES))
    assert (result.run.answer, model.requests) == ("for [REDACTED_EMAIL]", [])
    assert "ann@" not in repr(events)


async def test_what_a_wrapper_makes_of_an_answer_is_redacted() -> None:
    class Adds(AgentMiddleware):
        async def wrap_model_call(self, request: Any, handler: Any) -> AIMessage:
            await handler(request)
            return says("ask ann@example.com")

    middleware = [PIIMiddleware("email", apply_to_output=True), Adds()]
    agent = create_agent(Turns(says("hi")), middleware=middleware)
    events, result = await collected(agent.astream("go", modes=MODES))
    assert result.run.answer == "ask [REDACTED_EMAIL]"
    assert "ann@" not in repr([events, result])


async def test_calls_that_a_hook_sends_are_redacted() -> None:
    class Sends(AgentMiddleware):
        @hook_config(can_jump_to=["tools"])
        def before_agent(self, state: Any, runtime: Any) -> Command:
            return Command(send=[Send("send", {"to": "ann@example.com"})])

    middleware = [PIIMiddleware("email", apply_to_output=True), Sends()]
    agent = create_agent(Turns(says("ok")), [send], middleware=middleware)
    events, result = await collected(agent.astream("go", modes=MODES))
    assert result.state["messages"][1].tool_calls[0].args == {"to": "[REDACTED_EMAIL]"}
    assert "ann@" not in repr([events, result])


async def test_a_refused_write_does_not_quote_the_secret() -> None:
    @tool
    async def note() -> ToolResult:
        """Note."""
        return ToolResult("done", update={"notes": ["ann@example.com"]})

    middleware = [PIIMiddleware("email", apply_to_tool_results=True)]
    agent = create_agent(Turns(says("", call("1", "note")), says("ok")), [note],
                         middleware=middleware, state_schema=Seen)  # fmt: skip
    events, result = await collected(agent.astream("go", modes=MODES))
    assert "wrong value" in result.state["messages"][2].text
    assert "ann@" not in repr([events, result])


async def test_an_evicted_result_is_redacted_before_it_is_evicted() -> None:
    evicted: list[str] = []

    class Evicts(AgentMiddleware):
        async def evict(self, request: Any, outcome: Any) -> Any:
            evicted.append(outcome.message.text)
            return outcome

    @tool
    async def look() -> str:
        """Look."""
        return "ann@example.com " * 3

    middleware = [Evicts(), PIIMiddleware("email", apply_to_tool_results=True)]
    model = Turns(says("", call("1", "look")), says("ok"))
    await create_agent(model, [look], middleware=middleware).ainvoke("go")
    assert evicted == ["[REDACTED_EMAIL] " * 3]


async def test_a_run_that_never_began_has_no_goal_to_tell() -> None:
    journal = MemoryCheckpointer()
    control = RunControl()
    control.scope.cancel()
    control.reason = "stopped at once"
    agent = create_agent(Turns(says("ok")), middleware=[PIIMiddleware("email")],
                         checkpointer=journal)  # fmt: skip
    options = RunOptions(control=control)
    result = await agent.ainvoke("for ann@example.com", thread_id="t", options=options)
    assert result.run.status == "cancelled"
    assert "ann@" not in repr([result, await journal.run(result.run.id)])


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_token_is_stored_before_what_names_it(durability: Any) -> None:
    kept: dict[str, str] = {}

    class Keeper:
        async def keep(self, scope: str, values: Mapping[str, str]) -> None:
            await anyio.lowlevel.checkpoint()
            kept.update(values)

        async def find(self, scope: str, tokens: Iterable[str]) -> Mapping[str, str]:
            return {one: kept[one] for one in tokens if one in kept}

    class Watching(MemoryCheckpointer):
        async def commit(self, batch: Any) -> None:
            named = re.findall(r"<email_ref:[a-p]{16}>", repr(batch))
            seen.extend(named)
            assert set(named) <= kept.keys()
            await super().commit(batch)

    seen: list[str] = []
    slow = anyio.Event()

    @tool
    async def first(runtime: ToolRuntime) -> str:
        """End first."""
        slow.set()
        return "first@example.com"

    @tool
    async def second(runtime: ToolRuntime) -> str:
        """End later."""
        await slow.wait()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return "second@example.com"

    middleware = [PIIMiddleware("email", strategy="tokenize", vault=Keeper(), **EVERYWHERE)]
    model = Turns(says("", call("1", "first"), call("2", "second")), says("third@example.com"))
    agent = create_agent(model, [first, second], middleware=middleware, checkpointer=Watching())
    options = RunOptions(durability=durability, log_events=True)
    result = await agent.ainvoke("zero@example.com", options=options)
    assert result.run.status == "done"
    assert len(set(seen)) == 4
    names = ("first", "second", "third", "zero")
    assert sorted(kept.values()) == [f"{one}@example.com" for one in names]


async def test_a_vault_that_fails_fails_the_run_before_anything_names_its_tokens() -> None:
    class Broken:
        async def keep(self, scope: str, values: Mapping[str, str]) -> None:
            raise StoreError("the disk is full")

        async def find(self, scope: str, tokens: Iterable[str]) -> Mapping[str, str]:
            return {}

    journal = MemoryCheckpointer()
    middleware = [PIIMiddleware("email", strategy="tokenize", vault=Broken())]
    agent = create_agent(Turns(says("ok")), middleware=middleware, checkpointer=journal)
    with pytest.raises(StoreError, match="disk is full"):
        await agent.ainvoke("ann@example.com", thread_id="t")
    assert await journal.threads() == []


async def test_results_of_tools_are_not_cached_as_they_were():
    cache, ran = MemoryCache(), []

    @tool(read_only=True, cacheable=True)
    async def look() -> str:
        """Look."""
        ran.append(1)
        return "ann@example.com"

    turns = (says("", call("1", "look")), says("ok"))
    middleware = [PIIMiddleware("email", apply_to_tool_results=True)]
    for _ in range(2):
        agent = create_agent(Turns(*turns), [look], middleware=middleware, cache=cache)
        result = await agent.ainvoke("go")
        assert result.state["messages"][2].text == "[REDACTED_EMAIL]"
    assert len(ran) == 2
