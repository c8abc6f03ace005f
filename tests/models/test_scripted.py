import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    HumanMessage,
    Message,
    TextBlock,
    ToolMessage,
    Usage,
)
from deep_agent_mcp.harness.models.base import Delta, PromptSection
from deep_agent_mcp.harness.models.scripted import ScriptedModel, ScriptError, calls
from deep_agent_mcp.harness.tools.schemas import ToolSpec
from tests.models.calls import ask, collect, request

pytestmark = pytest.mark.anyio

TWO_AGENTS = """
name: demo
context_window: 5000
agents:
  main:
    - expect: {last: Fix, last_type: human, system: careful, tools: task}
      think: First, look.
      tool_calls:
        - {name: task, args: {description: look}}
    - expect: {results: {task: [all, well]}}
      text: Done, all is well.
      usage: {input_tokens: 12, output_tokens: 3}
  researcher:
    - text: all is well
"""


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "file.yaml"
    path.write_text(TWO_AGENTS, encoding="utf-8")
    return path


def as_agent(name: str, **fields: Any) -> dict[str, Any]:
    prompt = PromptSection("other", "Be careful.")
    tools = [ToolSpec("task", "", {})]
    return {"system": [prompt], "agent": name, "tools": tools, **fields}


async def first_answer(model: ScriptedModel) -> list[Message]:
    human = HumanMessage("Fix it")
    return [human, await ask(model, human, **as_agent("main"))]


def test_a_script_says_whether_its_model_has_native_output(tmp_path: Path) -> None:
    path = tmp_path / "native.yaml"
    path.write_text("native_output: true\nagents: {main: [{text: '{}'}]}\n", encoding="utf-8")
    assert ScriptedModel(path).native_output


def test_a_script_may_be_what_its_file_would_hold() -> None:
    assert (
        ScriptedModel({"name": "here", "agents": {"*": [{"text": "Hi"}]}}).name == "scripted:here"
    )
    with pytest.raises(ScriptError, match=r"^the script: .*agent "):
        ScriptedModel({"agent": {}})


async def test_a_script_plays_for_each_of_its_agents(demo: Path) -> None:
    model = ScriptedModel(demo)
    assert (model.name, model.context_window) == ("scripted:demo", 5000)
    assert not model.native_output
    human, first = await first_answer(model)
    assert isinstance(first, AIMessage)
    assert [block.type for block in first.content] == ["thinking", "tool_call"]
    assert first.stop_reason == "tool_use"
    found = await ask(model, "look", **as_agent("researcher"))
    assert found.text == "all is well"
    result = ToolMessage(first.tool_calls[0].id, found.text, "task")
    last = await ask(model, human, first, result, **as_agent("main"))
    assert last.text == "Done, all is well."
    assert last.usage == Usage(12, 3)
    assert {first.model, found.model, last.model} == {"scripted:demo"}


async def test_another_process_goes_on_at_the_right_turn(demo: Path) -> None:
    human, first = await first_answer(ScriptedModel(demo))
    assert isinstance(first, AIMessage)
    result = ToolMessage(first.tool_calls[0].id, "all is well", "task")
    later = await ask(ScriptedModel(demo), human, first, result, **as_agent("main"))
    assert later.text == "Done, all is well."


async def test_the_same_request_gets_the_same_turn_again() -> None:
    model = ScriptedModel([{"text": "one"}, {"text": "two"}])
    assert (await ask(model, "go")).text == "one"
    assert (await ask(model, "go")).text == "one"


async def test_what_a_client_drove_does_not_count() -> None:
    model = ScriptedModel([{"text": "one"}, {"text": "two"}])
    driven = AIMessage((TextBlock("mine"),), source="client")
    assert (await ask(model, "go", driven, "go")).text == "one"


async def test_a_view_without_the_older_answers_keeps_its_place() -> None:
    model = ScriptedModel([{"text": str(number)} for number in range(4)])
    seen: list[Message] = [HumanMessage("go")]
    for _ in range(3):
        seen.append(await ask(model, *seen))
    assert (await ask(model, "summary", seen[-1], "go on")).text == "3"


async def test_answers_of_other_models_count_as_turns() -> None:
    model = ScriptedModel([{"text": "one"}, {"text": "two"}])
    assert (await ask(model, "go", AIMessage((TextBlock("x"),)), "more")).text == "two"


