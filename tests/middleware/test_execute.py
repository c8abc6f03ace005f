"""The tool `execute`, in real sandboxes."""

import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

from deep_agent_mcp.harness.agent import Agent, RunOptions, create_agent
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.mounts import with_workspace
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import AIMessage, ToolCall, ToolMessage
from deep_agent_mcp.harness.middleware.commands.execute import ExecuteMiddleware
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.policy import Policy, PolicyFiles, Rule
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.policies import ExecutionPolicy, HostExecutionPolicy, ShellLimits
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from tests.loop.models import Turn, Turns, call, says
from tests.ports_and_waits import growing
from tests.shell.support import need_bubblewrap

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system"),
]


@pytest.fixture(autouse=True)
def sandboxes() -> None:
    need_bubblewrap()


def runs(command: str, name: str = "c", **more: Any) -> ToolCall:
    return call(name, "execute", command=command, **more)


class Commands:
    """An agent over a directory, one call after the other in one thread."""

    def __init__(
        self,
        root: Path,
        *,
        policy: Policy | None = None,
        execution: ExecutionPolicy | None = None,
        backend: Any = None,
        **options: Any,
    ) -> None:
        execution = execution or BubblewrapExecutionPolicy()
        confined = not isinstance(execution, HostExecutionPolicy)
        self.backend = backend or with_workspace(DirectoryBackend(root), confined=confined)
        self.middleware = ExecuteMiddleware(
            self.backend, execution_policy=execution, job_directory=root.parent / "jobs", **options
        )
        self._policy = policy
        self._journal = MemoryCheckpointer()
        self._agents: list[Agent] = []
        self._turns: list[Turn] = []

    async def calls(self, *calls: ToolCall | str, principal: str = "") -> Sequence[ToolMessage]:
        made = [
            runs(one, f"c{place}") if isinstance(one, str) else one
            for place, one in enumerate(calls)
        ]
        self._turns += [*(says("", one) for one in made), says("done")]
        agent = create_agent(
            Turns(*self._turns),
            middleware=[FilesystemMiddleware(self.backend), self.middleware],
            checkpointer=self._journal,
            policy=self._policy,
        )
        self._agents.append(agent)
        result = await agent.ainvoke("Go", thread_id="t", options=RunOptions(principal=principal))
        assert result.error is None, result.error
        messages = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
        found = messages[-len(made) :]
        schemas = {one.name: one.output_schema for one in self.middleware.tools}
        for one in found:
            if one.artifact is not None and one.name in schemas:
                jsonschema.validate(one.artifact, schemas[one.name] or {})
        return found

    async def call(self, one: ToolCall | str, **more: Any) -> ToolMessage:
        (message,) = await self.calls(one, **more)
        return message

    async def aclose(self) -> None:
        for one in self._agents:
            await one.aclose()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
async def commands(root: Path) -> AsyncGenerator[Commands]:
    made = Commands(root)
    yield made
    await made.aclose()


def facts(message: ToolMessage) -> dict[str, Any]:
    assert isinstance(message.artifact, dict)
    return message.artifact


# --- one namespace ---------------------------------------------------------------------------


async def test_commands_and_file_tools_share_their_paths(commands: Commands, root: Path) -> None:
    wrote, ran, read = await commands.calls(
        call("w", "write_file", path="/workspace/src/a.py", content="print('hello')\n"),
        "pwd; python3 /workspace/src/a.py; python3 src/a.py | tee /workspace/out.txt",
        call("r", "read_file", path="/workspace/out.txt"),
    )
    assert wrote.status == "success"
    assert facts(ran)["output"] == "/workspace\nhello\nhello\n"
    assert "hello" in read.text
    assert (root / "src/a.py").exists()


async def test_without_a_sandbox_the_paths_are_those_of_the_machine(root: Path) -> None:
    commands = Commands(root, execution=HostExecutionPolicy())
    wrote, ran = await commands.calls(
        call("w", "write_file", path=f"{root}/a.txt", content="text\n"), f"pwd; cat {root}/a.txt"
    )
    assert wrote.status == "success"
    assert facts(ran)["output"] == f"{root}\ntext\n"


