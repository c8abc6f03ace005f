"""What programs read when they start is written with a person's approval only."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.types import ElicitRequestParams, ElicitResult

from deep_agent_mcp.harness.agent import Agent
from deep_agent_mcp.harness.backends.base import Backend, FileError
from deep_agent_mcp.harness.policy import Verdict
from deep_agent_mcp.harness.shell import mount_table
from deep_agent_mcp.harness.tools.tool import Tool, tool
from deep_agent_mcp.server.agents.commands import files_of
from deep_agent_mcp.server.app import built_agent
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.install.clients import CLIENTS, PLACES, PROJECT_FILES
from deep_agent_mcp.server.install.machine import Machine
from deep_agent_mcp.server.settings.settings import Settings, SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call, refused
from tests.server.test_face import served
from tests.shell.support import need_bubblewrap

pytestmark = pytest.mark.anyio
posix = pytest.mark.skipif(os.name == "nt", reason="links need a privilege")

CLIENT_FILES = sorted({name for names in PROJECT_FILES.values() for name in names})
OTHER_FILES = [
    ".claude/settings.json", ".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json",
    ".cursor/rules/a.mdc", ".git/hooks/pre-commit", ".git/config", ".git/modules/a/config",
    ".git/modules/a/hooks/post-checkout", ".husky/pre-push", ".envrc", ".pre-commit-config.yaml",
    ".devcontainer/devcontainer.json", ".devcontainer.json", ".bashrc", ".zshrc", ".profile",
    ".gitconfig", ".config/git/config", ".ssh/authorized_keys", ".claude.json",
    ".git", ".git/commondir", ".git/worktrees/a/commondir", ".git/modules/a/b/config.worktree",
    ".npmrc", ".yarnrc.yml", ".Rprofile", ".gdbinit", ".cargo/config.toml", "mise.toml",
    ".nvim.lua", ".kube/config", ".windsurf/mcp.json", "lefthook.yml", ".hg/hgrc",
    ".config/Code/User/mcp.json", "Library/Application Support/Claude/claude_desktop_config.json",
    "AppData/Roaming/Code/User/mcp.json", ".config/opencode/opencode.json", ".local/bin/git",
]  # fmt: skip
SPELLINGS = {
    "plain": "/{}",
    "relative": "{}",
    "dotted": "./{}",
    "slashes": "//{}",
    "inner dots": "/./x/.././{}",
    "nested": "/sub/{}",
    "deep": "/a/b/c/d/e/{}",
    "native": "{root}/{}",
    "ending dot": "/{}.",
    "stream": "/{}::$DATA",
}
WRITERS: dict[str, dict[str, Any]] = {
    "write_file": {"content": "x"},
    "edit_file": {"old_string": "a", "new_string": "b"},
    "delete_file": {},
    "upload": {"source": "/tmp/x"},
    "move": {"from": "/notes.md"},
}


@tool(read_only=False)
def upload(source: str, path: str) -> str:
    """Stand for a mounted tool that writes where it is told to."""
    return source + path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def settings(root: Path, **flags: object) -> Settings:
    given = {"root": str(root), "state_dir": str(root.parent / "state"), **flags}
    return load_settings(given, {})


@cache
def backend_of(root: Path) -> Backend:
    return files_of(settings(root))


def verdict(agent: Agent, root: Path, name: str, path: str) -> Verdict:
    """Return what is said to a call as the file tools make it: with its path made canonical."""
    backend = backend_of(root)
    try:
        path = backend.canonical(path)  # type: ignore[attr-defined]
    except FileError as error:
        return Verdict("deny", str(error))
    definition: Tool | None = agent.tools.get(name, upload if name == "upload" else None)
    args = {**WRITERS[name], ("to" if name == "move" else "path"): path}
    policy = agent.definition.pipeline.policy
    return policy.judge(name, args, definition, agent=["main"])


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    root = tmp_path_factory.mktemp("files") / "root"
    root.mkdir()
    made = {one: built_agent(settings(root, protect=one)) for one in ("ask", "deny", "off")}
    yield {"root": root, **made}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_a_launch_file_is_written_unasked(
    agents: dict[str, Any], spelling: str
) -> None:
    for file, name in product(CLIENT_FILES + OTHER_FILES, WRITERS):
        check(agents, file, SPELLINGS[spelling], name)


def check(agents: dict[str, Any], file: str, spelling: str, name: str) -> None:
    root: Path = agents["root"]
    path = spelling.format(file, root=root)
    for given in (path, path.replace(file, file.upper()), path.replace("/", "\\")):
        if given.startswith("\\") or str(root) not in path:
            assert verdict(agents["ask"], root, name, given).action != "allow", given
    said = verdict(agents["deny"], root, name, path)
    assert said.action == "deny", path
    if "/x/.." not in path:
        asked = verdict(agents["ask"], root, name, path)
        assert (asked.action, "a person decides" in asked.reason) == ("ask", True), path
        assert verdict(agents["off"], root, name, path).action == "allow"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_every_file_that_install_writes_is_guarded(
    agents: dict[str, Any], client: str, platform: str
) -> None:
    root: Path = agents["root"]
    machine = Machine(platform, root, root)
    for place in PLACES[client].values():
        path = str(place(machine))
        assert verdict(agents["ask"], root, "write_file", path).action == "ask", path


@pytest.mark.parametrize(
    "path",
    ["/notes.md", "/mcp.json", "/src/opencode.py", "/.github/workflows/ci.yml", "/Makefile",
     "/.gitignore", "/.git/HEAD", "/config", "/claude/settings.json", "/package.json", "/.env",
     "/my.mcp.json", "/.mcp.json5", "/git/hooks/x", "/vscode/tasks.json"],
)  # fmt: skip
def test_what_is_written_every_day_needs_nobody(agents: dict[str, Any], path: str) -> None:
    for name in WRITERS:
        assert verdict(agents["ask"], agents["root"], name, path).action == "allow"


def test_reading_needs_nobody(agents: dict[str, Any]) -> None:
    agent: Agent = agents["deny"]
    policy = agent.definition.pipeline.policy
    for name in ("read_file", "ls"):
        found = policy.judge(name, {"path": "/.mcp.json"}, agent.tools[name], agent=["main"])
        assert found.action == "allow"


def test_operators_add_places_and_take_some_out(root: Path) -> None:
    given = (".github/**", "/deploy", "{Makefile,*.mk}", "!.idea/**", "!/.vscode/extensions.json")
    agent = built_agent(settings(root, protect_paths=given))

    def action(path: str) -> str:
        return verdict(agent, root, "write_file", path).action

    for path in (
        "/.github/workflows/ci.yml", "/sub/.github/a", "/deploy", "/deploy/a/b", "/Deploy/a",
        "/Makefile", "/sub/x.mk", "/.vscode/tasks.json", "/.VSCODE/extensions.json",
    ):  # fmt: skip
        assert action(path) == "ask", path
    for path in ("/sub/deploy/a", "/.idea/a", "/sub/.idea/b", "/.vscode/extensions.json"):
        assert action(path) == "allow", path


def test_it_is_set_by_flag_environment_or_file(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('protect = "deny"\nprotect_paths = ["a/**", "/b"]\n')
    read = load_settings({}, {}, config=config)
    assert (read.protect, read.protect_paths) == ("deny", ("a/**", "/b"))
    variables = {
        "DEEP_AGENT_PROTECT": "Off",
        "DEEP_AGENT_PROTECT_PATHS": os.pathsep.join(["{a,b}", "/c"]),
    }
    read = load_settings({}, variables, config=config)
    assert (read.protect, read.protect_paths) == ("off", ("{a,b}", "/c"))
    assert load_settings({}, {}).protect == "ask"
    for name, value, said in (
        ("protect", "no", "'ask', 'deny' or 'off'"),
        ("protect_paths", ("../x",), "cannot climb"),
        ("protect_paths", ("",), "globs of paths from the root"),
    ):
        with pytest.raises(SettingsError, match=said):
            load_settings({name: value}, {})
    shown = CliRunner().invoke(cli, ["serve", "--help"]).output
    assert "--protect " in shown and "--protect-path" in shown


@pytest.mark.parametrize("client", PROJECT_FILES)
async def test_the_line_that_starts_the_server_stays_as_the_operator_installed_it(
    root: Path, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    line = ["--root", ".", "--approve", "write_*"]
    done = CliRunner().invoke(cli, ["install", client, "--scope", "project", "--", *line])
    assert done.exit_code == 0, done.output
    (file,) = (one for one in root.rglob("*") if one.is_file())
    path, before = file.relative_to(root).as_posix(), file.read_bytes()
    assert b"approve" in before
    async with served(root.parent, root=str(root)) as app, Client(app.server) as driver:
        thread = {"thread_id": (await call(driver, "ls", path="/"))["thread_id"]}
        edit = {"path": path, "old_string": "approve", "new_string": "memory"}
        await driver.call_tool("read_file", {"path": path, **thread})
        for name, args in (
            ("edit_file", edit),
            ("write_file", {"path": f"./{path}", "content": "{}"}),
            ("write_file", {"path": path.upper(), "content": "{}"}),
        ):
            asked = await call(driver, name, **args, **thread)
            assert asked["status"] == "needs_approval", asked
            assert "programs take settings or code" in json.dumps(asked)
            (question,) = asked["pending"]
            decided: dict[str, Any] = {"answers": {question["id"]: "reject"}}
            await driver.call_tool("reply", {"run_id": asked["run_id"], **decided})
        assert file.read_bytes() == before
        assert [one for one in root.rglob("*") if one.is_file()] == [file]


async def test_a_person_who_approves_lets_it_be_written(root: Path) -> None:
    said: list[str] = []

    async def person(_: Any, params: ElicitRequestParams) -> ElicitResult:
        said.append(params.message)
        return ElicitResult(action="accept", content={"decision": "approve", "message": ""})

    async with (
        served(root.parent, root=str(root)) as app,
        Client(app.server, elicitation_callback=person) as client,
    ):
        await call(client, "write_file", path="/.envrc", content="export A=1\n")
    assert (root / ".envrc").read_text() == "export A=1\n"
    assert "a person decides" in said[0]


@pytest.mark.parametrize(
    "flags", [{"toolsets": ("files",)}, {"exclude_tools": ("reply",)}, {"protect": "deny"}]
)
async def test_where_nobody_can_approve_it_is_refused(root: Path, flags: dict[str, Any]) -> None:
    async with served(root.parent, root=str(root), **flags) as app, Client(app.server) as client:
        text = await refused(client, "write_file", path="/.envrc", content="x")
    assert "programs take settings or code from there" in text
    assert "a person" in text
    assert not (root / ".envrc").exists()


@posix
async def test_links_lead_to_no_launch_file(root: Path) -> None:
    (root / ".vscode").mkdir()
    (root / "conf").mkdir()
    (root / "conf" / "real.json").write_text("mine")
    (root / ".mcp.json").symlink_to("conf/real.json")
    (root / "alias.json").symlink_to(".mcp.json")
    (root / "editor").symlink_to(".vscode")
    (root / ".envrc").write_text("mine")
    os.link(root / ".envrc", root / "hard")
    flags = {"root": str(root), "protect": "deny"}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        for path in ("/alias.json", "/conf/real.json", "/.mcp.json", "/editor/tasks.json"):
            text = await refused(client, "write_file", path=path, content="theirs")
            assert "programs take settings or code" in text, path
        # Writing replaces the file that has this name, not the one that has both.
        await call(client, "write_file", path="/hard", content="theirs")
    assert (root / "conf" / "real.json").read_text() == "mine"
    assert (root / ".envrc").read_text() == "mine"
    assert not [*(root / ".vscode").iterdir()]


async def test_going_back_in_history_puts_no_launch_file_back(root: Path) -> None:
    off: dict[str, Any] = {"root": str(root), "protect": "off"}
    async with served(root.parent, **off) as app, Client(app.server) as client:
        first = await call(client, "write_file", path="/a.md", content="a")
        thread = {"thread_id": first["thread_id"]}
        (newest, *_) = (await call(client, "threads", **thread))["checkpoints"]
        for path in ("/.mcp.json", "/b.md"):
            await call(client, "write_file", path=path, content="theirs", **thread)
    (root / ".mcp.json").write_text("mine")
    async with served(root.parent, root=str(root)) as app, Client(app.server) as client:
        back = {**thread, "checkpoint_id": newest["checkpoint_id"]}
        text = await refused(client, "rewind", **back, force=False)
        assert "/.mcp.json" in text and "threads rewind" in text
        done = await call(client, "rewind", **back, force=True)
        assert (done["files_put_back"], done["files_left"]) == (["/b.md"], ["/.mcp.json"])
    assert (root / ".mcp.json").read_text() == "mine"


COMMANDS = (
    "echo theirs > {}", "echo theirs >> {}", "rm -f {}", "mv -f {} other", "mv -f new {}",
    "cp new {}", "ln -f {} second && echo theirs > second", "ln -sf new {}", "sed -i s/mine/x/ {}",
    "truncate -s0 {}", "chmod 777 {}", "touch new {}",
)  # fmt: skip


async def test_commands_have_launch_files_to_read_only(root: Path) -> None:
    need_bubblewrap()
    names = [*CLIENT_FILES, *OTHER_FILES[:12], "sub/.mcp.json", "a/b/.vscode/tasks.json"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("mine")
        (root / name).chmod(0o600)
    folders = ("mv .vscode elsewhere", "rm -rf .git/hooks", "touch .vscode/new", "mv sub other")
    # A job has the same mounts as a command: fewer files show that, and hold on a busy machine.
    for script, tried in (("all.sh", names), ("few.sh", names[::8])):
        lines = [
            f"({line.format(name)}) 2>/dev/null; cat {name} >/dev/null || echo lost {name}"
            for name in tried
            for line in COMMANDS
        ]
        lines += [f"{one} 2>/dev/null && echo did {one}" for one in folders]
        (root / script).write_text("\n".join(["echo theirs > new", *lines]))
    flags: dict[str, Any] = {"root": str(root), "execute": "bubblewrap"}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        ran = await call(client, "execute", command="sh all.sh; echo ended")
        assert ran["output"] == "ended\n"
        begun = await call(client, "execute", command="sh few.sh; echo ended", background=True)
        its = {"thread_id": begun["thread_id"], "job_id": begun["job_id"], "seconds": 50}
        ended = await call(client, "job", action="wait", **its)
        assert ended["output"] == "ended\n"
        asked = await call(client, "write_file", path="/workspace/.mcp.json", content="x")
        assert asked["status"] == "needs_approval"
    for name in names:
        assert (root / name).read_text() == "mine", name
        assert (root / name).stat().st_mode & 0o777 == 0o600


async def test_git_works_in_a_sandbox_that_guards_its_hooks(root: Path) -> None:
    need_bubblewrap()
    flags: dict[str, Any] = {"root": str(root), "execute": "bubblewrap"}
    begin = "git init -q . && git config user.name A && git config user.email a@b.c"
    commit = "echo a >a && git add a && git commit -qm first && git checkout -qb other && git log"
    hook = "echo x > .git/hooks/pre-commit; git config core.fsmonitor ./evil; git config user.name"
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        made = await call(client, "execute", command=begin)
        assert made["exit_code"] == 0, made
        assert "/workspace/.git/config" in str(made["notes"])
        done = await call(client, "execute", command=commit)
        assert done["exit_code"] == 0, done
        assert "first" in done["output"]
        tried = await call(client, "execute", command=hook)
        assert "Read-only" in tried["output"]
    assert "fsmonitor" not in (root / ".git" / "config").read_text()
    assert not (root / ".git" / "hooks" / "pre-commit").exists()


def runs_a_command(root: Path, command: list[str]) -> bool:
    """Whether a command that a person starts in the root runs what an agent wrote."""
    variables = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(command, cwd=root, env=variables, capture_output=True, timeout=60, check=False)
    return (root / "ran").exists()


REDIRECTING = {
    "a file for the directory": (".git", "gitdir: evil"),
    "a file in it": (".git/commondir", "../evil"),
}


def make_repository(root: Path, path: str) -> None:
    """Make a repository, and beside it what leads git there to a command."""
    subprocess.run(["git", "init", "-q", root], check=True, timeout=60)
    shutil.copytree(root / ".git", root / "evil")
    config = "[core]\nrepositoryformatversion = 0\nfsmonitor = touch ran; false\n"
    (root / "evil" / "config").write_text(config)
    if path == ".git":
        shutil.rmtree(root / ".git")


@posix
@pytest.mark.parametrize("way", REDIRECTING)
async def test_git_is_not_led_to_settings_that_an_agent_wrote(root: Path, way: str) -> None:
    path, text = REDIRECTING[way]
    make_repository(root, path)
    async with served(root.parent, root=str(root)) as app, Client(app.server) as client:
        asked = await call(client, "write_file", path=f"/{path}", content=text)
        assert asked["status"] == "needs_approval"
    assert not runs_a_command(root, ["git", "status"])
    (root / path).write_text(text)
    assert runs_a_command(root, ["git", "status"])  # so it is worth a question


async def test_commands_work_in_a_git_directory_and_not_on_a_file_of_that_name(root: Path) -> None:
    need_bubblewrap()
    for name in ("tree", "sub/tree"):
        (root / name).mkdir(parents=True)
        (root / name / ".git").write_text("gitdir: /mine")
    (root / ".git").mkdir()
    (root / ".git" / "commondir").write_text(".")
    flags: dict[str, Any] = {"root": str(root), "execute": "bubblewrap"}
    command = (
        "for f in tree/.git sub/tree/.git .git/commondir; do echo x >$f && echo wrote; done; "
        "touch .git/new && mkdir .git/dir && rm .git/new && echo works"
    )
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        ran = await call(client, "execute", command=command)
    assert "wrote" not in ran["output"] and "works" in ran["output"], ran


async def test_many_projects_below_the_root_take_nothing_from_commands(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_bubblewrap()
    # A slow machine may not look at all of them in the usual time.
    limits = partial(mount_table.TableLimits, optional_seconds=60)
    monkeypatch.setattr(mount_table, "TableLimits", limits)
    for number in range(150):
        (root / f"p{number}" / ".git" / "hooks").mkdir(parents=True)
        (root / f"p{number}" / ".git" / "config").touch()
        (root / f"p{number}" / ".mcp.json").touch()
    (root / ".mcp.json").write_text("mine")
    flags: dict[str, Any] = {"root": str(root), "execute": "bubblewrap"}
    command = "for d in p*; do touch $d/new $d/.git/index || echo no; done; echo x >.mcp.json; true"
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        ran = await call(client, "execute", command=command)
    assert "no\n" not in ran["output"]
    assert "policy" not in str(ran["notes"])
    assert all((root / f"p{number}" / ".git" / "index").exists() for number in range(150))
    assert (root / ".mcp.json").read_text() == "mine"