def two_goals(tmp_path: Path) -> ScriptedModel:
    script = {
        "agents": {"*": [{"text": "fallback"}]},
        "runs": [
            {"match": "tea", "agents": {"main": [{"text": "t1"}, {"text": "t2"}]}},
            {
                "match": "coffee",
                "agents": {"main": [{"text": "c1"}], "helper": [{"text": "h1"}, {"text": "h2"}]},
            },
        ],
    }
    path = tmp_path / "goals.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    return ScriptedModel(path)


async def test_each_goal_of_a_thread_has_its_own_turns(tmp_path: Path) -> None:
    model = two_goals(tmp_path)
    main = {"agent": "main"}
    seen: list[Message] = [HumanMessage("make tea")]
    texts: list[str] = []
    for follow_up in ("and sugar", "make coffee", "make tea again"):
        answer = await ask(model, *seen, **main)
        texts.append(answer.text)
        seen += [answer, HumanMessage(follow_up)]
    texts.append((await ask(model, *seen, **main)).text)
    assert texts == ["t1", "t2", "c1", "t1"]
    assert (await ask(model, "water", **main)).text == "fallback"


async def test_a_goals_subagent_plays_that_goals_turns(tmp_path: Path) -> None:
    model = two_goals(tmp_path)
    helper = {"agent": "helper"}
    first = await ask(model, "grind", **helper)
    assert first.text == "h1"
    assert (await ask(model, "grind", first, "more", **helper)).text == "h2"


async def test_the_agent_can_be_told_from_its_prompt(demo: Path) -> None:
    system = [PromptSection("agent", "You are researcher.")]
    assert (await ask(ScriptedModel(demo), "look", system=system)).text == "all is well"


async def test_leaving_the_script_is_an_error_with_a_diff(demo: Path) -> None:
    with pytest.raises(ModelError) as raised:
        await ask(ScriptedModel(demo), "Break it", **as_agent("main"))
    assert (raised.value.kind, raised.value.retryable) == ("script", False)
    text = str(raised.value)
    assert "scripted:demo, agent main, turn 1" in text
    assert "-last message contains: 'Fix'" in text
    assert "+last message: 'Break it'" in text
    assert " system prompt contains: 'careful'" in text


async def test_a_result_that_differs_is_shown(demo: Path) -> None:
    model = ScriptedModel(demo)
    human, first = await first_answer(model)
    assert isinstance(first, AIMessage)
    result = ToolMessage(first.tool_calls[0].id, "it is all lost", "task")
    with pytest.raises(ModelError) as raised:
        await ask(model, human, first, result, **as_agent("main"))
    assert "+results of task: 'it is all lost'" in str(raised.value)
    assert "-results of task contains: 'well'" in str(raised.value)


async def test_a_run_that_goes_on_after_the_last_turn_is_told_so() -> None:
    model = ScriptedModel([{"text": "one"}])
    first = await ask(model, "go")
    with pytest.raises(ModelError, match="the script ends after turn 1") as raised:
        await ask(model, "go", first, "and then?")
    assert "and then?" in str(raised.value)


async def test_an_agent_without_turns_is_told_which_have_some(demo: Path) -> None:
    with pytest.raises(ModelError, match="one of 'main', 'researcher'"):
        await ask(ScriptedModel(demo), "go", **as_agent("stranger"))


async def test_text_streams_in_a_few_pieces() -> None:
    model = ScriptedModel([{"text": "a longer text", "tool_calls": [{"name": "x"}]}])
    deltas, answer = await collect(model, request(["go"]))
    pieces = [delta.text for delta in deltas if delta.kind == "text"]
    assert 1 < len(pieces) <= 5
    assert "".join(pieces) == answer.text == "a longer text"
    assert deltas[-1].text == "{}"
    assert deltas[-1].tool_name == "x"


async def test_thinking_and_arguments_stream_too() -> None:
    made = [{"name": "read", "args": {"path": "ä"}}]
    model = ScriptedModel([{"think": "First, look.", "tool_calls": made}])
    deltas, answer = await collect(model, request(["go"]))
    (call,) = answer.tool_calls
    *thinking, args = deltas
    assert {one.kind for one in thinking} == {"thinking"}
    assert "".join(one.text for one in thinking) == "First, look."
    assert args == Delta("tool_args", '{"path": "ä"}', call.id, "read")