def test_the_model_is_told_where_files_are_in_few_words(root: Path) -> None:
    directory = DirectoryBackend(root)
    told = [with_workspace(directory, confined=one).description for one in (True, False)]
    assert told == [
        f"/workspace is the directory {root} on disk; all other files live in this thread.",
        f"{root} is on disk; all other files live in this thread.",
    ]


async def test_several_directories_are_there_and_other_parts_are_not(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_text("data")
    (root / "notes").mkdir()
    (root / "notes/hidden").write_text("nobody reaches it")
    commands = Commands(
        root,
        backend=CompositeBackend(
            StateBackend(),
            {
                "/data": DirectoryBackend(tmp_path / "data"),
                "/data/project": DirectoryBackend(root),
            },
        ),
    )
    wrote, ran = await commands.calls(
        call("w", "write_file", path="/plan.md", content="plan"),
        "pwd; cat /data/x; ls /data/project; cat /plan.md",
    )
    assert wrote.status == "success"
    assert facts(ran)["output"].startswith("/data\ndatanotes\ncat: /plan.md: No such file")


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        (lambda root: DirectoryBackend(root), "are at / for file tools"),
        (
            lambda root: CompositeBackend(StateBackend(), {"/usr/x": DirectoryBackend(root)}),
            "belongs to the system",
        ),
    ],
)
def test_a_directory_without_a_usable_place_is_refused(
    root: Path, backend: Any, words: str
) -> None:
    with pytest.raises(AgentBuildError, match=words):
        ExecuteMiddleware(backend(root))
    with pytest.raises(AgentBuildError, match="Mount it at its own path"):
        ExecuteMiddleware(
            CompositeBackend(StateBackend(), {"/workspace": DirectoryBackend(root)}),
            execution_policy=HostExecutionPolicy(),
        )


def test_the_whole_machine_is_no_workspace() -> None:
    backend = with_workspace(DirectoryBackend("/"), confined=True)
    with pytest.raises(AgentBuildError, match="is the whole machine"):
        ExecuteMiddleware(backend)


async def test_many_calls_at_once_have_sandboxes_of_their_own(root: Path) -> None:
    commands = Commands(root)
    made = [runs(f"echo {n} >/tmp/x; sleep 0.1; cat /tmp/x", f"c{n}") for n in range(12)]
    commands._turns = [says("", *made), says("done")]
    agent = create_agent(Turns(*commands._turns), middleware=[commands.middleware])
    result = await agent.ainvoke("Go")
    found = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert [facts(one)["output"] for one in found] == [f"{n}\n" for n in range(12)]


def test_an_execution_policy_that_knows_no_layouts_is_refused(root: Path) -> None:
    class Other(ShellLimits):
        def check(self) -> None: ...

        def launch(self, shell: Any, workspace: Any, env: Any) -> Any: ...

    with pytest.raises(AgentBuildError, match="cannot be shown a backend's directories"):
        ExecuteMiddleware(StateBackend(), execution_policy=Other())


# --- results ---------------------------------------------------------------------------------


async def test_a_call_leaves_files_and_nothing_else(commands: Commands) -> None:
    first, second = await commands.calls(
        "cd /tmp; export X=1; touch kept /workspace/kept; echo out; echo err >&2; exit 3",
        "pwd; echo X=$X; ls /tmp /workspace",
    )
    assert (first.status, facts(first)["output"], facts(first)["exit_code"]) == (
        "error",
        "out\nerr\n",
        3,
    )
    assert first.text.startswith("out\nerr\n[exit code 3, ")
    assert facts(first)["changed_files"] == [{"path": "/workspace/kept", "created": True}]
    assert facts(second)["output"] == "/workspace\nX=\n/tmp:\n\n/workspace:\nkept\n"
    assert facts(second)["changed_files"] == []


