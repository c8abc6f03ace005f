"""Going on with a subagent that has stopped: handles, transcripts, branches."""

import anyio
import pytest

from deep_agent_mcp.harness.agent import RunOptions, create_agent
from deep_agent_mcp.harness.backends.state import FileData
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import AIMessage, ToolMessage, pending_tool_calls
from deep_agent_mcp.harness.subagents.definitions import CompiledSubAgent, SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import call, says
from tests.ports_and_waits import growing
from tests.subagents.family import Cast, family, handle_in, heard, task, told

pytestmark = pytest.mark.anyio

HELPER = SubAgent("helper", "Helps.", "You help.")
ECHO = [lambda request: says(" + ".join(heard(request)))]


def go_on(call_id: str, description: str):
    """Return a turn that sends the subagent of the newest result a message."""
    return lambda request: says("", task(call_id, description, task_id=handle_in(request)))


def texts(result) -> list[str]:
    return [one.text.split("\n\n[")[0] for one in told(result)]


async def test_a_result_has_a_handle_in_text_and_data_and_with_it_the_subagent_goes_on():
    main = [says("", task("1", "first", "helper")), go_on("2", "second"), go_on("3", "third")]
    model = Cast(main=[*main, says("ok")], helper=ECHO)
    result = await family(model, subagents=[HELPER]).ainvoke("go", thread_id="t")
    assert texts(result) == ["first", "first + second", "first + second + third"]
    ids = {one.artifact["task_id"] for one in told(result)}
    assert len(ids) == 1
    assert all(f"[task_id: {next(iter(ids))}]" in one.text for one in told(result))
    assert all(one.artifact["subagent"] == "helper" for one in told(result))


