"""What lies where agents write never brings in, by a link, what lies elsewhere."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from mcp import Client

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.definitions import link_walk
from deep_agent_mcp.harness.definitions.confined_files import ConfinedFiles, RefusedLink
from deep_agent_mcp.harness.definitions.frontmatter import DefinitionError
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.memory import MemoryFiles
from deep_agent_mcp.harness.policy import PolicyFiles
from deep_agent_mcp.harness.profiles import ProfileRegistry
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.doctor.environment import examine_files
from deep_agent_mcp.server.reload import Plan, ProfileFiles
from deep_agent_mcp.server.settings.sources import load_settings
from tests.fake_anthropic import FakeAnthropic
from tests.loop.models import Turns
from tests.skills.folders import skill_text

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need rights there")

SECRET, FINE = "sk-secret", "well-known"


class Read(NamedTuple):
    """What came of reading: all that was taken in, and what is said to be wrong."""

    content: str
    problems: str


def read_memory(path: Path, untrusted: list[Path]) -> Read:
    files = MemoryFiles([path], untrusted=untrusted)
    return Read(str(files.snapshot.files), str(files.errors))


def read_agent(path: Path, untrusted: list[Path]) -> Read:
    agents = SubAgentRegistry(path.parent, untrusted=untrusted)
    return Read(str(agents.subagents), str(agents.errors))


def read_skill(path: Path, untrusted: list[Path]) -> Read:
    skills = SkillRegistry([path.parent.parent], untrusted=untrusted)
    held = [skills.read(one, file.path) for one in skills.skills.values() for file in one.files]
    return Read(f"{skills.skills} {held}", str(skills.errors))


def read_policy(path: Path, untrusted: list[Path]) -> Read:
    try:
        policy = PolicyFiles([path], untrusted=untrusted)
    except HarnessError as error:
        return Read("", str(error))
    return Read(str(policy.snapshot.policy.rules), str(policy.errors))


def read_profile(path: Path, untrusted: list[Path]) -> Read:
    try:
        registry = ProfileRegistry([path.parent], builtin=False, untrusted=untrusted)
        files = ProfileFiles([path.parent], untrusted=untrusted)
    except HarnessError as error:
        return Read("", str(error))
    return Read(str(registry.profiles) + str(files.current.profiles), "")


class Kind(NamedTuple):
    """A kind of file: where it is below `conf`, what it says, how it is read."""

    names: tuple[str, ...]
    text: str
    read: Callable[[Path, list[Path]], Read]

    def write(self, conf: Path, word: str) -> Path:
        path = conf.joinpath(*self.names)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text.replace("WORD", word))
        if self.names[-1] == "more.md":
            (path.parent / "SKILL.md").write_text(skill_text("plan"))
        return path


KINDS = {
    "memory": Kind(("notes", "AGENTS.md"), "WORD", read_memory),
    "agent": Kind(("agents", "a.md"), skill_text("a", "WORD.", "WORD"), read_agent),
    "skill": Kind(("skills", "plan", "SKILL.md"), skill_text("plan", "WORD.", "WORD"), read_skill),
    "beside": Kind(("skills", "plan", "more.md"), "WORD", read_skill),
    "policy": Kind(
        ("rules", "p.toml"), '[[rule]]\naction = "deny"\nreason = "WORD"', read_policy
    ),
    "profile": Kind(
        ("profiles", "p.toml"), 'models = ["x"]\nsystem_prompt_suffix = "WORD"', read_profile
    ),
}  # fmt: skip


class World(NamedTuple):
    """A root that agents write, what lies outside, and other names of the root."""

    root: Path
    outside: Path
    alias: Path


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "root", tmp_path / "outside", tmp_path / "alias")
    made.root.mkdir()
    made.outside.mkdir()
    (tmp_path / "other").symlink_to(made.root)
    made.alias.symlink_to("other")
    (made.root / "inner").mkdir()
    return made


@pytest.fixture(params=["descriptors", "names"])
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(link_walk, "_HAS_DESCRIPTORS", request.param == "descriptors")
    return request.param


def replace(victim: Path, target: str | Path) -> None:
    """Put a link in the place of a file or directory."""
    victim.rename(victim.with_name(f".was-{victim.name}"))
    victim.symlink_to(target)


def absolute(world: World, victim: Path, target: Path) -> str:
    return str(target)


def relative(world: World, victim: Path, target: Path) -> str:
    return os.path.relpath(target, victim.parent)


def dotted(world: World, victim: Path, target: Path) -> str:
    return f"{world.root}/inner/../{os.path.relpath(target, world.root)}"


def chained(world: World, victim: Path, target: Path) -> str:
    step = world.root / "inner" / "step"
    step.symlink_to(os.path.relpath(target, step.parent))
    (world.root / "first").symlink_to(step)
    return os.path.relpath(world.root / "first", victim.parent)


def through_a_directory(world: World, victim: Path, target: Path) -> str:
    (world.root / "way").symlink_to(os.path.relpath(target.parent, world.root))
    return os.path.relpath(world.root / "way" / target.name, victim.parent)


SHAPES_BOTH = (absolute, relative, dotted, chained, through_a_directory)


def by_proc(world: World, victim: Path, target: Path) -> str:
    return f"/proc/self/root{target}"


def by_the_alias(world: World, victim: Path, target: Path) -> str:
    return f"{world.alias}/../{target.relative_to(world.root.parent)}"


def by_the_parent(world: World, victim: Path, target: Path) -> str:
    return f"{world.root}/..//./{target.relative_to(world.root.parent)}"


SHAPES_OUT = (*SHAPES_BOTH, by_proc, by_the_alias, by_the_parent)


def cases(shapes: tuple[Callable[..., str], ...], *, within: bool) -> list[Any]:
    found: list[Any] = []
    for name, kind in KINDS.items():
        depth = len(kind.names) + 1
        if within and kind.read is read_skill:
            depth = 2  # below its source a skill keeps to that
        for place in range(depth):
            for shape in shapes:
                title = f"{name}-{place}-{shape.__name__}"
                found.append(pytest.param(kind, place, shape, id=title))
    return found


@pytest.mark.parametrize(("kind", "place", "shape"), cases(SHAPES_OUT, within=False))
def test_no_link_in_the_root_brings_in_what_is_outside(
    world: World, platform: str, kind: Kind, place: int, shape: Callable[..., str]
) -> None:
    ours = kind.write(world.root / "conf", FINE)
    theirs = kind.write(world.outside / "conf", SECRET)
    above = len(kind.names) - place
    victim = ours.parents[above - 1] if above else ours
    target = theirs.parents[above - 1] if above else theirs
    path = ours.relative_to(world.root)
    replace(victim, shape(world, victim, target))
    for name in (world.root, world.alias, world.root / "inner" / ".."):
        read = kind.read(name / path, [world.root])
        assert SECRET not in read.content
        assert SECRET not in read.problems
        assert "leads out of" in read.problems or "lead out of" in read.problems
        assert str(world.outside) not in read.problems, "nor does it say where the link leads"


@pytest.mark.parametrize(("kind", "place", "shape"), cases(SHAPES_BOTH, within=True))
def test_links_that_stay_in_the_root_are_followed(
    world: World, platform: str, kind: Kind, place: int, shape: Callable[..., str]
) -> None:
    ours = kind.write(world.root / "conf", "old")
    theirs = kind.write(world.root / "there" / "conf", FINE)
    above = len(kind.names) - place
    victim = ours.parents[above - 1] if above else ours
    target = theirs.parents[above - 1] if above else theirs
    replace(victim, shape(world, victim, target))
    read = kind.read(ours, [world.root])
    assert FINE in read.content
    assert read.problems in ("", "{}")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_an_operator_links_elsewhere_is_read(world: World, platform: str, kind: Kind) -> None:
    there = kind.write(world.outside / "conf", FINE)
    (world.outside / "up").symlink_to("../outside")
    (world.root.parent / "mine").symlink_to(world.outside / "up" / "conf")
    path = (world.root.parent / "mine").joinpath(*kind.names)
    if kind.read is not read_skill:
        replace(there, world.root.parent / "elsewhere")
        (world.root.parent / "elsewhere").write_text(kind.text.replace("WORD", FINE))
    assert FINE in kind.read(path, [world.root]).content
    # Without a root that agents write, links lead where they lead.
    assert FINE in kind.read(path, []).content


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_link_of_the_operator_into_the_root_does_not_lead_on(
    world: World, platform: str, kind: Kind
) -> None:
    theirs = kind.write(world.outside / "conf", SECRET)
    ours = kind.write(world.root / "conf", FINE)
    replace(ours, theirs)
    (world.root.parent / "mine").symlink_to(world.root / "conf")
    path = (world.root.parent / "mine").joinpath(*kind.names)
    assert SECRET not in str(kind.read(path, [world.root]))


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    short = Path(tempfile.mkdtemp()) / "s"  # the system wants a short name
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(short))
    short.rename(path)
    short.parent.rmdir()


def make_directory(path: Path) -> None:
    path.mkdir()


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


def make_long_chain(path: Path) -> None:
    for number in range(60):
        path.with_name(f".{number}").symlink_to(f".{number + 1}")
    path.symlink_to(".0")


def make_nothing(path: Path) -> None:
    path.symlink_to("gone")


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20_000_000)


MAKERS = (
    make_pipe, make_socket, make_directory, make_loop, make_long_chain, make_nothing, make_device,
    make_huge,
)  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_whatever_lies_there_instead_breaks_nothing(
    world: World, platform: str, kind: Kind, make: Callable[[Path], None]
) -> None:
    path = kind.write(world.root / "conf", SECRET)
    path.unlink()
    make(path)
    assert SECRET not in str(kind.read(path, [world.root]))


@pytest.mark.parametrize("kind", ["memory", "agent", "skill", "beside", "policy", "profile"])
def test_an_agent_distrusts_where_it_writes_and_forgets_what_it_should_not_have_read(
    world: World, kind: str
) -> None:
    made = KINDS[kind]
    theirs, ours = made.write(world.outside, SECRET), made.write(world.root, FINE)
    replace(ours, theirs)
    own = ours.parent
    options = {
        "memory": lambda: {"memory": MemoryFiles([ours])},
        "agent": lambda: {"subagents": SubAgentRegistry(own)},
        # Of a source that is a link itself, no file is a link.
        "skill": lambda: {"skills": SkillRegistry([own.parent])},
        "beside": lambda: {"skills": SkillRegistry([own.parent])},
        "policy": lambda: {"policy": PolicyFiles([ours])},
        "profile": lambda: {"profile": ProfileRegistry([own])},
    }[kind]()
    (given,) = options.values()
    if kind in ("policy", "profile"):
        with pytest.raises(HarnessError, match="leads out of"):
            create_deep_agent(Turns(), backend=DirectoryBackend(world.root), **options)
        return
    if kind in ("memory", "agent"):
        assert SECRET in str(given.snapshot)
    create_deep_agent(Turns(), backend=DirectoryBackend(world.root), **options)
    assert SECRET not in str(given.snapshot)
    assert "out of" in str(given.errors)


def test_what_was_said_before_stays_when_a_file_becomes_a_link_outwards(world: World) -> None:
    for name in ("memory", "agent", "skill"):
        kind = KINDS[name]
        theirs, ours = kind.write(world.outside, SECRET), kind.write(world.root, FINE)
        registry = {
            "memory": lambda path=ours: MemoryFiles([path], untrusted=[world.root]),
            "agent": lambda path=ours: SubAgentRegistry(path.parent, untrusted=[world.root]),
            "skill": lambda path=ours: SkillRegistry([path.parents[1]], untrusted=[world.root]),
        }[name]()
        replace(ours, theirs)
        registry.reload()
        assert FINE in str(registry.snapshot)
        assert SECRET not in str(registry.snapshot)
        assert "stays in use until this is fixed" in str(registry.errors)


def test_a_file_beside_a_skill_that_becomes_a_link_is_not_read(world: World) -> None:
    kind = KINDS["beside"]
    theirs, ours = kind.write(world.outside, SECRET), kind.write(world.root, FINE)
    skills = SkillRegistry([ours.parents[1]], untrusted=[world.root])
    skill = skills.get("plan")
    replace(ours, theirs)
    with pytest.raises(RefusedLink):
        skills.read(skill, "more.md")


def test_processes_are_outside_of_a_root_that_is_the_whole_machine(
    tmp_path: Path, platform: str
) -> None:
    (tmp_path / "AGENTS.md").symlink_to("/proc/self/environ")
    files = MemoryFiles([tmp_path / "AGENTS.md"], untrusted=[Path("/")])
    assert not files.snapshot.files
    assert "another file system" in str(files.errors)


def test_directories_on_the_way_need_not_be_readable(world: World) -> None:
    path = KINDS["memory"].write(world.root / "conf", FINE)
    path.parent.chmod(0o311)
    try:
        assert ConfinedFiles((world.root,)).read(path, 100) == FINE.encode()
    finally:
        path.parent.chmod(0o755)


def test_no_descriptor_stays_open(world: World) -> None:
    path = KINDS["memory"].write(world.root / "conf", FINE)
    (world.root / "out").symlink_to("/")
    files = ConfinedFiles((world.root,))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        files.read(path, 100)
        with files.entries(path.parent) as there:
            assert [one.name for one in there] == ["AGENTS.md"]
        with pytest.raises(RefusedLink):
            files.status(world.root / "out" / "etc")
        with pytest.raises(FileNotFoundError):
            files.read(path.parent / "none" / "x", 100)
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_behind_a_refused_link_is_watched(world: World) -> None:
    (world.root / "agents").symlink_to("/")
    (world.root / "AGENTS.md").symlink_to(world.outside / "x.md")
    (world.root / "deep").symlink_to(world.outside)
    names = ("agents", "AGENTS.md", "deep/AGENTS.md")
    plan = Plan.of([world.root / one for one in names], ConfinedFiles((world.root,)))
    assert plan.trees == set()
    assert plan.anchors == {str(world.root)}


@pytest.mark.anyio
async def test_the_servers_key_never_reaches_a_model(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloned repository, or a command, has put links where the server reads instructions."""
    environ = Path("/proc/self/environ").read_bytes().split(b"\0")
    secrets = [SECRET, *(one.decode().partition("=")[2] for one in environ if len(one) > 40)]
    root = world.root
    (world.outside / "x.md").write_text(skill_text("x", SECRET, SECRET))
    (root / "agents").mkdir()
    (root / "agents" / "x.md").symlink_to(world.outside / "x.md")
    (root / "AGENTS.md").symlink_to("/proc/self/environ")
    KINDS["skill"].write(root, FINE)
    (root / "skills" / "plan" / "environ.md").symlink_to("/proc/self/environ")
    given = {
        "state_dir": str(world.outside / "state"),
        "root": str(root),
        "memory": (str(root / "AGENTS.md"),),
        "agents": str(root / "agents"),
        "skills": (str(root / "skills"),),
        "model": "claude-opus-5",
    }
    settings = load_settings(given, {})
    turns = [
        {"tool_calls": [{"name": "skill", "input": {"name": "plan"}}]},
        {"tool_calls": [{"name": "skill", "input": {"name": "plan", "file": "environ.md"}}]},
        {"tool_calls": [{"name": "task", "input": {"description": "go", "subagent_type": "x"}}]},
        "done",
    ]
    with anyio.fail_after(60):
        async with FakeAnthropic(turns) as api:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
            monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
            async with create_app(settings) as app, Client(app.server) as client:
                status = app.status()
                tools = await client.list_tools()
                result = await client.call_tool("task", {"goal": "Look around."})
                assert "done" in str(result.content)
    assert len(api.requests) == 4
    said = json.dumps([*api.requests, tools.model_dump(mode="json"), dict(status)])
    for secret in secrets:
        assert json.dumps(secret)[1:-1] not in said
    # It is named to the model, to clients, to monitors and by `doctor`.
    assert "A memory file has a problem" in str(api.requests[0]["system"])
    assert "(a file has a problem)" in str(tools)
    assert status["broken_memory"] == ["AGENTS.md"]
    assert status["broken_agents"] == ["x.md"]
    assert status["broken_skills"] == ["SKILL.md"]
    found = [one.text for one in examine_files(settings)]
    for name in ("AGENTS.md", "x.md", "environ.md"):
        assert any(name in text for text in found), name


def test_a_refused_link_is_an_error_of_definitions() -> None:
    assert issubclass(RefusedLink, DefinitionError)