async def test_a_timeout_keeps_what_was_written(commands: Commands) -> None:
    for seconds in growing(0.5):
        message = await commands.call(runs("echo before; sleep 1000", timeout=seconds))
        assert message.status == "error"
        if facts(message)["output"]:
            break
    assert facts(message)["output"] == "before\n"
    assert facts(message)["timed_out"]
    assert "The command was stopped after " in message.text


async def test_of_long_output_both_ends_are_shown_and_the_rest_can_be_read(root: Path) -> None:
    commands = Commands(root, execution=BubblewrapExecutionPolicy(max_output_lines=4))
    (message,) = await commands.calls("seq 5000")
    path = facts(message)["output_file"]
    assert path.startswith("/large_tool_results/")
    lines = message.text.splitlines()
    assert lines[:2] + lines[3:5] == ["1", "2", "4999", "5000"]
    assert lines[2].endswith(f"all of it is in {path} …]")
    read = await commands.call(call("r", "read_file", path=path, offset=2499, limit=1))
    assert "2500" in read.text
    assert not list(root.iterdir())


async def test_only_the_beginning_of_very_long_output_is_kept(root: Path) -> None:
    commands = Commands(root, max_kept_bytes=2_048)
    message = await commands.call("yes | head -c 9000; echo; echo end")
    assert "the first 2 KiB are in" in message.text
    assert "\nend\n" in message.text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": "touch a\0b"}, "cannot contain NUL"),
        ({"command": "touch a", "timeout": 0}, "timeout"),
        ({"command": "touch a", "timeout": 1e9}, "timeout"),
        ({"command": "touch a", "timeout": float("nan")}, "timeout"),
        ({"command": "touch a", "other": 1}, "other"),
        ({"command": "touch a", "background": True, "timeout": 5}, "was not run"),
    ],
)
async def test_wrong_arguments_run_nothing(
    commands: Commands, root: Path, args: dict[str, Any], words: str
) -> None:
    message = await commands.call(call("c", "execute", **args))
    assert message.status == "error"
    assert words in message.text
    assert not list(root.iterdir())


async def test_a_cancelled_call_leaves_nothing(commands: Commands, root: Path) -> None:
    os.mkfifo(root / "up")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(commands.call, "exec 5>/workspace/up; echo up >&5; sleep 1000")
            fd = os.open(root / "up", os.O_RDONLY | os.O_NONBLOCK)
            await anyio.wait_readable(fd)
            group.cancel_scope.cancel()
        while os.read(fd, 64):
            pass  # the other end is closed: the process is gone
    os.close(fd)


# --- what the rules leave --------------------------------------------------------------------


def rules(*lines: tuple[str, str, str]) -> Policy:
    return Policy([Rule(action, tool=tool, path=path) for action, tool, path in lines])  # type: ignore[arg-type]


async def test_what_file_tools_may_not_read_or_write_commands_may_not_either(root: Path) -> None:
    for name in (
        "docs/a.md",
        "src/main.py",
        "src/.env",
        "secret/key",
        "secret/open/x",
        ".git/config",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"content of {name}")
    policy = rules(
        ("allow", "*", "/workspace/secret/open/**"),
        ("deny", "*", "/workspace/secret/**"),
        ("deny", "*_file", "**/.env"),
        ("deny", "write_file", "/workspace/docs/**"),
        ("ask", "edit_file", "/workspace/.git/**"),
    )
    commands = Commands(root, policy=policy)
    message = await commands.call(
        "cat docs/a.md src/main.py secret/open/x .git/config; echo; "
        "for f in secret/key src/.env; do cat $f; done; "
        "for f in docs/a.md docs/new .git/config secret/new src/.env; do echo x >>$f; done; "
        "echo fine >src/new; echo fine >secret/open/new; rm -rf docs .git src/.env; "
        "mv src moved; mv secret moved; mv docs moved"
    )
    output = facts(message)["output"]
    first, _, rest = output.partition("\n")
    assert first == "".join(
        f"content of {name}"
        for name in ("docs/a.md", "src/main.py", "secret/open/x", ".git/config")
    )
    assert "content" not in rest
    for name in (
        "docs/a.md",
        "src/main.py",
        "src/.env",
        "secret/key",
        "secret/open/x",
        ".git/config",
    ):
        assert (root / name).read_text() == f"content of {name}"
    assert (root / "src/new").read_text() == (root / "secret/open/new").read_text() == "fine\n"
    assert not (root / "docs/new").exists()
    assert not (root / "secret/new").exists()
    assert not (root / "moved").exists()


