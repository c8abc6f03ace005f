"""The policy in front of real calls: who calls and for whom, links, listings, a shell."""

from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.loop.run.interrupts import InterruptOnConfig
from deep_agent_mcp.harness.loop.run_executor import RunOptions
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.middleware.file_search import FilesystemFileSearchMiddleware
from deep_agent_mcp.harness.middleware.tools.tool_calls import HumanInTheLoopMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.subagents.definitions import GENERAL_PURPOSE, SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

SECRET = Policy((Rule("deny", path="/secret/**"), Rule("ask", "read_file", path="/private/**")))


class Shell(list):
    @property
    def tool(self):
        @tool
        async def execute(command: str) -> str:
            """Run."""
            self.append(command)
            return "ran"

        return execute


def text_of(result) -> str:
    return "\n".join(one.text for one in result.results)


async def driven(agent, *calls, **options):
    return await agent.adrive(list(calls), **options)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("open", "secret/deep", "private"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("open/a.txt", "secret/b.txt", "secret/deep/c.txt", "private/d.txt", "e.txt"):
        (tmp_path / name).write_text("needle\n")
    return tmp_path


def deep(root: Path, policy: Policy = SECRET, **options):
    return create_deep_agent(Turns(), backend=DirectoryBackend(root), policy=policy, **options)


async def test_a_shell_is_judged_command_by_command():
    shell = Shell()
    policy = Policy((Rule("allow", command="git status"), Rule("deny", "execute")))
    agent = create_agent(Turns(), [shell.tool], policy=policy)
    result = await driven(
        agent,
        call("1", "execute", command="git status"),
        call("2", "execute", command="git status && rm -rf /"),
    )
    assert shell == ["git status"]
    assert [one.status for one in result.results] == ["success", "error"]
    assert "rule 2 of the policy" in result.results[1].text


async def test_path_rules_and_a_shell_go_together(root: Path):
    shell = Shell()
    policy = Policy((Rule("deny", path="/secret/**"), Rule("deny", "execute", command="rm")))
    agent = deep(root, policy, tools=[shell.tool])
    result = await driven(
        agent,
        call("1", "read_file", path="/secret/b.txt"),
        call("2", "execute", command="sudo rm x"),
        call("3", "execute", command="ls"),
    )
    assert [one.status for one in result.results] == ["error", "error", "success"]


async def test_listings_leave_out_what_could_not_be_read(root: Path):
    agent = deep(root)
    top = text_of(await driven(agent, call("1", "ls", path="/")))
    assert "/secret" not in top
    assert "/open/" in top
    assert "/private/" in top
    found = text_of(await driven(agent, call("2", "glob", pattern="*.txt")))
    assert "secret" not in found
    assert "/private/d.txt" in found
    searched = text_of(await driven(agent, call("3", "grep", pattern="needle")))
    assert "secret" not in searched
    assert "private" not in searched
    assert "/open/a.txt" in searched


async def test_an_error_does_not_name_what_is_hidden(root: Path):
    policy = Policy((Rule("deny", "read_file", path="/**/b.txt"),))
    result = await driven(deep(root, policy), call("1", "read_file", path="/secret/bb.txt"))
    assert "/secret/b.txt" not in text_of(result)


async def test_listings_are_full_when_many_files_are_hidden(root: Path):
    policy = Policy((Rule("deny", path="/secret/**"),))
    for number in range(1_100):
        (root / "secret" / f"{number}.txt").write_text("needle\n")
    agent = deep(root, policy)
    for one in (call("1", "glob", pattern="*.txt"), call("2", "grep", pattern="needle")):
        found = text_of(await driven(agent, one))
        assert "of 3" in found
        assert "cut off" not in found


async def test_nothing_is_hidden_where_rules_speak_of_no_paths(root: Path):
    policy = Policy((Rule("allow", ("ls", "grep")),), default="deny")
    result = await driven(deep(root, policy), call("1", "ls"), call("2", "grep", pattern="needle"))
    assert "/secret/" in result.results[0].text
    assert "/secret/b.txt" in result.results[1].text


async def test_only_what_is_allowed_is_listed_where_all_else_is_denied(root: Path):
    policy = Policy((Rule("allow", path="/open/**"), Rule("allow", "grep")), default="deny")
    result = await driven(deep(root, policy), call("1", "grep", pattern="needle"))
    assert "/open/a.txt" in text_of(result)
    assert "e.txt" not in text_of(result)


async def test_search_for_agents_without_file_tools_leaves_them_out_too(root: Path):
    search = FilesystemFileSearchMiddleware(root)
    agent = create_agent(Turns(), middleware=[search], policy=SECRET)
    result = await driven(
        agent,
        call("1", "glob_search", pattern="*.txt"),
        call("2", "grep_search", pattern="needle"),
    )
    assert "secret" not in text_of(result)
    assert "/open/a.txt" in result.results[0].text
    assert "/open/a.txt" in result.results[1].text


LINKED = [
    ("read_file", {"path": "/way/b.txt"}),
    ("ls", {"path": "/way"}),
    ("glob", {"path": "/way", "pattern": "*"}),
    ("grep", {"path": "/way", "pattern": "needle"}),
    ("write_file", {"path": "/way/new.txt", "content": "x"}),
    ("write_file", {"path": "/way/new/deep.txt", "content": "x"}),
    ("read_file", {"path": "/file"}),
    ("grep", {"path": "/file", "pattern": "needle"}),
]


@pytest.mark.parametrize(("name", "args"), LINKED)
async def test_a_link_does_not_lead_into_what_is_denied(root: Path, name: str, args: dict):
    (root / "way").symlink_to(root / "secret")
    (root / "file").symlink_to("secret/b.txt")
    result = await driven(deep(root), call("1", name, **args))
    assert result.results[0].status == "error"
    assert "rule 1 of the policy" in text_of(result)
    assert not (root / "secret" / "new.txt").exists()
    assert not (root / "secret" / "new").exists()


async def test_a_denied_link_is_denied_wherever_it_leads(root: Path):
    (root / "way").symlink_to("open")
    agent = deep(root, Policy((Rule("deny", path="/way/**"),)))
    for one in (call("1", "read_file", path="/way/a.txt"), call("2", "ls", path="/way")):
        assert "rule 1 of the policy" in text_of(await driven(agent, one))
    found = text_of(await driven(agent, call("3", "grep", pattern="needle")))
    assert "/open/a.txt" in found
    assert "/way" not in found


async def test_a_link_above_what_is_denied_hides_it_as_well(root: Path):
    (root / "all").symlink_to(".")
    policy = Policy((Rule("deny", path="/secret/**"),))
    agent = deep(root, policy)
    for one in (
        call("1", "ls", path="/all"),
        call("2", "glob", path="/all", pattern="*.txt"),
        call("3", "grep", path="/all", pattern="needle"),
    ):
        text = text_of(await driven(agent, one))
        assert "open" in text
        assert "secret" not in text


async def test_a_link_to_what_needs_approval_says_what_to_name(root: Path):
    (root / "way").symlink_to("private")
    result = await driven(deep(root), call("1", "read_file", path="/way/d.txt"))
    assert "Name /private/d.txt itself" in text_of(result)
    allowed = await driven(deep(root, Policy()), call("1", "read_file", path="/way/d.txt"))
    assert "needle" in text_of(allowed)


async def test_files_in_the_thread_are_hidden_too():
    agent = create_deep_agent(Turns(), backend=StateBackend())
    made = await driven(
        agent,
        call("1", "write_file", path="/secret/a", content="needle"),
        call("2", "write_file", path="/b", content="needle"),
    )
    guarded = create_deep_agent(
        Turns(), backend=StateBackend(), policy=SECRET, checkpointer=agent.checkpointer
    )
    result = await driven(
        guarded,
        call("3", "ls"),
        call("4", "grep", pattern="needle"),
        thread_id=made.run.thread_id,
    )
    assert "secret" not in text_of(result)
    assert "/b" in text_of(result)


async def test_rules_about_the_principal_see_who_the_run_is_for():
    shell = Shell()
    policy = Policy((Rule("deny", principal="guest:*"),))
    agent = create_agent(Turns(), [shell.tool], policy=policy)
    one = call("1", "execute", command="ls")
    guest = await agent.adrive([one], options=RunOptions(principal="guest:ann"))
    own = await agent.adrive([one])
    assert (guest.results[0].status, own.results[0].status) == ("error", "success")


def delegating(inner, *more):
    return Turns(
        lambda request: (
            says("", call("t", "task", description="x")) if request.agent == "main" else inner
        ),
        *more,
        says("done"),
    )


async def test_rules_about_the_agent_tell_subagents_from_the_main_one():
    shell = Shell()
    policy = Policy((Rule("deny", "execute", agent="main/*"),))
    agent = create_deep_agent(
        delegating(says("", call("e", "execute", command="by subagent"))),
        [shell.tool],
        policy=policy,
    )
    result = await agent.ainvoke("go")
    assert result.run.status == "done"
    assert shell == []
    await agent.adrive([call("1", "execute", command="by main")])
    assert shell == ["by main"]


async def test_the_policy_can_deny_a_subagent_as_such():
    policy = Policy((Rule("deny", "task", args={"subagent_type": "general-*"}),))
    result = await create_deep_agent(delegating(says("never")), policy=policy).ainvoke("go")
    (refused,) = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert refused.status == "error"
    assert "rule 1 of the policy" in refused.text


@pytest.mark.parametrize(
    ("callers", "own", "runs"),
    [
        ("allow", "allow", True),
        ("allow", "deny", False),
        ("deny", "allow", False),
    ],
)
async def test_a_subagents_own_policy_can_only_narrow(callers, own, runs: bool):
    shell = Shell()
    narrow = SubAgent(
        GENERAL_PURPOSE.name, "x", "y", policy=Policy((Rule(own, "execute"),), default="allow")
    )
    agent = create_deep_agent(
        delegating(says("", call("e", "execute", command="ls"))),
        [shell.tool],
        policy=Policy((Rule(callers, "execute"),)),
        subagents=SubAgentRegistry(None, [narrow]),
    )
    await agent.ainvoke("go")
    assert bool(shell) == runs


def test_subagents_with_other_rules_are_other_subagents():
    plain = SubAgent("a", "b", "c")
    strict = SubAgent("a", "b", "c", policy=Policy([Rule("deny", args={"x": "y"})]))
    assert plain.digest != strict.digest
    assert strict.digest == SubAgent("a", "b", "c", policy=strict.policy).digest
    assert len({plain, strict}) == 2


@pytest.mark.parametrize("own", ["allow", "deny"])
async def test_an_agent_that_a_tool_hands_work_to_is_held_to_the_callers_policy(own):
    shell = Shell()
    inner = create_agent(
        Turns(says("", call("e", "execute", command="ls")), says("done")),
        [shell.tool],
        policy=Policy((Rule(own, "execute"),)),
        name="inner",
    )

    @tool
    async def hand_over(runtime: ToolRuntime) -> str:
        """Hand over."""
        return (await runtime.run_subagent(inner, "x")).text

    outer = create_agent(
        Turns(), [hand_over], policy=Policy((Rule("deny", "execute", agent="**/inner"),))
    )
    free = create_agent(Turns(), [hand_over])
    await outer.adrive([call("1", "hand_over")])
    assert shell == []
    await free.adrive([call("1", "hand_over")])
    assert bool(shell) == (own == "allow")


async def test_an_edit_by_a_person_is_judged_command_by_command():
    shell = Shell()
    policy = Policy((Rule("ask", command="git"), Rule("deny", command="rm")))
    model = Turns(says("", call("1", "execute", command="git status")), says("ok"))
    agent = create_agent(model, [shell.tool], policy=policy)
    waiting = await agent.ainvoke("go")
    edit = {"decision": "edit", "args": {"command": "git status; sh -c 'rm -rf /'"}}
    await agent.aresume(waiting.run.id, {waiting.interrupts[0].id: edit})
    assert shell == []


async def test_a_link_does_not_lead_out_of_what_is_allowed(root: Path):
    (root / "open" / "way").symlink_to("../secret")
    agent = deep(root, Policy((Rule("allow", path="/open/**"),), default="deny"))
    result = await driven(
        agent,
        call("1", "read_file", path="/open/way/b.txt"),
        call("2", "read_file", path="/open/a.txt"),
    )
    assert [one.status for one in result.results] == ["error", "success"]


async def test_a_call_about_which_nobody_could_decide_is_refused_and_says_why():
    shell = Shell()

    class Others(HumanInTheLoopMiddleware):
        pass

    people = [
        kind({"execute": InterruptOnConfig(allowed_decisions=(choice,))})
        for kind, choice in ((HumanInTheLoopMiddleware, "approve"), (Others, "respond"))
    ]
    agent = create_agent(Turns(), [shell.tool], middleware=people)
    result = await driven(agent, call("1", "execute", command="ls"))
    assert shell == []
    assert result.results[0].status == "error"
    assert "two rules leave no decision" in text_of(result)


async def test_a_running_tool_learns_what_a_command_of_its_caller_may_reach():
    seen: list[object] = []

    @tool
    async def look(runtime: ToolRuntime) -> str:
        """Look."""
        assert runtime.policy is not None
        seen.append(runtime.policy.reach("/private/d.txt"))
        tree = {"/": [("private", True), ("open", True)], "/private": []}
        seen.extend(runtime.policy.boundaries(lambda path: tree[path]))
        return ""

    rules = (Rule("ask", "*_file", "/private/**", agent="*", principal="ann"),)
    agent = create_agent(Turns(), [look], policy=Policy(rules))
    for principal in ("ann", "bob"):
        await agent.adrive([call("1", "look")], options=RunOptions(principal=principal))
    assert seen == ["hidden", ("/", "write"), ("/private", "hidden"), "write", ("/", "write")]
