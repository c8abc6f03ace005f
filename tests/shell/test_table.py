"""The mount table: which mounts the rules about paths come to."""

import os
import subprocess
from itertools import pairwise
from pathlib import Path
from shutil import which

import pytest

from deep_agent_mcp.harness.backends.mounts import MountedDirectory
from deep_agent_mcp.harness.policy import CallAuthorization, Policy, Rule
from deep_agent_mcp.harness.shell.docker import DockerExecutionPolicy
from deep_agent_mcp.harness.shell.mount_table import TableLimits, layout_of
from deep_agent_mcp.harness.shell.policies import HostExecutionPolicy, Layout
from deep_agent_mcp.harness.tools.tool import tool

pytestmark = pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system")


@tool
def execute(command: str) -> str:
    """Stand for the tool that a call is of."""
    return command


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("src/main.py", "src/.env", "docs/a/b.md", "data/x", "data/open/y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def table(root: Path, *rules: Rule, limits: TableLimits | None = None) -> Layout:
    bound = CallAuthorization(Policy(rules), "execute", {}, execute, execute, ("main",), "")
    return layout_of([MountedDirectory("/workspace", root)], bound, limits=limits)


def mounted(layout: Layout) -> list[tuple[str, str]]:
    return [(one.place.removeprefix("/workspace"), one.access) for one in layout.mounts]


def test_without_rules_there_is_the_directory_alone(root: Path) -> None:
    assert mounted(table(root)) == [("", "write")]
    assert layout_of([MountedDirectory("/workspace", root)], None).workdir == "/workspace"


def test_what_is_above_a_guarded_path_is_held_in_its_place(root: Path) -> None:
    layout = table(root, Rule("deny", tool="write_file", path="/workspace/docs/a/b.md"))
    assert mounted(layout) == [
        ("", "write"),
        ("/docs", "write"),
        ("/docs/a", "write"),
        ("/docs/a/b.md", "read"),
    ]
    assert all(one.path == f"{root}{one.place.removeprefix('/workspace')}" for one in layout.mounts)


def test_what_is_open_lies_on_top_of_what_hides_it(root: Path) -> None:
    layout = table(
        root,
        Rule("allow", path="/workspace/data/open/**"),
        Rule("ask", path="/workspace/data/**"),
    )
    assert mounted(layout) == [("", "write"), ("/data", "hidden"), ("/data/open", "write")]


def test_everything_may_be_guarded(root: Path) -> None:
    assert mounted(table(root, Rule("deny", tool="edit_file"))) == [("", "read")]
    assert mounted(table(root, Rule("deny", tool="read_file"))) == [("", "hidden")]


def test_what_there_is_no_time_to_look_for_is_not_hidden(root: Path) -> None:
    near = Policy([Rule("ask", path="**/.env", read_only=False)], search_depth=3)
    bound = CallAuthorization(near, "execute", {}, execute, execute, ("main",), "")
    for limits, mounts in (
        (TableLimits(entries=0), [("", "write"), ("/src", "write"), ("/src/.env", "read")]),
        (TableLimits(optional_entries=0), [("", "write")]),
        (TableLimits(optional_seconds=-1), [("", "write")]),
    ):
        layout = layout_of([MountedDirectory("/workspace", root)], bound, limits=limits)
        assert (mounted(layout), layout.notes) == (mounts, ())


def test_a_part_that_is_no_directory_hides_what_the_disk_has_there(root: Path) -> None:
    parts = [MountedDirectory("/workspace", root), MountedDirectory("/workspace/data", None)]
    assert mounted(layout_of(parts, None)) == [("", "write"), ("/data", "hidden")]
    parts[1] = MountedDirectory("/workspace/none", None)
    assert mounted(layout_of(parts, None)) == [("", "write")]


def test_links_are_judged_by_what_they_lead_to(root: Path) -> None:
    (root / "src/.env").unlink()
    (root / "src/.env").symlink_to("main.py")
    assert mounted(table(root, Rule("deny", path="**/.env"))) == [("", "write"), ("/src", "write")]


def test_what_there_is_no_time_to_look_at_is_hidden_and_told(root: Path) -> None:
    for number in range(50):
        (root / f"node_modules/{number}").mkdir(parents=True)
    rule = Rule("deny", tool="write_file", path="**/.env")
    layout = table(root, rule, limits=TableLimits(entries=12))
    places = dict(mounted(layout))
    assert places["/src/.env"] == "read"  # what matters is looked at first
    assert all(places[f"/node_modules/{number}"] == "hidden" for number in range(50))
    assert "no access to /workspace/node_modules/0, " in layout.notes[0]
    assert "and 45 more" in layout.notes[0]
    assert table(root, rule).notes == ()


def test_too_many_mounts_give_way_to_their_directories(root: Path) -> None:
    for number in range(50):
        (root / f"many/{number}.key").parent.mkdir(exist_ok=True)
        (root / f"many/{number}.key").write_text("")
    layout = table(root, Rule("deny", path="**/*.key"), limits=TableLimits(points=20))
    assert mounted(layout) == [("", "write"), ("/many", "hidden")]
    assert "/workspace/many" in layout.notes[0]


def test_what_holds_guarded_paths_in_their_places_counts_too(root: Path) -> None:
    for number in range(10):
        (root / f"deep/{number}/a/b/c").mkdir(parents=True)
        (root / f"deep/{number}/a/b/c/one.key").write_text("")
    layout = table(root, Rule("deny", path="**/*.key"), limits=TableLimits(points=25))
    assert len(layout.mounts) <= 26
    found = dict(mounted(layout))
    assert all(found[f"/deep/{number}/a"] == "hidden" for number in range(10))
    assert len(table(root, Rule("deny", path="**/*.key")).mounts) == 52


def test_what_is_fixed_cannot_be_written_whatever_the_rules_say(root: Path) -> None:
    directories = [MountedDirectory("/workspace", root)]
    fixed = [root / "docs", root / "src/main.py", root / "none", root.parent]
    assert mounted(layout_of(directories, None, fixed=fixed)) == [
        ("", "write"),
        ("/docs", "read"),
        ("/src", "write"),
        ("/src/main.py", "read"),
    ]
    rules = Policy(
        [Rule("allow", path="/workspace/docs/a/**"), Rule("deny", tool="edit_file", path="**")]
    )
    bound = CallAuthorization(rules, "execute", {}, execute, execute, ("main",), "")
    layout = layout_of(directories, bound, fixed=[root / "docs"])
    assert all(one.access == "read" for one in layout.mounts)


def test_a_guarded_link_is_told(root: Path) -> None:
    (root / "link").symlink_to("src/main.py")
    layout = table(root, Rule("deny", tool="write_file", path="/workspace/link"))
    assert mounted(layout) == [("", "write")]
    assert "guards /workspace/link, but a link cannot be held" in layout.notes[0]


def test_names_of_any_kind_are_guarded(root: Path) -> None:
    names = ["a b'c\"d.key", "-rf.key", "$(x).key", "tab\t.key", "line\n.key", "ü漢.KEY"]
    raw = os.path.join(os.fsencode(root), b"\xff\xfe.key")
    Path(os.fsdecode(raw)).write_text("")
    for name in names:
        (root / name).write_text("")
    found = dict(mounted(table(root, Rule("deny", path="**/*.key"))))
    assert {f"/{name}" for name in [*names, os.fsdecode(b"\xff\xfe.key")]} <= set(found)


# --- docker and the host ---------------------------------------------------------------------


def test_a_container_sees_the_same_table(root: Path) -> None:
    layout = table(
        root,
        Rule("deny", tool="write_file", path="/workspace/docs/**"),
        Rule("deny", path="/workspace/data/**"),
        Rule("deny", path="**/.env"),
    )
    argv = DockerExecutionPolicy().launch_in(layout, None, {}).argv
    mounts = [value for option, value in pairwise(argv) if option == "--mount"]
    assert mounts == [
        f'type=bind,"source={root}","target=/workspace"',
        'type=tmpfs,"target=/workspace/data",tmpfs-size=4096,tmpfs-mode=0555,readonly',
        f'type=bind,"source={root}/docs","target=/workspace/docs",readonly',
        f'type=bind,"source={root}/src","target=/workspace/src"',
        'type=bind,source=/dev/null,"target=/workspace/src/.env",readonly',
    ]
    assert argv[list(argv).index("--workdir") + 1] == "/workspace"


def test_the_real_client_takes_the_table(root: Path, tmp_path: Path) -> None:
    if which("docker") is None:
        pytest.skip("docker is not installed: apt-get install docker-cli")
    layout = table(root, Rule("deny", path="/workspace/data/**"), Rule("deny", path="**/.env"))
    launch = DockerExecutionPolicy().launch_in(layout, None, {})
    env = {**launch.env, "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    done = subprocess.run(launch.argv, env=env, capture_output=True, text=True, timeout=60)
    assert "no-engine" in done.stderr, done.stderr  # it got as far as asking the engine


@pytest.mark.parametrize(("enabled", "layout"), [(True, False), (False, True), (True, True)])
def test_a_container_has_network_if_both_say_so(enabled: bool, layout: bool) -> None:
    policy = DockerExecutionPolicy(network_enabled=enabled)
    argv = policy.launch_in(Layout("/tmp", network=layout), None, {}).argv
    assert ("--network" in argv) == (not (enabled and layout))


def test_on_the_host_a_table_says_nothing() -> None:
    launch = HostExecutionPolicy().launch_in(Layout("/tmp", network=False), None, {})
    assert launch.workspace == "/tmp"
