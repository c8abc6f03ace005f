"""Path rules in front of the real file tools, on every kind of backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.base import Backend
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.file_tools.tools import file_tools
from deep_agent_mcp.harness.backends.file_tools.visible_files import authorized_files
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.middleware.file_search import FilesystemFileSearchMiddleware
from deep_agent_mcp.harness.policy import Policy, Rule
from deep_agent_mcp.harness.store.memory import MemoryStore
from deep_agent_mcp.harness.subagents.definitions import GENERAL_PURPOSE, SubAgent
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.harness.tools.tool import ToolResult, ToolRuntime, tool
from tests.loop.models import Turns, call, says

pytestmark = pytest.mark.anyio

FILES = ("/open/a.txt", "/open/inner/b.txt", "/secret/c.txt", "/secret/deep/d.txt", "/e.txt")
KINDS = ("state", "store", "disk", "composite")


def make_backend(kind: str, root: Path) -> Backend:
    if kind == "state":
        return StateBackend()
    if kind == "store":
        return StoreBackend(MemoryStore(), ("files",))
    if kind == "disk":
        return DirectoryBackend(root)
    (root / "secret").mkdir()
    notes = StoreBackend(MemoryStore(), ("notes",))
    return CompositeBackend(notes, {"/secret": DirectoryBackend(root / "secret"), "/x": notes})


class Desk:
    """Agents over one backend and one thread, each with its own policy."""

    def __init__(self, kind: str, root: Path) -> None:
        self.backend = make_backend(kind, root)
        self.journal = MemoryCheckpointer()
        self.thread: str | None = None
        self._calls = 0

    def agent(self, policy: Policy, model: Turns | None = None, **options):
        @tool
        async def delete_tree(path: str, runtime: ToolRuntime) -> ToolResult:
            """Delete a directory."""
            files = authorized_files(self.backend.open(runtime), self.backend, runtime)
            await files.delete(path)
            return ToolResult("gone", update=files.update())

        plain = file_tools(self.backend, ["delete_file"])
        return create_deep_agent(
            model or Turns(),
            [delete_tree, *plain],
            backend=self.backend,
            policy=policy,
            checkpointer=self.journal,
            **options,
        )

    async def run(self, policy: Policy, *calls: tuple[str, dict]) -> list[tuple[bool, str]]:
        """Return of each call whether it was done, and its text."""
        made = []
        for name, args in calls:
            self._calls += 1
            made.append(call(f"c{self._calls}", name, **args))
        result = await self.agent(policy).adrive(made, thread_id=self.thread)
        self.thread = result.run.thread_id
        return [(one.status == "success", one.text) for one in result.results]

    async def one(self, policy: Policy, name: str, **args) -> tuple[bool, str]:
        (result,) = await self.run(policy, (name, args))
        return result

    async def present(self) -> set[str]:
        _, text = await self.one(Policy(), "glob", pattern="*.txt")
        return {path for path in FILES if path in text}


@pytest.fixture(params=KINDS)
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    desk = Desk(request.param, tmp_path)
    writes = [("write_file", {"path": path, "content": "needle\n"}) for path in FILES]
    assert all(done for done, _ in await desk.run(Policy(), *writes))
    return desk


KEEP = Policy([Rule("deny", path="/secret/**", reason="keep out")])


async def test_the_first_rule_that_matches_decides(desk: Desk):
    allow_first = Policy([Rule("allow", path="/secret/deep/**"), *KEEP.rules])
    deny_first = Policy([*KEEP.rules, Rule("allow", path="/secret/deep/**")])
    assert (await desk.one(allow_first, "read_file", path="/secret/deep/d.txt"))[0]
    assert not (await desk.one(allow_first, "read_file", path="/secret/c.txt"))[0]
    done, text = await desk.one(deny_first, "read_file", path="/secret/deep/d.txt")
    assert not done
    assert "rule 1 of the policy: keep out" in text


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old_string": "needle", "new_string": "x"}),
        ("delete_file", {}),
        ("delete_tree", {}),
        ("ls", {}),
        ("glob", {"pattern": "*"}),
        ("grep", {"pattern": "needle"}),
    ],
)
async def test_every_operation_on_a_denied_path_is_refused(desk: Desk, name: str, args: dict):
    for path in ("/secret", "/secret/c.txt", "/secret/deep"):
        done, text = await desk.one(KEEP, name, path=path, **args)
        assert not done
        assert "rule 1 of the policy" in text
        assert "needle" not in text
    assert await desk.present() == set(FILES)


TRAVERSALS = [
    "/open/../secret/c.txt",
    "/open/inner/../../secret/c.txt",
    "open/../secret/c.txt",
    "../secret/c.txt",
    "\\open\\..\\secret\\c.txt",
    "/open\\../secret\\c.txt",
    "\\secret\\c.txt",
    "//secret//c.txt",
    "/./secret/./c.txt",
    "/secret/../secret/c.txt",
    "~/../secret/c.txt",
    "/secret/c.txt\0.md",
]


@pytest.mark.parametrize("path", TRAVERSALS)
async def test_no_way_of_writing_a_path_leads_into_what_is_denied(desk: Desk, path: str):
    fenced = Policy([Rule("allow", path="/open/**")], default="deny")
    for policy in (KEEP, fenced):
        for name, more in (("read_file", {}), ("write_file", {"content": "x"})):
            done, text = await desk.one(policy, name, path=path, **more)
            assert not done
            assert "needle" not in text
    assert (await desk.one(Policy(), "read_file", path="/secret/c.txt"))[1].endswith("needle\n")


async def test_reading_may_be_allowed_where_writing_is_not(desk: Desk):
    policy = Policy([Rule("deny", ("write_file", "edit_file", "delete_*"), path="/open/**")])
    assert (await desk.one(policy, "read_file", path="/open/a.txt"))[0]
    assert not (await desk.one(policy, "write_file", path="/open/new.txt", content="x"))[0]
    edit = {"path": "/open/a.txt", "old_string": "needle", "new_string": "x"}
    assert not (await desk.one(policy, "edit_file", **edit))[0]
    assert "/open/a.txt" in (await desk.one(policy, "grep", pattern="needle"))[1]


async def test_listings_and_searches_show_what_could_be_read(desk: Desk):
    seen = await desk.run(
        KEEP,
        ("ls", {"path": "/"}),
        ("glob", {"pattern": "**/*.txt"}),
        ("grep", {"pattern": "needle"}),
        ("grep", {"pattern": "needle", "output_mode": "content"}),
        ("grep", {"pattern": "needle", "output_mode": "count"}),
    )
    for done, text in seen:
        assert done
        assert "secret" not in text
        assert "/open" in text
    only = Policy([Rule("allow", path=["/", "/open/**"])], default="deny")
    for _, text in await desk.run(only, ("ls", {}), ("glob", {"pattern": "*.txt"})):
        assert "/open" in text
        assert "e.txt" not in text
        assert "secret" not in text


async def test_to_ask_is_not_to_deny(desk: Desk):
    ask = Policy([Rule("ask", "read_file", path="/secret/**")])
    listed = await desk.run(ask, ("ls", {"path": "/secret"}), ("glob", {"pattern": "*.txt"}))
    assert all("/secret/c.txt" in text for _, text in listed)
    assert "secret" not in (await desk.one(ask, "grep", pattern="needle"))[1]
    model = Turns(says("", call("r", "read_file", path="/secret/c.txt")), says("ok"))
    agent = desk.agent(ask, model)
    waiting = await agent.ainvoke("go", thread_id=desk.thread)
    (question,) = waiting.interrupts
    done = await agent.aresume(waiting.run.id, {question.id: {"decision": "approve"}})
    (read,) = [one for one in done.state["messages"] if getattr(one, "tool_call_id", "") == "r"]
    assert read.text.endswith("needle\n")


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        (Rule("deny", path="/open/inner/**"), "/open"),
        (Rule("deny", path="/open/inner"), "/open"),
        (Rule("deny", path="/open/inner/b.txt"), "/open"),
        (Rule("deny", path="/open/inner/b.txt"), "/open/inner"),
        (Rule("deny", path="**/b.txt"), "/open"),
        (Rule("deny", "delete_*", path="/open/*/*.txt"), "/open"),
        (Rule("ask", path="/OPEN/INNER/B.TXT"), "/open"),
        (Rule("deny", path="/open/**"), "/open/inner"),
        (Rule("deny", path="/open"), "/open"),
    ],
)
async def test_a_directory_goes_only_with_all_that_it_holds(desk: Desk, rule: Rule, path: str):
    model = Turns(says("", call("d", "delete_tree", path=path)), says("ok"))
    result = await desk.agent(Policy([rule]), model).ainvoke("go", thread_id=desk.thread)
    if result.interrupts:  # the directory itself is guarded
        return
    assert await desk.present() == set(FILES)
    (gone,) = [one for one in result.state["messages"] if getattr(one, "tool_call_id", "") == "d"]
    assert gone.status == "error"
    assert "rule 1 of the policy" in gone.text


async def test_a_refused_deletion_does_not_name_what_is_hidden(desk: Desk):
    _, text = await desk.one(
        Policy([Rule("deny", path="/open/inner/b.txt")]), "delete_tree", path="/open"
    )
    assert "/open holds something that the policy guards" in text
    assert "b.txt" not in text
    writers = Policy([Rule("deny", "delete_*", path="/open/inner/b.txt")])
    _, text = await desk.one(writers, "delete_tree", path="/open")
    assert "/open holds /open/inner/b.txt that the policy guards" in text


async def test_what_holds_nothing_guarded_can_be_deleted(desk: Desk):
    assert await desk.one(KEEP, "delete_tree", path="/open/inner") == (True, "gone")
    assert await desk.one(KEEP, "delete_tree", path="/open/a.txt") == (True, "gone")
    assert await desk.present() == {"/secret/c.txt", "/secret/deep/d.txt", "/e.txt"}
    done, text = await desk.one(KEEP, "delete_tree", path="/open/none")
    assert not done
    assert "policy" not in text


async def test_where_a_link_leads_does_not_count_as_held_and_is_not_walked(tmp_path: Path):
    desk = Desk("disk", tmp_path)
    (tmp_path / "open/ways").mkdir(parents=True)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/x.txt").write_text("needle\n")
    (tmp_path / "open/ways/kept").symlink_to("../../kept")
    (tmp_path / "open/ways/round").symlink_to(".")
    policy = Policy([Rule("deny", "delete_*", path="**/x.txt")])
    done, text = await desk.one(policy, "delete_tree", path="/open")
    assert not done
    assert "could not be undone" in text  # what the files say, not the policy
    assert (tmp_path / "kept/x.txt").exists()


async def test_a_link_among_allowed_files_does_not_show_what_is_denied(tmp_path: Path):
    desk = Desk("disk", tmp_path)
    for name in ("open", "secret"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret/c.txt").write_text("needle\n")
    (tmp_path / "open/alias.txt").symlink_to("../secret/c.txt")
    (tmp_path / "open/way").symlink_to("../secret")
    for name, args in (
        ("grep", {"pattern": "needle"}),
        ("grep", {"pattern": "needle", "path": "/open"}),
        ("glob", {"pattern": "**/c.txt"}),
        ("read_file", {"path": "/open/alias.txt"}),
    ):
        _, text = await desk.one(KEEP, name, **args)
        assert "/secret/c.txt:" not in text
        assert "way/c.txt" not in text
        assert "needle\n" not in text.replace("'needle'", "")
        assert "alias.txt:" not in text


async def test_rules_hold_on_each_part_of_a_composite(tmp_path: Path):
    for name in ("work", "vault"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.key").write_text("needle\n")
        (tmp_path / name / "a.txt").write_text("needle\n")
    (tmp_path / "work/way").symlink_to("a.key")
    routes = {
        "/area": DirectoryBackend(tmp_path / "work"),
        "/vault": DirectoryBackend(tmp_path / "vault"),
    }
    desk = Desk("state", tmp_path)
    desk.backend = CompositeBackend(StateBackend(), routes)
    policy = Policy([Rule("deny", path="/vault/**"), Rule("deny", path="**/*.key")])
    found = await desk.run(
        policy,
        ("ls", {}),
        ("glob", {"pattern": "*"}),
        ("grep", {"pattern": "needle"}),
        ("read_file", {"path": "/area/way"}),
        ("read_file", {"path": "/area/a.key"}),
        ("read_file", {"path": "/vault/a.txt"}),
        ("read_file", {"path": "/area/a.txt"}),
    )
    for _, text in found[:3]:
        assert "vault" not in text
        assert ".key" not in text
        assert "/area" in text
    assert [done for done, _ in found[3:]] == [False, False, False, True]
    assert not (await desk.one(policy, "delete_tree", path="/area"))[0]


async def test_the_real_name_of_a_directory_does_not_lead_past_a_rule(tmp_path: Path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/c.txt").write_text("needle\n")
    policy = Policy([Rule("deny", ("glob*", "grep*"), path="/secret/**")])
    search = FilesystemFileSearchMiddleware(tmp_path)
    agent = create_agent(Turns(), middleware=[search], policy=policy)
    native = str(tmp_path / "secret")
    result = await agent.adrive(
        [
            call("1", "glob_search", pattern="*", path=native),
            call("2", "grep_search", pattern="needle", path=native),
        ]
    )
    for one in result.results:
        assert one.status == "error"
        assert "/secret is what the policy guards" in one.text


@pytest.mark.parametrize("action", ["allow", "ask"])
async def test_the_rules_of_a_subagent_only_narrow_its_callers(desk: Desk, action):
    """Peers let a child's rules replace its parent's (C5.5); here both hold."""
    child = Policy([Rule(action, path="/secret/**"), Rule("deny", path="/open/inner/**")])
    registry = SubAgentRegistry(None, [SubAgent(GENERAL_PURPOSE.name, "x", "y", policy=child)])
    reads = says(
        "",
        *(call(f"r{n}", "read_file", path=path) for n, path in enumerate(FILES)),
    )
    answers: list[str] = []

    def turn(request):
        if request.agent == "main":
            return says("", call("t", "task", description="x"))
        return reads

    def last(request):
        if request.agent != "main":
            answers.extend(one.text for one in request.messages if hasattr(one, "tool_call_id"))
        return says("done")

    agent = desk.agent(KEEP, Turns(turn, last), subagents=registry)
    await agent.ainvoke("go", thread_id=desk.thread)
    read = [path for path, text in zip(FILES, answers, strict=True) if "needle" in text]
    assert read == ["/open/a.txt", "/e.txt"]


async def test_many_calls_at_once_are_judged_one_by_one(desk: Desk):
    paths = [path for _ in range(10) for path in FILES]
    results = await desk.run(KEEP, *(("read_file", {"path": path}) for path in paths))
    assert [done for done, _ in results] == ["secret" not in path for path in paths]
