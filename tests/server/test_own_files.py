"""What binds agents stays out of their hands, also where it lies among the files they work on."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import Client

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.server.agenda.webhooks import new_secret
from deep_agent_mcp.server.agents.commands import require_outside
from deep_agent_mcp.server.app import built_agent, create_app
from deep_agent_mcp.server.settings.launch_rules import places_in
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import call, refused, text_of
from tests.server.test_face import served

pytestmark = pytest.mark.anyio

DENY = '[[rule]]\naction = "deny"\ntool = "write_file"\npath = "/kept/**"\n'
READER = "---\nname: reader\ndescription: Reads.\n{}---\nYou read.\n"
posix = pytest.mark.skipif(os.name == "nt", reason="links need a privilege")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "conf").mkdir(parents=True)
    (root / "conf" / "rules.toml").write_text(DENY)
    (root / "plan.md").write_text("a plan")
    return root


async def written(client: Client, path: str, text: str = "") -> str:
    return await refused(client, "write_file", path=path, content=text)


async def test_an_agent_reads_the_rules_that_bind_it_and_cannot_loosen_them(root: Path) -> None:
    rules = root / "conf" / "rules.toml"
    flags: dict[str, Any] = {"root": str(root), "policy": (str(rules),)}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        read = await client.call_tool("read_file", {"path": "/conf/rules.toml"})
        assert not read.is_error
        assert DENY in text_of(read)
        edit: dict[str, Any] = {"old_string": "deny", "new_string": "allow"}
        text = await refused(client, "edit_file", path="/conf/rules.toml", **edit)
        assert "the server's own rules" in text
        assert "only whoever runs the server can edit it" in text
        for path in ("/CONF/Rules.TOML", "/conf/./rules.toml", "conf\\rules.toml", str(rules)):
            assert "the server's own rules" in await written(client, path), path
        assert rules.read_text() == DENY
        await call(client, "write_file", path="/conf/notes.md", content="fine")
        assert "rule 1 of rules.toml" in await written(client, "/kept/a")


async def test_rules_that_a_saved_configuration_names_are_kept_from_agents_too(root: Path) -> None:
    config = root.parent / "config.toml"
    config.write_text("")
    given = {"root": str(root), "state_dir": str(root.parent / "state")}

    def read() -> Settings:
        return load_settings(given, {}, config=config)

    async with create_app(read(), read) as app, Client(app.server) as client:
        await call(client, "write_file", path="/conf/rules.toml", content=DENY)
        config.write_text("policy = ['root/conf/rules.toml']")
        assert app.settings.reload()
        assert not app.settings.errors
        assert "the server's own rules" in await written(client, "/conf/rules.toml")


async def test_runs_that_have_begun_keep_off_files_that_are_named_since(root: Path) -> None:
    config = root.parent / "config.toml"
    config.write_text("")
    given = {"root": str(root), "state_dir": str(root.parent / "state")}
    (root / "agents").mkdir()

    def read() -> Settings:
        return load_settings(given, {}, config=config)

    async with create_app(read(), read) as app:
        begun = app.agent()
        config.write_text('policy = ["root/conf/rules.toml"]\nagents = "root/agents"')
        app.settings.reload()
        assert app.agent() is not begun
        policy, tool = begun.definition.pipeline.policy, begun.tools["write_file"]
        for path in ("/kept/a", "/conf/rules.toml", "/agents/reader.md"):
            agent = ("main", "reader")
            assert policy.judge("write_file", {"path": path}, tool, agent=agent).action == "deny"


@posix
async def test_a_link_that_leads_elsewhere_since_is_followed(root: Path) -> None:
    for name in ("one", "two"):
        (root / name).mkdir()
        (root / name / "rules.toml").write_text(DENY)
    link = root.parent / "now"
    link.symlink_to(root / "one")
    flags: dict[str, Any] = {"root": str(root), "policy": (str(link / "rules.toml"),)}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        await written(client, "/one/rules.toml")
        link.unlink()
        link.symlink_to(root / "two")
        app.policy.reload()
        await written(client, "/two/rules.toml")
        await call(client, "write_file", path="/one/notes.md", content="fine")


async def test_going_back_puts_no_earlier_rules_back(root: Path) -> None:
    config = root.parent / "config.toml"
    config.write_text("")
    given = {"root": str(root), "state_dir": str(root.parent / "state")}

    def read() -> Settings:
        return load_settings(given, {}, config=config)

    rules = root / "rules.toml"
    async with create_app(read(), read) as app, Client(app.server) as client:
        first = await call(client, "write_file", path="/rules.toml", content="# nothing\n")
        thread: dict[str, Any] = {"thread_id": first["thread_id"]}
        (newest, *_) = (await call(client, "threads", **thread))["checkpoints"]
        edit = {"old_string": "# nothing\n", "new_string": DENY}
        await call(client, "edit_file", path="/rules.toml", **edit, **thread)
        await call(client, "write_file", path="/other.md", content="", **thread)
        config.write_text('policy = ["root/rules.toml"]')
        app.settings.reload()
        back = {**thread, "checkpoint_id": newest["checkpoint_id"]}
        text = await refused(client, "rewind", **back)
        assert "the server's own rules" in text
        assert "Nothing was done" in text
        assert rules.read_text() == DENY
        assert (root / "other.md").exists()
        done = await call(client, "rewind", **back, force=True)
        assert (done["files_put_back"], done["files_left"]) == (["/other.md"], ["/rules.toml"])
        assert rules.read_text() == DENY


async def test_keys_and_state_are_not_there_for_agents(root: Path) -> None:
    state, key = root / "state", root / "journal.key"
    key.touch(mode=0o600)
    key.write_text(Keyring.generate())
    flags = {"root": str(root), "state_dir": str(state), "journal_key_file": str(key)}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        listed = await call(client, "ls", path="/")
        assert [one["path"] for one in listed["entries"]] == ["/conf", "/plan.md"]
        for tool, args in (
            ("read_file", {"path": "/journal.key"}),
            ("read_file", {"path": "/state/journal.sqlite3"}),
            ("ls", {"path": "/state"}),
            ("grep", {"pattern": ".", "path": "/state"}),
            ("write_file", {"path": "/state/tokens.json", "content": "{}"}),
            ("write_file", {"path": "/journal.key", "content": ""}),
        ):
            assert "keys and its state" in await refused(client, tool, **args), (tool, args)
        found = [await call(client, "glob", pattern="**/*")]
        found.append(await call(client, "grep", pattern="."))
        assert "plan.md" in str(found[0])
        assert "state" not in str([one["results"] for one in found])
        assert "journal.key" not in str([one["results"] for one in found])
        files = f"thread://{listed['thread_id']}/files"
        (content,) = (await client.read_resource(files)).contents
        assert "journal.key" not in str(content)
    assert (state / "journal.sqlite3").exists()


async def test_keys_and_state_are_not_there_by_another_route(tmp_path: Path) -> None:
    key = tmp_path / "journal.key"
    key.touch(mode=0o600)
    key.write_text(Keyring.generate())
    (tmp_path / "notes.md").write_text("a plan")
    about = tmp_path / "conf" / "deep-agent.toml"
    about.parent.mkdir()
    about.write_text('[files]\n"/home" = { root = "..", read_only = true }\n')
    flags = {"agent_file": str(about), "journal_key_file": str(key)}
    async with served(tmp_path, **flags) as app, Client(app.server) as client:
        listed = await call(client, "ls", path="/home")
        assert [one["path"] for one in listed["entries"]] == ["/home/conf", "/home/notes.md"]
        for tool, args in (
            ("read_file", {"path": "/home/state/journal.sqlite3"}),
            ("read_file", {"path": "/home/journal.key"}),
            ("ls", {"path": "/home/state"}),
        ):
            assert "keys and its state" in await refused(client, tool, **args), (tool, args)
        found = await call(client, "glob", pattern="**/*")
        assert "notes.md" in str(found)
        assert "journal" not in str(found["results"])
    about.write_text('[files]\n"/home" = { root = "../state", read_only = true }\n')
    with pytest.raises(AgentBuildError, match="of the route /home is in the state directory"):
        built_agent(load_settings({**flags, "state_dir": str(tmp_path / "state")}, {}))


async def test_the_secret_of_webhooks_is_not_there_for_agents(root: Path) -> None:
    secret = root / "webhooks.secret"
    secret.touch(mode=0o600)
    secret.write_text(new_secret())
    flags = {"root": str(root), "webhook_secret_file": str(secret)}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        for tool, args in (
            ("read_file", {"path": "/webhooks.secret"}),
            ("grep", {"pattern": "whsec", "path": "/webhooks.secret"}),
            ("write_file", {"path": "/webhooks.secret", "content": ""}),
        ):
            assert "keys and its state" in await refused(client, tool, **args), (tool, args)
        assert "whsec" not in str((await call(client, "grep", pattern="whsec|plan"))["results"])
    commands = load_settings({**flags, "execute": "bubblewrap"}, {})
    with pytest.raises(AgentBuildError, match="commands could read secrets: the webhooks' secret"):
        require_outside(commands)


async def test_a_configuration_that_the_next_server_would_read_cannot_be_planted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "deep_agent_mcp.server.settings.protected_paths.default_config_file",
        lambda: root / "new" / "config.toml",
    )
    config = root / "settings.toml"
    config.write_text("port = 1\n")
    for named, path in ((None, "/new/config.toml"), (config, "/settings.toml")):
        variables = {} if named is None else {"DEEP_AGENT_CONFIG": str(named)}
        given = {"root": str(root), "state_dir": str(root.parent / "state")}
        agent = built_agent(load_settings(given, variables))
        tool = agent.tools["write_file"]
        policy = agent.definition.pipeline.policy
        verdict = policy.judge("write_file", {"path": path}, tool, agent=["main"])
        assert verdict.action == "deny"
        assert policy.judge("write_file", {"path": "/new/a"}, tool).action == "allow"


@posix
async def test_links_on_the_way_to_a_file_are_kept_as_well(root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "rules.toml").write_text(DENY)
    (root / "way").symlink_to("real")
    (root.parent / "rules.toml").symlink_to(root / "way" / "rules.toml")
    flags: dict[str, Any] = {"root": str(root), "policy": (str(root.parent / "rules.toml"),)}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        for path in ("/real/rules.toml", "/way/rules.toml", "/way"):
            assert "the server's own rules" in await written(client, path), path


@posix
def test_places_are_those_of_each_link_and_of_the_file(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").touch()
    (root / "out").symlink_to(outside)
    (root / "b").symlink_to("a/../a")
    (root / "loop").symlink_to("loop")
    (tmp_path / "again").symlink_to(root)

    def places(*names: str) -> list[str]:
        return [*places_in(root, tmp_path.joinpath(*names))]

    assert places("root", "a", "none") == ["/a/none"]
    assert places("root", "b", "file") == ["/b", "/a/file"]
    assert places("root", "out", "file") == ["/out"]
    assert places("again", "a", "file.") == ["/a/file."]
    assert places("outside", "file") == []
    assert places("root", "loop") == ["/loop"]
    assert places("root") == ["/"]
    assert places("root2", "a") == []


async def test_instructions_are_the_agents_to_edit(root: Path) -> None:
    for name in ("skills", "agents"):
        (root / name).mkdir()
    flags: dict[str, Any] = {
        "root": str(root),
        "skills": (str(root / "skills"),),
        "agents": str(root / "agents"),
        "memory": (str(root / "AGENTS.md"),),
    }
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        for path in ("/skills/new/SKILL.md", "/agents/reader.md", "/AGENTS.md"):
            await call(client, "write_file", path=path, content=READER.format(""))


async def test_profiles_are_not(root: Path) -> None:
    (root / "[profiles]").mkdir()
    flags: dict[str, Any] = {"root": str(root), "profiles": (str(root / "[profiles]"),)}
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        await written(client, "/[profiles]/new.toml")
        await call(client, "write_file", path="/p/new.toml", content="fine")


@pytest.mark.parametrize("where", [".", "servers"])
def test_a_root_in_the_state_directory_stops_the_start(tmp_path: Path, where: str) -> None:
    (tmp_path / "servers").mkdir()
    given = {"root": str(tmp_path / where), "state_dir": str(tmp_path)}
    with pytest.raises(AgentBuildError, match="Name another directory with --root"):
        built_agent(load_settings(given, {}))


def turns(*calls: tuple[str, Mapping[str, object]]) -> list[dict[str, Any]]:
    made = [{"tool_calls": [{"name": name, "args": dict(args)}]} for name, args in calls]
    return [*made, {"text": "Done."}]


def flags_of(root: Path, script: Mapping[str, Any], rules: str, permissions: str) -> dict[str, Any]:
    """Return flags of a server with a subagent `reader`, and with rules outside of the root."""
    place = root.parent
    (root / "agents").mkdir()
    (root / "agents" / "reader.md").write_text(READER.format(permissions))
    (place / "rules.toml").write_text(rules)
    (place / "script.yaml").write_text(
        yaml.safe_dump({"runs": [{"match": "go", "agents": script}]})
    )
    return {
        "root": str(root),
        "agents": str(root / "agents"),
        "policy": (str(place / "rules.toml"),),
        "model": f"scripted:{place / 'script.yaml'}",
    }


TASK = ("task", {"description": "go", "subagent_type": "reader"})
LOOK: tuple[str, dict[str, Any]] = ("read_file", {"path": "/agents/reader.md"})
OPEN: tuple[str, dict[str, Any]] = (
    "write_file",
    {"path": "/agents/reader.md", "content": READER.format("")},
)


async def test_a_subagent_cannot_lift_its_own_bounds(root: Path) -> None:
    bounds = "permissions:\n  - {action: deny, tool: write_file, path: /src/**}\n"
    script = {
        "main": turns(TASK, TASK),
        "reader": turns(
            LOOK,
            OPEN,
            ("edit_file", {"path": "/agents/reader.md", "old_string": "deny", "new_string": "ask"}),
            ("write_file", {"path": "/src/a", "content": "x"}),
        ),
    }
    flags = flags_of(root, script, "", bounds)
    before = (root / "agents" / "reader.md").read_text()
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        done = await call(client, "task", goal="go")
        assert done["status"] == "done", done
    assert (root / "agents" / "reader.md").read_text() == before
    assert not (root / "src").exists()


async def test_what_an_agent_writes_about_a_subagent_widens_nothing(root: Path) -> None:
    script = {
        "main": turns(TASK),
        "reader": turns(
            ("write_file", {"path": "/kept/a", "content": "x"}),
            ("write_file", {"path": "/free/a", "content": "x"}),
            ("read_file", {"path": "/plan.md"}),
            ("edit_file", {"path": "/plan.md", "old_string": "a", "new_string": "b"}),
        ),
    }
    ask = '[[rule]]\naction = "ask"\ntool = "edit_file"\n'
    flags = flags_of(root, script, DENY + ask, "tools: read_file\n")
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        read = await client.call_tool("read_file", LOOK[1])
        thread = text_of(read).split()[-1]
        await call(client, "write_file", **OPEN[1], thread_id=thread)
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        asked = await call(client, "task", goal="go")
        # Its own bounds are gone, which its caller is not held to either; the operator's hold.
        assert asked["status"] == "needs_approval", asked
        assert (root / "free" / "a").exists()
        assert not (root / "kept").exists()
        assert (root / "plan.md").read_text() == "a plan"


async def test_rules_for_agents_of_a_name_cannot_be_had_by_taking_that_name(root: Path) -> None:
    rules = '[[rule]]\naction = "allow"\nagent = "main/reader"\n'
    rules += '[[rule]]\naction = "deny"\ntool = "write_file"\npath = "/kept/**"\n'
    script = {
        "main": turns(LOOK, OPEN, TASK),
        "reader": turns(("write_file", {"path": "/kept/a", "content": "x"})),
    }
    flags = flags_of(root, script, "", "tools: read_file\n")
    async with served(root.parent, **flags) as app, Client(app.server) as client:
        other = READER.format("").replace("reader", "other")
        await call(client, "write_file", path="/agents/other.md", content=other)
        (root.parent / "rules.toml").write_text(rules)
        app.policy.reload()
        text = await written(client, "/agents/other.md")
        assert "rules for agents by name" in text
        assert (await call(client, "task", goal="go"))["status"] == "done"
    assert (root / "agents" / "reader.md").read_text() == READER.format("tools: read_file\n")
    assert not (root / "kept").exists()


def test_nothing_in_the_root_costs_nothing(root: Path, tmp_path: Path) -> None:
    given = {"root": str(root), "state_dir": str(tmp_path / "state"), "protect": "off"}
    agent = built_agent(load_settings(given, {}))
    assert not agent.definition.pipeline.policy.reads_paths
