import json
import os
import re
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, RunResult, create_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.mounts import with_workspace
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError, ModelError
from deep_agent_mcp.harness.loop.run.context import RunControl
from deep_agent_mcp.harness.messages.message import AIMessage, ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.commands.shell import OUTPUT_DIRECTORY, ShellToolMiddleware
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.policy import Policy, PolicyFiles, Rule
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.policies import HostExecutionPolicy
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turn, Turns, call, says
from tests.ports_and_waits import growing
from tests.shell.support import Witness, need_bubblewrap, other_process

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system"),
]


@pytest.fixture
def witness(tmp_path: Path) -> Generator[Callable[[], Witness]]:
    made: list[Witness] = []

    def make() -> Witness:
        made.append(Witness(tmp_path / f"witness{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def shell(root: Path | None = None, **options: Any) -> ShellToolMiddleware:
    options.setdefault("execution_policy", HostExecutionPolicy())
    return ShellToolMiddleware(root, **options)


def runs(command: str, name: str = "c", **more: Any) -> ToolCall:
    return call(name, "shell", command=command, **more)


def agent_of(middleware: ShellToolMiddleware, *turns: Turn, **options: Any) -> Agent:
    return create_agent(Turns(*turns, says("done")), middleware=[middleware], **options)


def results(result: RunResult) -> list[ToolMessage]:
    assert result.error is None, result.error
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


async def answers(middleware: ShellToolMiddleware, *calls: ToolCall | str) -> list[ToolMessage]:
    """Return the results of calls, each of which is an answer of its own."""
    made = [
        runs(one, f"c{place}") if isinstance(one, str) else one for place, one in enumerate(calls)
    ]
    agent = agent_of(middleware, *(says("", one) for one in made))
    found = results(await agent.ainvoke("Go"))
    await agent.aclose()
    for one in found:
        if one.artifact is not None:
            jsonschema.validate(one.artifact, middleware.tools[0].output_schema or {})
    return found


async def answer(middleware: ShellToolMiddleware, one: ToolCall | str) -> ToolMessage:
    (message,) = await answers(middleware, one)
    return message


def facts(message: ToolMessage) -> dict[str, Any]:
    assert isinstance(message.artifact, dict)
    return message.artifact


# --- results ---------------------------------------------------------------------------------


async def test_a_session_lasts_from_call_to_call(tmp_path: Path) -> None:
    first, second = await answers(
        shell(tmp_path), "mkdir a; cd a; X=kept; f() { echo f; }", "pwd; echo $X; f"
    )
    assert first.text == "[exit code 0]"
    assert second.text == f"{tmp_path}/a\nkept\nf\n[exit code 0]"
    assert facts(second)["output"] == f"{tmp_path}/a\nkept\nf\n"
    assert (second.status, facts(second)["exit_code"]) == ("success", 0)


async def test_by_default_commands_run_in_a_sandbox(tmp_path: Path) -> None:
    need_bubblewrap()
    middleware = ShellToolMiddleware(tmp_path)
    message = await answer(middleware, "ls /home /root /opt; echo here >file; pwd")
    assert message.text.count("No such file") == 3
    assert message.text.endswith(f"{tmp_path}\n[exit code 0]")
    assert (tmp_path / "file").read_text() == "here\n"


async def test_a_command_that_fails_is_an_error_with_its_exit_code(tmp_path: Path) -> None:
    message = await answer(shell(tmp_path), "echo why >&2; (exit 3)")
    assert (message.status, message.text) == ("error", "why\n[exit code 3]")
    assert facts(message)["exit_code"] == 3


async def test_without_env_there_is_a_path_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_API_KEY", "hidden")
    message = await answer(shell(tmp_path), "ls -d /; env")
    assert message.status == "success"
    assert message.text.startswith("/\n")
    assert "HOME=" in message.text
    assert "hidden" not in message.text
    assert "A=b" in (await answer(shell(tmp_path, env={"A": "b"}), "env")).text


async def test_output_without_a_last_newline_is_no_timeout(tmp_path: Path) -> None:
    message = await answer(shell(tmp_path), "printf hello")
    assert message.text == "hello\n[exit code 0]"
    assert facts(message)["output"] == "hello\n"
    assert not facts(message)["timed_out"]


async def test_a_command_that_reads_its_input_finds_none(tmp_path: Path) -> None:
    first, second = await answers(shell(tmp_path), "cat; read -r line; echo read", "echo next")
    assert first.text == "read\n[exit code 0]"
    assert second.text == "next\n[exit code 0]"


async def test_a_timeout_keeps_the_output_and_says_what_is_lost(tmp_path: Path) -> None:
    # The peers' session came back without FOO, and said nothing about it.
    for seconds in growing(0.5):
        began = time.monotonic()
        late, after = await answers(
            shell(tmp_path, startup_commands=["export FOO=bar"]),
            runs("MINE=1; cd /; echo before; sleep 1000", "a", timeout=seconds),
            "echo FOO=$FOO MINE=$MINE; pwd",
        )
        assert time.monotonic() - began < seconds + 60
        if late.text.startswith("before"):
            break
    assert (late.status, facts(late)["timed_out"], facts(late)["exit_code"]) == (
        "error",
        True,
        None,
    )
    assert late.text.startswith("before\n[The command was stopped after ")
    assert "variables, functions and background processes are gone" in late.text
    assert "begins with the startup commands" in late.text
    notice, *output = after.text.splitlines()
    assert notice.startswith(f"[This is a new shell, in {tmp_path}.")
    assert output == ["FOO=bar MINE=", str(tmp_path), "[exit code 0]"]
    assert facts(after)["new_shell"]
    # Some clients show a model the text alone, others the data alone.
    assert facts(after)["notes"] == [notice[1:-1], "exit code 0"]
    assert "The command was stopped" in facts(late)["notes"][0]


async def test_a_timeout_is_bounded_by_the_policy(tmp_path: Path) -> None:
    policy = HostExecutionPolicy(command_timeout=0.2, max_command_timeout=50)
    middleware = shell(tmp_path, execution_policy=policy)
    (default,) = await answers(middleware, "sleep 1000")
    assert facts(default)["timed_out"]
    (longer,) = await answers(middleware, runs("sleep 0.3; echo slept", timeout=40))
    assert longer.text == "slept\n[exit code 0]"
    (refused,) = await answers(middleware, runs("touch ran", timeout=60))
    assert refused.status == "error"
    assert "was not run" in refused.text
    assert not (tmp_path / "ran").exists()
    assert "after 0.2 s" in middleware.tools[0].description
    assert "at most 50 s" in middleware.tools[0].description


async def test_of_long_output_both_ends_are_shown_and_a_file_has_all(tmp_path: Path) -> None:
    middleware = shell(tmp_path, execution_policy=HostExecutionPolicy(max_output_lines=6))
    long, back = await answers(middleware, "seq 1000; (exit 2)", f"cat {OUTPUT_DIRECTORY}/*|wc -l")
    path = facts(long)["output_file"]
    assert long.text.splitlines() == [
        *("1", "2", "3"),
        f"[… 994 lines, 3874 bytes left out; all of it is in {path} …]",
        *("998", "999", "1000"),
        "[exit code 2]",
    ]
    assert Path(path).read_text().splitlines() == [str(number) for number in range(1, 1001)]
    assert back.text == "1000\n[exit code 0]"
    assert Path(path).parent == tmp_path / OUTPUT_DIRECTORY


async def test_a_file_that_cannot_be_written_costs_no_result(tmp_path: Path) -> None:
    (tmp_path / OUTPUT_DIRECTORY).write_text("in the way")
    policy = HostExecutionPolicy(max_output_lines=2)
    message = await answer(shell(tmp_path, execution_policy=policy), "seq 10")
    assert message.status == "success"
    assert "it could not be kept" in message.text
    assert message.text.startswith("1\n")
    assert message.text.endswith("10\n[exit code 0]")


async def test_of_too_much_output_the_beginning_is_kept(tmp_path: Path) -> None:
    policy = HostExecutionPolicy(max_file_bytes=2_000_000, max_output_bytes=100)
    message = await answer(shell(tmp_path, execution_policy=policy), "yes | head -c 9000000")
    path = Path(facts(message)["output_file"])
    assert path.stat().st_size == 2_000_000
    assert f"the beginning of it is in {path}" in message.text
    assert len(message.text) < 1_000


async def test_rules_redact_what_is_shown_and_kept(tmp_path: Path) -> None:
    policy = HostExecutionPolicy(max_output_lines=2)
    rule = lambda text: re.sub(r"key-\d+", "[KEY]", text)  # noqa: E731
    middleware = shell(tmp_path, execution_policy=policy, redaction_rules=[rule])
    message = await answer(middleware, "for i in 1 2 3 4; do echo key-$i; done")
    assert "key-" not in json.dumps([message.text, message.artifact])
    assert Path(facts(message)["output_file"]).read_text() == "[KEY]\n" * 4


async def test_a_rule_that_fails_hides_the_output_and_says_that_the_command_ran(
    tmp_path: Path,
) -> None:
    def rule(text: str) -> str:
        raise ValueError(text)

    message = await answer(shell(tmp_path, redaction_rules=[rule]), "echo secret >file; cat file")
    assert message.status == "error"
    assert "The command ran (exit code 0)" in message.text
    assert "secret" not in message.text


async def test_a_command_that_ends_the_shell_is_told_so(tmp_path: Path) -> None:
    ended, after = await answers(shell(tmp_path), "X=1; exit 4", "echo X=$X")
    assert (ended.status, facts(ended)["exit_code"], facts(ended)["shell_ended"]) == (
        *("error", 4),
        True,
    )
    assert ended.text.startswith("[exit code 4: the shell itself ended")
    assert after.text.splitlines()[1:] == ["X=", "[exit code 0]"]
    assert after.text.startswith("[This is a new shell")


async def test_restart_opens_a_new_shell_and_may_run_a_command(tmp_path: Path) -> None:
    _, restarted, after = await answers(
        shell(tmp_path),
        "X=1",
        call("r", "shell", restart=True),
        runs("echo X=$X", "s", restart=True),
    )
    assert restarted.text.startswith(f"[This is a new shell, in {tmp_path}")
    assert restarted.status == "success"
    assert after.text.splitlines()[1:] == ["X=", "[exit code 0]"]


@pytest.mark.parametrize("args", [{}, {"restart": False}, {"command": "a\0b"}, {"timeout": -1}])
async def test_calls_that_make_no_sense_say_what_is_expected(
    tmp_path: Path, args: dict[str, Any]
) -> None:
    message = await answer(shell(tmp_path), call("c", "shell", **args))
    assert message.status == "error"
    assert "was not run" in message.text


async def test_a_startup_command_that_fails_is_a_result_for_the_model(tmp_path: Path) -> None:
    middleware = shell(tmp_path, startup_commands="cat /nowhere")
    message = await answer(middleware, "touch ran")
    assert message.status == "error"
    assert "startup command 'cat /nowhere' ended with exit code 1" in message.text
    assert not (tmp_path / "ran").exists()


# --- runs ------------------------------------------------------------------------------------


async def test_parallel_calls_take_turns_and_say_so(tmp_path: Path) -> None:
    calls = [runs(f"echo {one} >>log; echo end {one} >>log; cd /", str(one)) for one in range(4)]
    calls[1] = runs("cd /; echo 1 >>/dev/null; pwd", "1")
    agent = agent_of(shell(tmp_path), says("", *calls[:2]))
    first, second = results(await agent.ainvoke("Go"))
    assert first.text == "[exit code 0]"
    assert second.text == (
        "[This call waited for other calls of the shell: they take turns.]\n/\n[exit code 0]"
    )
    assert (tmp_path / "log").read_text() == "0\nend 0\n"


async def test_everything_ends_with_the_run(tmp_path: Path, witness: Callable[[], Witness]) -> None:
    one = witness()
    middleware = shell(tmp_path, shutdown_commands=["echo $X >last"])
    agent = agent_of(middleware, says("", runs(f"X=set; {one.held('setsid')}")))
    await agent.ainvoke("Go")
    await one.started()
    assert one.is_gone()
    assert (tmp_path / "last").read_text() == "set\n"


async def test_a_second_run_on_the_thread_has_a_shell_of_its_own_and_knows(tmp_path: Path) -> None:
    agent = agent_of(
        shell(tmp_path), says("", runs("X=1", "a")), says("."), says("", runs("echo X=$X", "b"))
    )
    await agent.ainvoke("Go", thread_id="t")
    result = await agent.ainvoke("Go on", thread_id="t")
    assert results(result)[1].text.startswith("[This is a new shell")
    assert results(result)[1].text.endswith("X=\n[exit code 0]")


async def test_concurrent_runs_have_shells_of_their_own(tmp_path: Path) -> None:
    def turns(request: Any) -> Any:
        return says("", runs(f"X={request.messages[0].text}"))

    agent = agent_of(shell(tmp_path), turns, says("", runs("sleep 0.01; echo $X", "d")))
    found = await agent.abatch([str(number) for number in range(5)])
    texts = [results(one)[1].text for one in found if isinstance(one, RunResult)]
    assert texts == [f"{number}\n[exit code 0]" for number in range(5)]


async def test_without_a_workspace_each_run_has_a_directory_that_goes_with_it() -> None:
    (message,) = await answers(shell(None), "touch file; pwd")
    assert not Path(message.text.splitlines()[0]).exists()
    first, second = await answers(shell(None), "touch file; exit 0", "ls")
    assert first.status == "error"
    assert "file" in second.text.splitlines()[1:]


async def test_a_cancelled_run_leaves_nothing(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one, control = witness(), RunControl()
    agent = agent_of(shell(tmp_path), says("", runs(f"{one.held('setsid')} sleep 1000")))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("Go", options=RunOptions(control=control)))
            await one.started()
            control.cancel("enough")
    assert one.is_gone()


@pytest.mark.parametrize("busy", ["model", "tool"])
async def test_a_run_that_is_cancelled_elsewhere_leaves_nothing(
    tmp_path: Path, witness: Callable[[], Witness], busy: str
) -> None:
    one, control, entered = witness(), RunControl(), anyio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        entered.set()
        return await anyio.sleep_forever() or ""

    class Hanging(Turns):
        async def stream(self, request: Any) -> Any:
            if len(self.requests) == 1 and busy == "model":
                entered.set()
                await anyio.sleep_forever()
            async for delta in super().stream(request):
                yield delta

    model = Hanging(says("", runs(one.held("setsid"))), says("", call("h", "hang")), says("."))
    agent = create_agent(model, [hang], middleware=[shell(tmp_path)])
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.ainvoke("Go", options=RunOptions(control=control)))
            await one.started()
            await entered.wait()
            assert not one.is_gone()
            control.cancel("enough")
    assert one.is_gone()


async def test_a_closed_agent_leaves_nothing(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one = witness()
    policy = Policy((Rule("ask", "ask_me"),))

    @tool
    async def ask_me() -> str:
        """Ask."""
        return "asked"

    turns = (says("", runs(one.held())), says("", call("q", "ask_me")), says("."))
    agent = create_agent(Turns(*turns), [ask_me], middleware=[shell(tmp_path)], policy=policy)
    waiting = await agent.ainvoke("Go")
    await one.started()
    assert waiting.run.status == "needs_approval"
    assert not one.is_gone()
    await agent.aclose()
    assert one.is_gone()


async def test_a_waiting_run_keeps_its_session_in_this_process(tmp_path: Path) -> None:
    middleware, policy = shell(tmp_path), Policy((Rule("ask", "shell"),))
    agent = agent_of(
        middleware, says("", runs("X=kept", "a")), says("", runs("echo $X", "b")), policy=policy
    )
    result = await agent.ainvoke("Go")
    for _ in range(2):
        (asked,) = result.interrupts
        result = await agent.aresume(result.run.id, {asked.id: {"decision": "approve"}})
    assert results(result)[1].text == "kept\n[exit code 0]"


async def test_after_a_resume_in_another_process_the_model_is_told(tmp_path: Path) -> None:
    journal, policy = MemoryCheckpointer(), Policy((Rule("ask", "shell", reason="careful"),))
    turns = (says("", runs("X=lost", "a")), says("", runs("echo X=$X", "b")))
    first = agent_of(shell(tmp_path), *turns, policy=policy, checkpointer=journal)
    result = await first.ainvoke("Go")
    result = await first.aresume(result.run.id, {result.interrupts[0].id: {"decision": "approve"}})
    await first.aclose()
    second = agent_of(shell(tmp_path), *turns, policy=policy, checkpointer=journal)
    result = await second.aresume(result.run.id, {result.interrupts[0].id: {"decision": "approve"}})
    notice, *rest = results(result)[1].text.splitlines()
    assert notice.startswith(f"[This is a new shell, in {tmp_path}. Of an earlier one:")
    assert rest == ["X=", "[exit code 0]"]
    assert "shell" not in json.dumps([*result.state.keys()])


async def test_a_command_that_had_begun_is_not_run_again(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one, journal = witness(), MemoryCheckpointer()
    turns = (says("", runs(f"echo ran >>log; {one.held()} sleep 1000")),)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            agent = agent_of(shell(tmp_path), *turns, checkpointer=journal)
            group.start_soon(lambda: agent.ainvoke("Go", thread_id="t"))
            await one.started()
            group.cancel_scope.cancel()  # as if the process died
    (run,) = await journal.find_runs(thread_id="t")
    result = await agent_of(shell(tmp_path), *turns, checkpointer=journal).aresume(run.id)
    (message,) = results(result)
    assert message.status == "error"
    assert "whether it finished is not known" in message.text
    assert (tmp_path / "log").read_text() == "ran\n"


async def test_a_failed_run_leaves_nothing_and_goes_on_in_a_new_shell(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one, fails = witness(), [ModelError("overloaded")]

    def turn(request: Any) -> Any:
        if fails:
            raise fails.pop()
        return says("", runs("echo ${X:-gone}", "b"))

    agent = agent_of(shell(tmp_path), says("", runs(f"X=kept; {one.held()}", "a")), turn)
    failed = await agent.ainvoke("Go")
    assert failed.run.status == "failed"
    await one.started()
    assert one.is_gone()
    result = await agent.aresume(failed.run.id)
    told = results(result)[1].text
    assert told.startswith("[This is a new shell")
    assert told.endswith("gone\n[exit code 0]")


async def test_a_driven_call_leaves_nothing(tmp_path: Path, witness: Callable[[], Witness]) -> None:
    one = witness()
    agent = agent_of(shell(tmp_path))
    calls = [runs(one.held(), "a"), runs("X=1", "b")]
    first = await agent.adrive(calls, thread_id="t")
    await one.started()
    assert one.is_gone()
    assert [message.status for message in first.results] == ["success", "success"]
    second = await agent.adrive([runs("echo X=$X", "c")], thread_id="t")
    assert second.results[0].text.startswith("[This is a new shell")


async def test_a_subagent_has_a_shell_of_its_own(
    tmp_path: Path, witness: Callable[[], Witness]
) -> None:
    one, failing = witness(), witness()
    middleware, journal = shell(tmp_path), MemoryCheckpointer()
    child = create_agent(
        Turns(says("", runs(f"echo child=$X; {one.held()}")), says("report")),
        middleware=[middleware],
        checkpointer=journal,
        name="child",
    )
    broken = create_agent(
        Turns(says("", runs(failing.held())), ModelError("gone")),
        middleware=[middleware],
        checkpointer=journal,
        name="broken",
    )

    @tool
    async def task(name: str, runtime: ToolRuntime) -> ToolResult:
        """Delegate."""
        agent = child if name == "child" else broken
        result = await runtime.run_subagent(agent, "work")
        if name == "child":
            await one.started()
            assert one.is_gone()  # the child's session has ended with it
        return ToolResult(result.failed or result.text)

    turns = (
        says("", runs("X=parent", "a")),
        says("", call("t", "task", name="child")),
        says("", call("u", "task", name="broken")),
        says("", runs("echo $X", "b")),
        says("done"),
    )
    agent = create_agent(Turns(*turns), [task], middleware=[middleware], checkpointer=journal)
    result = await agent.ainvoke("Go")
    assert results(result)[3].text == "parent\n[exit code 0]"
    assert results(result)[1].text == "report"
    assert "gone" in results(result)[2].text
    await failing.started()
    assert failing.is_gone()


def test_it_works_without_an_event_loop_across_a_pause(tmp_path: Path) -> None:
    middleware, policy = shell(tmp_path), Policy((Rule("ask", "shell"),))
    agent = agent_of(
        middleware, says("", runs("X=kept", "a")), says("", runs("echo $X", "b")), policy=policy
    )
    result = agent.invoke("Go")
    for _ in range(2):
        (asked,) = result.interrupts
        result = agent.resume(result.run.id, {asked.id: {"decision": "approve"}})
    assert results(result)[1].text == "kept\n[exit code 0]"


# --- the gate --------------------------------------------------------------------------------


async def test_a_denied_or_rejected_command_does_not_run(tmp_path: Path) -> None:
    for action in ("deny", "ask"):
        policy = Policy((Rule(action, "shell"),))
        agent = agent_of(shell(tmp_path), says("", runs("touch ran")), policy=policy)
        result = await agent.ainvoke("Go")
        if action == "ask":
            (asked,) = result.interrupts
            result = await agent.aresume(result.run.id, {asked.id: {"decision": "reject"}})
        (message,) = results(result)
        assert message.status == "error"
        assert "did not run" in message.text
    assert not (tmp_path / "ran").exists()


async def test_an_edited_command_is_what_runs(tmp_path: Path) -> None:
    policy = Policy((Rule("ask", "shell"),))
    agent = agent_of(shell(tmp_path), says("", runs("touch bad")), policy=policy)
    result = await agent.ainvoke("Go")
    decision = {"decision": "edit", "args": {"command": "touch good"}}
    result = await agent.aresume(result.run.id, {result.interrupts[0].id: decision})
    assert results(result)[0].status == "success"
    assert sorted(os.listdir(tmp_path)) == ["good"]


def test_the_tool_says_what_it_can_do(tmp_path: Path) -> None:
    (made,) = shell(tmp_path).tools
    assert (made.name, made.destructive, made.open_world, made.once) == ("shell", True, True, True)
    assert not (made.read_only or made.idempotent)
    other = shell(tmp_path, tool_name="bash", tool_description="Mine.")
    assert (other.tools[0].name, other.tools[0].description) == ("bash", "Mine.")
    create_agent(Turns(says("ok")), middleware=[shell(tmp_path), other])


# --- building --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startup_commands": [1]}, "startup_commands takes a text or a list of texts"),
        ({"shutdown_commands": [""]}, "shutdown_commands takes"),
        ({"shell_command": ["a\0"]}, "shell_command takes"),
        ({"redaction_rules": ["x"]}, "redaction_rules takes functions"),
        ({"env": {"A=B": "c"}}, "env takes names of variables"),
        ({"env": {"A": 1}}, "env takes names of variables"),
        ({"tool_name": "two words"}, "name has 1 to 128"),
        ({"execution_policy": BubblewrapExecutionPolicy(binary="none")}, "HostExecutionPolicy"),
    ],
)
def test_wrong_arguments_are_refused_when_it_is_built(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AgentBuildError, match=message):
        shell(tmp_path, **options)


def test_it_can_be_imported_where_there_is_no_posix() -> None:
    hidden = "sys.modules.update(fcntl=None, resource=None)"
    code = f"import sys; {hidden}; import deep_agent_mcp.harness.middleware.commands.shell"
    with other_process("-W", "error", "-c", code) as child:
        assert child.wait(60) == 0


def test_a_workspace_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentBuildError, match="is a file"):
        shell(tmp_path / "file")


# --- over a backend --------------------------------------------------------------------------


def over(root: Path, **options: Any) -> ShellToolMiddleware:
    need_bubblewrap()
    backend = with_workspace(DirectoryBackend(root), confined=True)
    return ShellToolMiddleware(
        backend=backend, execution_policy=BubblewrapExecutionPolicy(**options)
    )


async def test_over_a_backend_the_paths_and_rules_are_those_of_the_file_tools(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text("secret")
    (tmp_path / "docs").mkdir()
    policy = Policy(
        [Rule("deny", path="**/.env"), Rule("deny", tool="write_file", path="/workspace/docs/**")]
    )
    middleware = over(tmp_path)
    made = [
        runs("pwd; cat .env; touch docs/x; touch y; X=kept"),
        runs("echo $X; seq 1000", "d"),
    ]
    agent = create_agent(
        Turns(*(says("", one) for one in made), says("done")),
        middleware=[FilesystemMiddleware(middleware._backend), middleware],  # type: ignore[arg-type]
        policy=policy,
    )
    result = await agent.ainvoke("Go")
    first, second = results(result)
    assert first.text.startswith("/workspace\n")
    assert "secret" not in first.text
    assert sorted(one.name for one in tmp_path.iterdir()) == [".env", "docs", "y"]
    assert not list((tmp_path / "docs").iterdir())
    assert second.text.startswith("kept\n")
    assert facts(second)["output_file"].startswith("/large_tool_results/")
    assert facts(second)["output_file"] in result.state["files"]
    await agent.aclose()


async def test_a_changed_policy_gives_a_new_shell_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/key").write_text("secret")
    file = tmp_path / "policy.toml"
    file.write_text("")
    policy = PolicyFiles([file])

    def guarded(request: object) -> AIMessage:
        file.write_text('[[rule]]\naction = "deny"\npath = "/workspace/key"\n')
        assert policy.reload()
        return says("", runs("echo X=$X; cat key", "c1"))

    middleware = over(tmp_path / "project")
    turns = (says("", runs("X=1; cat key", "c0")), guarded, says("", runs("echo X=$X", "c2")))
    agent = agent_of(middleware, *turns, policy=policy)
    before, after, then = results(await agent.ainvoke("Go"))
    assert "secret" in before.text
    assert after.text.startswith(
        "[What commands may reach of the files, or the network, changed.]\n[This is a new shell,"
    )
    assert "X=\n" in after.text
    assert "secret" not in after.text
    assert then.text == "X=\n[exit code 0]"
    await agent.aclose()


async def test_what_a_call_before_it_made_is_guarded_for_a_call_that_waited(
    tmp_path: Path,
) -> None:
    policy = Policy([Rule("deny", path="**/.env")])
    turn = says("", runs("sleep 0.5; echo secret >.env", "c0"), runs("cat .env", "c1"))
    agent = agent_of(over(tmp_path), turn, policy=policy)
    made, read = results(await agent.ainvoke("Go"))
    assert made.text.endswith("[exit code 0]")
    assert "secret" not in read.text
    assert "changed" in read.text
    await agent.aclose()


@pytest.mark.parametrize("action", ["allow", "deny"])
async def test_a_shell_has_network_if_the_rules_let_it(tmp_path: Path, action: Any) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    middleware = over(tmp_path, network_enabled=True)
    assert middleware.tools[0].open_world
    assert not over(tmp_path).tools[0].open_world
    agent = agent_of(
        middleware,
        says("", runs(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null")),
        policy=Policy([Rule(action, tool="shell", open_world=True)]),
    )
    (message,) = results(await agent.ainvoke("Go"))
    await listener.aclose()
    assert facts(message)["exit_code"] == (0 if action == "allow" else 1)
    await agent.aclose()


def test_a_shell_has_one_place(tmp_path: Path) -> None:
    with pytest.raises(AgentBuildError, match="workspace_root or backend, not both"):
        ShellToolMiddleware(tmp_path, backend=StateBackend())


async def test_a_bomb_ends_the_shell_and_the_model_is_told_why(tmp_path: Path) -> None:
    policy = HostExecutionPolicy(total_processes=30)
    bomb, after = await answers(
        shell(tmp_path, execution_policy=policy),
        "for i in $(seq 60); do sleep 1000 & done; wait",
        "echo there",
    )
    assert "and the shell with it: more than 30 processes" in bomb.text
    assert "there" in after.text