async def test_a_guarded_file_does_not_slip_away_under_another_name(root: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/key").write_text("secret")
    commands = Commands(root, policy=rules(("deny", "*", "/workspace/a/b/key")))
    moved, linked, later = await commands.calls(
        "mv a c; mv a/b a/c; mv a/b/key k",
        "ln a/b/key k; ln -s a/b/key l; cat l",
        "cat */*/key k l",
    )
    assert "secret" not in moved.text + linked.text + later.text
    assert (root / "a/b/key").read_text() == "secret"


async def test_a_guarded_path_that_a_command_makes_is_told_and_then_guarded(root: Path) -> None:
    commands = Commands(root, policy=rules(("deny", "write_file", "**/.env")))
    first, second, third = await commands.calls(
        "mkdir a; echo 1 >a/.env", "echo 2 >a/.env; rm -r a; cat a/.env", "true"
    )
    assert "The policy guards /workspace/a/.env, which the command made" in first.text
    assert facts(first)["exit_code"] == 0
    assert facts(second)["output"].endswith("\n1\n")
    assert "guards" not in second.text + third.text
    assert (root / "a/.env").read_text() == "1\n"


async def test_the_rules_cannot_be_rewritten_by_commands(root: Path) -> None:
    file = root / "rules/policy.toml"
    file.parent.mkdir()
    file.write_text('[[rule]]\naction = "deny"\npath = "**/.env"\n')
    (root / ".env").write_text("secret")
    live = PolicyFiles([file])
    agent = create_deep_agent(
        Turns(
            says("", runs("echo >rules/policy.toml; mv rules r; rm -rf rules")),
            says("done"),
        ),
        backend=DirectoryBackend(root),
        policy=live,
        execution_policy=BubblewrapExecutionPolicy(),
    )
    await agent.ainvoke("Go")
    assert not live.reload()
    assert "deny" in file.read_text()


async def test_rules_without_a_path_hold_for_commands_too(root: Path) -> None:
    (root / "a").write_text("text")
    commands = Commands(root, policy=Policy([Rule("deny", tool="write_file")]))
    message = await commands.call("cat a; touch b; echo x >a")
    assert facts(message)["output"].startswith("text")
    assert [one.name for one in root.iterdir()] == ["a"]
    assert (root / "a").read_text() == "text"


async def test_rules_for_one_agent_or_principal_are_its_own(root: Path) -> None:
    (root / "a").write_text("text")
    policy = Policy([Rule("deny", tool="read_file", path="/workspace/a", principal="guest")])
    commands = Commands(root, policy=policy)
    assert "text" in (await commands.call("cat a", principal="owner")).text
    assert "text" not in (await commands.call("cat a", principal="guest")).text


async def test_commands_are_judged_like_those_of_the_shell(root: Path) -> None:
    policy = Policy([Rule("allow", tool="execute", command="echo"), Rule("deny", tool="execute")])
    commands = Commands(root, policy=policy)
    allowed, refused = await commands.calls("echo fine", "touch file")
    assert facts(allowed)["output"] == "fine\n"
    assert "was refused and did not run" in refused.text
    assert not list(root.iterdir())


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("action", ["allow", "ask", "deny"])
async def test_the_network_is_there_if_the_operator_and_the_rules_let_it_be(
    root: Path, enabled: bool, action: Any
) -> None:
    policy = Policy([Rule(action, tool="execute", open_world=True)])
    execution = BubblewrapExecutionPolicy(network_enabled=enabled)
    commands = Commands(root, policy=policy, execution=execution)
    assert commands.middleware.tools[0].open_world == enabled
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    message = await commands.call(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null")
    await listener.aclose()
    reached = enabled and action == "allow"
    assert facts(message)["exit_code"] == (0 if reached else 1)
    assert facts(message)["network"] == reached
    assert ("had no network" in message.text) == (enabled and not reached)


# --- in a deep agent -------------------------------------------------------------------------


async def test_a_deep_agent_and_its_subagents_have_commands_unless_their_tools_are_named(
    root: Path,
) -> None:
    ran = says("", runs("pwd; echo x >made", "e"))
    seen: dict[str, tuple[set[str], bool]] = {}

    def answer(request: ChatRequest) -> AIMessage:
        sections = {one.name for one in request.system}
        names = {one.name for one in request.tools}
        seen[request.agent] = (names & {"execute", "job"}, "commands" in sections)
        if request.agent == "main":
            done = sum(isinstance(one, ToolMessage) for one in request.messages)
            tasks = [
                call(f"t{place}", "task", description="look", subagent_type=name)
                for place, name in enumerate(("general-purpose", "reader"))
            ]
            return says("done") if done else says("", *tasks)
        if request.agent == "reader" or isinstance(request.messages[-1], ToolMessage):
            return says("looked")
        return ran

    agent = create_deep_agent(
        Turns(*[answer] * 3),
        backend=DirectoryBackend(root),
        subagents=[SubAgent("reader", "Reads.", "You read.", tools=("read_file",))],
        execution_policy=BubblewrapExecutionPolicy(),
    )
    result = await agent.ainvoke("Go")
    assert result.error is None
    assert seen == {
        "main": ({"execute", "job"}, True),
        "general-purpose": ({"execute", "job"}, True),
        "reader": (set(), False),
    }
    assert (root / "made").read_text() == "x\n"
    await agent.aclose()


def test_the_middleware_brings_its_backend(root: Path) -> None:
    execute = Commands(root).middleware
    assert "execute" in create_deep_agent(Turns(), execution_policy=execute).tools
    with pytest.raises(AgentBuildError, match="have different backends"):
        create_deep_agent(Turns(), backend=StateBackend(), execution_policy=execute)


async def test_without_a_directory_commands_have_nothing_but_the_system(tmp_path: Path) -> None:
    agent = create_deep_agent(
        Turns(says("", runs("pwd; ls -A; touch x; ls")), says("done")),
        execution_policy=BubblewrapExecutionPolicy(),
    )
    result = await agent.ainvoke("Go")
    (message,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert facts(message)["output"] == "/tmp\nx\n"
    await agent.aclose()


async def test_a_result_says_whether_the_command_succeeded(commands: Commands) -> None:
    good, bad, odd = await commands.calls("true", "exit 3", "kill -9 $$")
    assert [one.status for one in (good, bad, odd)] == ["success", "error", "error"]
    assert [facts(one)["exit_code"] for one in (good, bad, odd)] == [0, 3, 137]
    assert "CPU time" not in odd.text, "it has no bound here"


async def test_where_cpu_time_is_bounded_what_was_killed_may_have_had_too_much(root: Path) -> None:
    commands = Commands(root, execution=BubblewrapExecutionPolicy(cpu_time_seconds=100))
    killed, too_long, other = await commands.calls("exit 137", "exit 152", "exit 1")
    for one in (killed, too_long):
        assert "A process here may use 100 s of CPU time" in one.text
    assert "CPU time" not in other.text
    await commands.aclose()


def test_a_command_runs_at_most_once(root: Path) -> None:
    execute, job = Commands(root).middleware.tools
    assert execute.once
    assert execute.destructive
    assert not execute.read_only
    assert not job.open_world