async def test_calls_get_ids_that_do_not_repeat_and_may_be_invalid() -> None:
    calls = [{"name": "x"}, {"name": "x"}, {"name": "y", "id": "mine", "invalid": "{oops"}]
    answer = await ask(ScriptedModel([{"tool_calls": calls}]), "go")
    first, second, third = answer.tool_calls
    assert first.id != second.id
    assert (third.id, third.invalid, third.args) == ("mine", "{oops", {})


async def test_a_turn_may_fail() -> None:
    error = {"kind": "rate_limit", "message": "slow down", "retryable": True, "retry_after": 2}
    with pytest.raises(ModelError, match="slow down") as raised:
        await ask(ScriptedModel([{"error": error}]), "go")
    assert (raised.value.kind, raised.value.retryable) == ("rate_limit", True)
    assert raised.value.retry_after == 2


async def test_a_delayed_turn_can_be_interrupted() -> None:
    with anyio.move_on_after(0.05) as scope:
        await ask(ScriptedModel([{"text": "late", "delay": 60}]), "go")
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("name", "text", "complaints"),
    [
        ("a.yaml", "- text: a\n- txt: b\n", ["line 2", "[2].txt", "Did you mean 'text'"]),
        ("a.yaml", "- text: a\n  expect: {systm: b}\n", ["line 2", "Did you mean 'system'"]),
        ("a.yaml", "agent: {main: [a]}\n", ["line 1", "Did you mean 'agents'"]),
        ("a.yaml", "agents:\n  usage:\n  - txt: a\n", ["line 3", "Did you mean 'text'"]),
        ("a.yaml", "agents:\n  main:\n  - text: a\n  - delay: 1\n", ["line 4", ".main[2]"]),
        ("a.yaml", "- text: [", ["line 1", "not YAML"]),
        ("a.json", '[\n{"text": 1}\n]', ["line 2", "[1].text"]),
        ("a.json", "[\n\t1,]", ["line 2", "not JSON"]),
        ("a.json", '[\n\t{"text": 1}\n]', ["[1].text"]),
        ("a.yaml", "", ["malformed"]),
        ("a.yaml", "\udcff", ["cannot read"]),
    ],
)
def test_a_malformed_script_names_file_and_place(
    tmp_path: Path, name: str, text: str, complaints: list[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ScriptError) as raised:
        ScriptedModel(path)
    for complaint in [str(path), *complaints]:
        assert complaint in str(raised.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
def test_what_is_no_plain_file_or_too_large_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(1 << 40)
    for name, words in (
        (tmp_path / "pipe.yaml", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "large.yaml", "more than 10,000,000 bytes"),
    ):
        with pytest.raises(ScriptError, match=f"cannot read the script {name}: .*{words}"):
            ScriptedModel(name)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="cannot read the script"):
        ScriptedModel(str(tmp_path / "none.yaml"))


def test_a_text_is_a_turn_and_calls_makes_one_that_calls_a_tool() -> None:
    long = ScriptedModel([{"tool_calls": [{"name": "ls", "args": {"path": "/"}}]}, {"text": "No."}])
    short = ScriptedModel([calls("ls", path="/"), "No."])
    assert short._script == long._script
    assert calls("stock", tool="x") == {"tool_calls": [{"name": "stock", "args": {"tool": "x"}}]}


def test_a_malformed_list_of_turns_is_refused() -> None:
    with pytest.raises(ScriptError, match=r"list of turns.*\[1\]"):
        ScriptedModel([{}])


async def test_a_goal_that_no_run_matches_is_told_which_goals_are_scripted(tmp_path: Path) -> None:
    runs = {"runs": [{"match": "say hello", "agents": {"main": [{"text": "hello"}]}}]}
    (tmp_path / "hello.json").write_text(json.dumps(runs), encoding="utf-8")
    with pytest.raises(ModelError, match="a goal that contains 'say hello'"):
        await ask(ScriptedModel(tmp_path / "hello.json"), "something else", agent="main")


async def test_a_fork_begins_with_its_own_turns_after_its_callers_answers():
    model = ScriptedModel({"agents": {"main": [{"text": "m"}], "twin": [{"text": "t"}]}})
    answers = [HumanMessage("go"), AIMessage("m", name="main"), HumanMessage("a task")]
    answer = await ask(model, *answers, agent="twin")
    assert answer.text == "t"