async def test_its_namespace_stays():
    model = Cast(
        main=[says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")], helper=ECHO
    )
    agent = family(model, subagents=[HELPER])
    await agent.ainvoke("go", thread_id="t")
    (ns,) = [one for one in await agent.checkpointer.namespaces("t") if one]
    assert ns.startswith("task:1@")
    history = await agent.checkpointer.history("t", ns)
    assert [one.author for one in reversed(history) if one.author != "after_agent"] == [
        "input", "model", "input", "model",
    ]  # fmt: skip


@pytest.mark.parametrize("restarted", [False, True])
async def test_later_runs_of_the_thread_and_other_processes_can_go_on(tmp_path, restarted):
    path = tmp_path / "journal.db"

    def build(journal):
        model = Cast(
            main=[
                says("", task("1", "first", "helper")),
                says("one"),
                go_on("2", "second"),
                says("two"),
            ],
            helper=ECHO,
        )
        return family(model, subagents=[HELPER], checkpointer=journal)

    async with SqliteCheckpointer(path) as journal:
        agent = build(journal)
        await agent.ainvoke("go", thread_id="t")
        if not restarted:
            result = await agent.ainvoke("more", thread_id="t")
    if restarted:
        async with SqliteCheckpointer(path) as journal:
            result = await build(journal).ainvoke("more", thread_id="t")
    assert texts(result) == ["first", "first + second"]


async def test_a_failed_subagent_can_go_on_and_what_it_had_done_stays():
    ran = []

    @tool
    async def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    def helper(request):
        if len(request.messages) == 3:
            raise ModelError("no luck")
        if len(request.messages) == 1:
            return says("", call("n", "note", text="x"),
                        call("w", "write_file", path="/kept", content="kept"))  # fmt: skip
        return says(f"after {len(request.messages)} messages")

    model = Cast(
        main=[says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")],
        helper=[
            lambda r: says("", call("n", "note", text="x"),
                           call("w", "write_file", path="/kept", content="kept")),
            lambda r: (_ for _ in ()).throw(ModelError("no luck")) if len(r.messages) == 4
            else says("; ".join(heard(r))),
        ],
    )  # fmt: skip
    result = await family(model, [note], subagents=[HELPER]).ainvoke("go")
    first, second = told(result)
    assert first.status == "error"
    assert first.artifact["failed"] == {"kind": "ModelError", "text": "no luck"}
    assert "did not finish: no luck. What it had changed stays. Go on with it (task_id: sub-" in (
        first.text
    )
    assert second.text.startswith("first; second")
    assert ran == ["x"]
    assert result.state["files"]["/kept"].content == "kept"


@pytest.mark.parametrize("mode", ["fresh", "fork"])
async def test_one_that_was_stopped_for_repeating_itself_can_go_on(mode):
    helper = SubAgent("helper", "Helps.", mode=mode, system_prompt="You help.")
    model = Cast(
        main=[says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")],
        helper=[says("", call(f"n{n}", "ls", path="/")) for n in range(6)] + [says("listed")],
    )
    first, second = told(await family(model, subagents=[helper]).ainvoke("go"))
    assert "Send a message that says what to do differently" in first.text
    assert (second.status, second.text.split("\n")[0]) == ("success", "listed")


async def test_calls_that_were_open_when_it_was_stopped_are_closed_before_it_goes_on():
    from deep_agent_mcp.harness.limits.carried_limits import bounds

    ran, hung, seen = [], [], []

    @tool
    async def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    @tool
    async def hang() -> str:
        """Hang."""
        hung.append("")
        await anyio.sleep_forever()
        return "never"

    def second(request):
        seen.extend(request.messages)
        return says("; ".join(heard(request)))

    calls = call("n", "note", text="x"), call("h", "hang")
    model = Cast(
        main=[says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")],
        helper=[says("", *calls), second],
    )
    for seconds in growing(0.3):
        for one in (ran, hung, seen):
            one.clear()
        helper = SubAgent("helper", "Helps.", "You help.", limits=bounds(seconds=seconds))
        with anyio.fail_after(60 + seconds):
            result = await family(model, [note, hang], subagents=[helper]).ainvoke("go")
        if ran and hung:
            break
    assert f"{seconds} seconds allowed" in told(result)[0].text
    assert told(result)[1].text.startswith("first; second")
    assert not pending_tool_calls(seen)
    results = [(one.tool_call_id, one.status) for one in seen if isinstance(one, ToolMessage)]
    assert results == [("n", "success"), ("h", "error")]
    assert ran == ["x"]


@pytest.mark.parametrize("task_id", ["sub-00000000", "nonsense", "../x", "task:1@x"])
async def test_an_unknown_id_is_an_error_that_lists_those_of_the_thread(task_id):
    main = [
        says("", task("1", "first", "helper")),
        says("", task("2", "second", task_id=task_id)),
        says("ok"),
    ]
    model = Cast(main=main, helper=ECHO)
    result = await family(model, subagents=[HELPER]).ainvoke("go")
    first, second = told(result)
    assert second.status == "error"
    known = first.artifact["task_id"]
    assert f"there is no subagent '{task_id}' to continue with here. Known: {known} (helper)." in (
        second.text
    )
    assert len(model.asked_by("helper")) == 1


async def test_an_id_of_another_thread_is_unknown():
    journal = MemoryCheckpointer()
    main = [says("", task("1", "first", "helper")), says("ok")]
    agent = family({"main": main, "helper": ECHO}, subagents=[HELPER], checkpointer=journal)
    first = await agent.ainvoke("go", thread_id="t")
    foreign = told(first)[0].artifact["task_id"]
    driven = await agent.adrive([task("9", "spy", task_id=foreign)], thread_id="u")
    assert driven.results[0].status == "error"
    assert "Known: none." in driven.results[0].text
    # Also where the other thread has a subagent of the same call.
    own = told(await agent.ainvoke("go", thread_id="v"))[0].artifact["task_id"]
    driven = await agent.adrive([task("9", "spy", task_id=foreign)], thread_id="v")
    assert f"Known: {own} (helper)." in driven.results[0].text


async def test_a_driving_client_can_go_on_with_a_subagent():
    agent = family({"main": [], "helper": ECHO}, subagents=[HELPER])
    first = await agent.adrive([task("1", "first", "helper")])
    task_id = first.results[0].artifact["task_id"]
    second = await agent.adrive(
        [task("1", "second", task_id=task_id)], thread_id=first.run.thread_id
    )
    assert second.results[0].text.startswith("first + second")


async def test_the_type_of_a_subagent_that_goes_on_is_what_it_was():
    main = [
        says("", task("1", "first", "helper")),
        lambda r: says("", task("2", "second", "other", handle_in(r))),
        lambda r: says("", task("3", "third", "helper", told_id(r))),
        says("ok"),
    ]

    def told_id(request):
        return next(
            one.artifact["task_id"] for one in request.messages if isinstance(one, ToolMessage)
        )

    other = SubAgent("other", "Other.", "You are other.")
    agent = family({"main": main, "helper": ECHO}, subagents=[HELPER, other])
    _, second, third = told(await agent.ainvoke("go"))
    assert "is a helper, not a other" in second.text
    assert third.text.startswith("first + third")


async def test_two_calls_of_one_answer_cannot_go_on_with_the_same_subagent():
    def both(request):
        task_id = handle_in(request)
        return says("", task("2", "second", task_id=task_id), task("3", "third", task_id=task_id))

    model = Cast(main=[says("", task("1", "first", "helper")), both, says("ok")], helper=ECHO)
    result = await family(model, subagents=[HELPER]).ainvoke("go")
    _, second, third = told(result)
    assert second.text.startswith("first + second")
    assert third.status == "error"
    assert "another call of the same answer continues with it" in third.text


async def test_a_rewound_caller_does_not_know_of_later_turns_nor_of_later_subagents():
    main = [
        says("", task("1", "first", "helper")),
        says("one"),
        go_on("2", "second"),
        says("two"),
    ]
    model = Cast(main=main, helper=ECHO)
    agent = family(model, subagents=[HELPER])
    start = await agent.adrive([call("l", "ls")], thread_id="t")
    one = await agent.ainvoke("go", thread_id="t")
    two = await agent.ainvoke("more", thread_id="t")
    assert texts(two)[1:] == ["first", "first + second"]
    task_id = told(two)[1].artifact["task_id"]

    # After the first turn, the second has not happened.
    await agent.fork("t", one.checkpoint.id)
    other = await agent.adrive([task("9", "another", task_id=task_id)], thread_id="t")
    assert other.results[0].text.startswith("first + another")
    further = await agent.adrive([task("10", "last", task_id=task_id)], thread_id="t")
    assert further.results[0].text.startswith("first + another + last")

    # The old branch is as it was, and goes on from there.
    await agent.fork("t", two.checkpoint.id)
    old = await agent.adrive([task("11", "third", task_id=task_id)], thread_id="t")
    assert old.results[0].text.startswith("first + second + third")

    # Before the subagent there was none.
    await agent.fork("t", start.checkpoint.id)
    gone = await agent.adrive([task("12", "x", task_id=task_id)], thread_id="t")
    assert "Known: none." in gone.results[0].text


async def test_a_question_of_a_turn_that_goes_on_is_answered_in_another_process(tmp_path):
    ran = []

    @tool
    async def note(text: str) -> str:
        """Note."""
        ran.append(text)
        return text

    def build(journal):
        model = Cast(
            main=[says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")],
            helper=[
                says("report"),
                says("", call("a", "note", text="a")),
                says("", call("b", "note", text="b")),
                lambda r: says("; ".join(heard(r))),
            ],
        )
        return family(
            model, [note], subagents=[HELPER], checkpointer=journal, interrupt_on={"note": True}
        )

    async with SqliteCheckpointer(tmp_path / "j.db") as journal:
        waiting = await build(journal).ainvoke("go", thread_id="t")
    for _ in range(2):
        (question,) = waiting.interrupts
        assert question.path[:3] == ("main", "2", "helper")
        async with SqliteCheckpointer(tmp_path / "j.db") as journal:
            answers = {question.id: {"decision": "approve"}}
            waiting = await build(journal).aresume(waiting.run.id, answers)
    assert ran == ["a", "b"]
    assert told(waiting)[1].text.startswith("first; second")


async def test_it_sees_the_files_as_they_are_now_and_its_changes_come_back():
    def reads(request):
        return says("", call(f"r{len(request.messages)}", "read_file", path="/f"))

    def writes(request):
        seen = request.messages[-1].text
        return says("", call("w", "write_file", path="/g", content=f"saw {'new' in seen}"))

    model = Cast(
        main=[
            says("", call("0", "write_file", path="/f", content="old")),
            says("", task("1", "first", "helper")),
            says("", call("e", "edit_file", path="/f", old_string="old", new_string="new")),
            lambda r: says("", task("2", "second", task_id=next(
                one.artifact["task_id"] for one in r.messages
                if isinstance(one, ToolMessage) and one.name == "task"))),
            says("ok"),
        ],
        helper=[reads, says("read"), reads, writes, says("written")],
    )  # fmt: skip
    result = await family(model, subagents=[HELPER]).ainvoke("go")
    files: dict[str, FileData] = result.state["files"]
    assert {path: one.content for path, one in files.items()} == {"/f": "new", "/g": "saw True"}


async def test_a_function_has_no_transcript_and_so_no_handle():
    helper = CompiledSubAgent("helper", "Helps.", lambda text: "did")
    agent = family({"main": [says("", task("1", "x", "helper")), says("ok")]}, subagents=[helper])
    (answer,) = told(await agent.ainvoke("go"))
    assert "task_id" not in answer.text
    assert answer.artifact is None


async def test_a_subagent_whose_file_is_gone_cannot_go_on(tmp_path):
    path = tmp_path / "helper.md"
    path.write_text("---\nname: helper\ndescription: Helps.\n---\nYou help.\n")
    registry = SubAgentRegistry(tmp_path)
    agent = family({"main": [], "helper": ECHO}, subagents=registry)
    first = await agent.adrive([task("1", "first", "helper")], thread_id="t")
    path.unlink()
    registry.reload()
    task_id = first.results[0].artifact["task_id"]
    second = await agent.adrive([task("2", "second", task_id=task_id)], thread_id="t")
    assert "there is no subagent 'helper'" in second.results[0].text


async def test_a_transcript_that_was_pruned_is_an_error_that_says_what_to_do():
    agent = family({"main": [], "helper": ECHO}, subagents=[HELPER])
    first = await agent.adrive([task("1", "first", "helper")], thread_id="t")
    task_id = first.results[0].artifact["task_id"]
    second = await agent.adrive([task("2", "second", task_id=task_id)], thread_id="t")
    assert second.results[0].status == "success"
    await agent.fork("t", first.checkpoint.id)
    await agent.checkpointer.prune("t", keep_latest=1)
    third = await agent.adrive([task("3", "third", task_id=task_id)], thread_id="t")
    assert third.results[0].status == "error"
    assert "its transcript is not in the journal any more" in third.results[0].text


async def test_its_answers_are_labelled_with_its_name_and_the_caller_never_sees_its_messages():
    main = [says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")]
    model = Cast(main=main, helper=ECHO)
    await family(model, subagents=[HELPER]).ainvoke("go")
    names = {
        one.name for one in model.asked_by("helper")[-1].messages if isinstance(one, AIMessage)
    }
    assert names == {"helper"}
    assert heard(model.asked_by("main")[-1]) == ["go"]


async def test_a_structured_answer_of_the_turn_before_does_not_pass_for_the_new_one():
    from pydantic import BaseModel

    class Verdict(BaseModel):
        good: bool

    helper = SubAgent("helper", "Helps.", "You help.", response_format=Verdict)
    model = Cast(
        main=[says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")],
        helper=[
            says("", call("v", "Verdict", good=True)),
            says("", call("w", "Verdict", good=False)),
        ],
    )
    result = await family(model, subagents=[helper]).ainvoke("go")
    assert [one.artifact["answer"] for one in told(result)] == [{"good": True}, {"good": False}]


async def test_a_continued_turn_below_a_subagent_stays_below_it():
    depths = []

    @tool
    async def where(runtime: ToolRuntime) -> str:
        """Say where."""
        depths.append(runtime.ns.count("task:"))
        return "here"

    model = Cast(
        main=[says("", task("1", "first", "helper")), go_on("2", "second"), says("ok")],
        helper=[says("", call("a", "where")), says("x"), says("", call("b", "where")), says("y")],
    )
    await family(model, [where], subagents=[HELPER]).ainvoke("go")
    assert depths == [1, 1]


async def test_a_turn_that_was_cancelled_is_as_if_it_had_not_begun():
    entered = anyio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        entered.set()
        await anyio.sleep_forever()
        return "never"

    def helper(request):
        if heard(request)[-1] == "second":
            return says("", call("h", "hang"))
        return says("; ".join(heard(request)))

    agent = family({"main": [], "helper": [helper] * 3}, [hang], subagents=[HELPER])
    first = await agent.adrive([task("1", "first", "helper")], thread_id="t")
    task_id = first.results[0].artifact["task_id"]
    control = RunControl()

    async def cancel() -> None:
        await entered.wait()
        control.cancel("enough")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(cancel)
            options = RunOptions(control=control)
            calls = [task("2", "second", task_id=task_id)]
            cut = await agent.adrive(calls, thread_id="t", options=options)
    assert cut.run.status == "cancelled"
    third = await agent.adrive([task("3", "third", task_id=task_id)], thread_id="t")
    assert third.results[0].text.startswith("first; third")


async def test_parallel_subagents_go_on_side_by_side():
    def both(request):
        ids = [one.artifact["task_id"] for one in request.messages if isinstance(one, ToolMessage)]
        return says("", *(task(f"n{at}", "more", task_id=one) for at, one in enumerate(ids)))

    model = Cast(
        main=[
            says("", task("1", "a", "helper"), task("2", "b", "helper")), both, says("ok"),
        ],
        helper=ECHO,
    )  # fmt: skip
    result = await family(model, subagents=[HELPER]).ainvoke("go")
    assert texts(result) == ["a", "b", "a + more", "b + more"]


async def test_a_copy_of_a_thread_goes_on_with_its_subagents_apart_from_the_original():
    agent = family({"main": [], "helper": ECHO}, subagents=[HELPER])
    first = await agent.adrive([task("1", "first", "helper")], thread_id="t")
    task_id = first.results[0].artifact["task_id"]
    await agent.checkpointer.copy_thread("t", "u")
    for thread_id, message in (("u", "there"), ("t", "here")):
        more = await agent.adrive([task("2", message, task_id=task_id)], thread_id=thread_id)
        assert more.results[0].text == f"first + {message}\n\n[task_id: {task_id}]"


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (SubAgent("helper", "Helps.", mode="fork"), "a fork of its caller now"),
        (CompiledSubAgent("helper", "Helps.", lambda text: text), "a function now"),
        (
            CompiledSubAgent("helper", "Helps.", create_agent(Cast(helper=ECHO), name="helper")),
            "an agent that was built apart now",
        ),
    ],
    ids=["fork", "function", "agent"],
)
async def test_a_subagent_that_has_become_another_kind_does_not_go_on(now, said):
    journal = MemoryCheckpointer()
    turns = {"main": [], "helper": ECHO}
    agent = family(turns, subagents=[HELPER], checkpointer=journal)
    first = await agent.adrive([task("1", "first", "helper")], thread_id="t")
    task_id = first.results[0].artifact["task_id"]
    agent = family(turns, subagents=[now], checkpointer=journal)
    more = await agent.adrive([task("2", "second", task_id=task_id)], thread_id="t")
    assert more.results[0].status == "error"
    assert f"{task_id} was an agent that starts afresh, and helper is {said}" in (
        more.results[0].text
    )


async def test_a_subagent_that_was_described_anew_goes_on():
    journal = MemoryCheckpointer()
    turns = {"main": [], "helper": ECHO}
    agent = family(turns, subagents=[HELPER], checkpointer=journal)
    first = await agent.adrive([task("1", "first", "helper")], thread_id="t")
    other = SubAgent("helper", "Helps more.", "You help a lot.")
    agent = family(turns, subagents=[other], checkpointer=journal)
    again = task("2", "second", task_id=first.results[0].artifact["task_id"])
    more = await agent.adrive([again], thread_id="t")
    assert more.results[0].text.startswith("first + second")
