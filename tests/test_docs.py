"""What README.md and docs/ show is there: commands, options, links, files to copy."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from deep_agent_mcp import RunOptions
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.models._script_file import (
    Expect,
    Script,
    ScriptedCall,
    ScriptedFailure,
    ScriptedUsage,
    Turn,
)
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from deep_agent_mcp.harness.profiles import ProfileRegistry
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.subagents.registry import SubAgentRegistry
from deep_agent_mcp.server.cli.install import INSTALLABLE
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.install.clients import CLIENTS
from deep_agent_mcp.server.runs.accounts import VALUE_CHARS
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.settings.toolsets import TOOLSETS
from release.site import GENERATED, pages_in
from tests.doc_pages import PAGES, ROOT

pytestmark = pytest.mark.anyio

GUIDES = [*PAGES, *sorted((ROOT / "examples").glob("*/README.md")), ROOT / "examples/README.md"]
"""All pages that show commands and have links."""
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"^    (?:[A-Z_]+=\S+ |.*&& |\(umask 077; )?(deep-agent-mcp .*)$", re.MULTILINE
)
INLINE = re.compile(r"`(deep-agent-mcp [^`]+)`")
OTHERS = re.compile(
    r"^    (?:[A-Z_]+=\S+ )?(?:docker|kubectl|systemctl|claude) .*$|`(?:docker|kubectl) [^`]+`",
    re.MULTILINE,
)
"""Commands of other programs, which have options of their own."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return [code for kind, code in FENCED.findall(text_of(name)) if kind == language]


def table(name: str, title: str) -> list[list[str]]:
    """Return the cells of the first table of a section, without its head."""
    section = text_of(name).partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", section, re.MULTILINE)
    return [row.split(" | ") for row in rows[1:]]


def commands() -> Iterator[tuple[str, str]]:
    for page in GUIDES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in [*COMMAND.findall(text), *INLINE.findall(text)]:
            yield name_of(page), " ".join(line.replace("\u2026", "").split())


def options(command: click.Command) -> set[str]:
    return {name for one in command.params for name in one.opts} | {"--help"}


def every_option(command: click.Command) -> set[str]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return options(command).union(*map(every_option, below))


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_a_command_that_is_shown_exists_with_its_options(page: str, line: str) -> None:
    words = iter(shlex.split(re.split(r"[#>|;]| && ", line)[0])[1:])
    command: click.Command = cli
    for word in words:
        if word == "--":  # what follows are options of `serve`
            command = cli.commands["serve"]
        elif word.startswith("--"):
            assert word.partition("=")[0] in options(command)
        elif isinstance(command, click.Group):
            previous = command
            command = command.commands.get(word, command)
            assert command is not previous or options(previous) > {"--help"}, f"no command {word}"


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_every_option_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    assert set(OPTION.findall(OTHERS.sub("", text))) <= every_option(cli)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {
                re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in titles
            }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_merge_left_its_marks(page: Path) -> None:
    assert not re.search(r"^(<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load(text_of("mkdocs.yml"))["nav"]
    pages = [one.relative_to(ROOT / "docs").as_posix() for one in PAGES[1:]]
    assert sorted(pages_in(nav)) == sorted([*pages, *GENERATED]), "change `nav` in mkdocs.yml"


def test_the_readme_shows_how_each_client_is_connected() -> None:
    shown = {
        name: shlex.split(command.strip("`"))
        for name, command in table("README.md", "Connect a client")
    }
    assert shown.keys() == {"Claude Code", "Claude Desktop", "VS Code", "Cursor"}
    for name, (_, install, client, *_) in shown.items():
        assert (install, CLIENTS[client].title) == ("install", name)
    (by_hand,) = blocks("README.md", "json")
    for client in ("claude-code", "claude-desktop", "cursor"):
        (group,) = CLIENTS[client].group
        entry = json.loads(by_hand)[group]["deep-agent"]
        assert entry["command"] in text_of("pyproject.toml")
        assert options(cli.commands["serve"]) >= {one for one in entry["args"] if one[:2] == "--"}
    assert CLIENTS["vscode"].group == ("servers",)


def test_the_readme_lists_the_tools() -> None:
    listed = re.findall(r"`(\w+)`", " ".join(row[0] for row in table("README.md", "Tools")))
    assert sorted(listed) == sorted({name for names in TOOLSETS.values() for name in names})


def test_the_commands_for_threads_are_listed() -> None:
    listed = [row[0].strip("`").split()[0] for row in table("docs/threads.md", "Commands")]
    threads = cli.commands["threads"]
    assert isinstance(threads, click.Group)
    assert sorted(listed) == sorted(threads.commands)


def test_the_commands_for_runs_are_listed() -> None:
    listed = [row[0].strip("`").split()[0] for row in table("docs/threads.md", "Runs")]
    runs = cli.commands["runs"]
    assert isinstance(runs, click.Group)
    assert sorted(listed) == sorted(runs.commands)


def test_the_options_of_run_that_chat_lacks_are_listed() -> None:
    (listed,) = re.findall(r"same options as `run`, except ([^.]*)\.", text_of("docs/terminal.md"))
    lacking = options(cli.commands["run"]) - options(cli.commands["chat"])
    assert {*OPTION.findall(listed)} == {one for one in lacking if one.startswith("--")}


def test_the_benchmarks_are_listed() -> None:
    names = " ".join(row[0] for row in table("docs/benchmarks.md", "Names"))
    known = re.findall(r'command\(\s*"(\w+)"', text_of("benchmarks/__main__.py"))
    assert sorted(re.findall(r"`(\w+)`", names)) == sorted(known)


def test_the_examples_are_listed() -> None:
    examples = {one.name for one in (ROOT / "examples").glob("*.py")}
    listed = re.findall(r"^\| `(\w+\.py)` \|", text_of("examples/README.md"), re.MULTILINE)
    assert set(listed) == examples
    folders = {one.parent.name for one in (ROOT / "examples").glob("*/README.md")}
    linked = re.findall(r"\[`[\w-]+/`\]\(([\w-]+)/README.md\)", text_of("examples/README.md"))
    assert set(linked) == folders


def test_the_clients_of_install_are_listed() -> None:
    listed = [row[0].strip("`") for row in table("docs/clients.md", "Install")]
    assert sorted(listed) == sorted(INSTALLABLE)
    told = cli.commands["install"].help or ""
    assert [name for name in INSTALLABLE if name not in told] == []


def test_the_settings_for_waiting_are_settings(tmp_path: Path) -> None:
    (example,) = blocks("docs/clients.md", "toml")
    file = tmp_path / "config.toml"
    file.write_text(example, encoding="utf-8")
    budgets = {"claude-code": 60, "my-agent": 300}
    assert load_settings({}, {}, config=file).wait_budgets == budgets
    (variable,) = re.findall(r"`DEEP_AGENT_WAIT_BUDGETS=(.*?)`", text_of("docs/clients.md"))
    assert load_settings({}, {"DEEP_AGENT_WAIT_BUDGETS": variable}).wait_budgets == budgets


def test_the_profile_for_the_clients_model_is_one(tmp_path: Path) -> None:
    (profile,) = blocks("docs/sampling.md", "toml")
    (tmp_path / "sampling.toml").write_text(profile, encoding="utf-8")
    given = ProfileRegistry([tmp_path]).for_model("sampling").init_kwargs
    assert given["context_window"] == 32_000


async def test_the_script_of_the_scripted_model_runs() -> None:
    script, _ = blocks("docs/scripted-model.md", "yaml")
    agent = create_deep_agent(ScriptedModel(yaml.safe_load(script)))
    result = await agent.ainvoke("Please say hello.")
    assert (result.run.answer, result.run.status) == ("Done.", "done")
    assert result.state["files"]["/hello.txt"].content == "hello"


async def test_the_fields_of_events_about_models_and_tools_are_listed() -> None:
    page = text_of("docs/reference/events.md")
    rows = re.findall(r"^\| `((?:model|tool)_(?:start|end))` \| .*? \| (.*) \|$", page, re.M)
    listed = {event: {*re.findall(r"`(\w+)`", others)} for event, others in rows}
    write = {"name": "write_file", "args": {"path": "/a.txt", "content": "a"}}
    turns = [{"tool_calls": [write]}, {"text": "Done.", "usage": {"input_tokens": 1}}]
    agent = create_deep_agent(ScriptedModel(turns))
    run = (await agent.ainvoke("Write.", options=RunOptions(log_events=True))).run
    found: dict[str, set[str]] = {}
    for one in await agent.events(run.id):
        if one.mode == "tasks":
            fields = {name for name, value in one.data.items() if value != ""}
            found.setdefault(str(one.data["event"]), set()).update(fields - {"event"})
    assert listed == found
    assert f"more than {VALUE_CHARS} characters" in page


def test_every_key_of_a_script_is_listed() -> None:
    page = text_of("docs/scripted-model.md").partition("## Keys")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", page, re.MULTILINE)
    listed = [key for names, _ in rows for key in re.findall(r"`(\w+)`", names)]
    known = [name for part in (Script, Turn, Expect) for name in part.model_fields]
    assert sorted(listed) == sorted(known)
    meanings = dict(rows)
    parts = {"`tool_calls`": ScriptedCall, "`usage`": ScriptedUsage, "`error`": ScriptedFailure}
    for key, part in parts.items():
        assert {*re.findall(r"`(\w+)`", meanings[key])} == {*part.model_fields}


def test_the_skill_and_the_subagent_are_valid(tmp_path: Path) -> None:
    skill, agent = blocks("docs/skills-and-agents.md", "markdown")
    (tmp_path / "release-notes").mkdir()
    (tmp_path / "release-notes" / "SKILL.md").write_text(skill, encoding="utf-8")
    skills = SkillRegistry([tmp_path])
    assert not skills.errors
    assert "merged changes" in skills.get("release-notes").description
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reviewer.md").write_text(agent, encoding="utf-8")
    agents = SubAgentRegistry(tmp_path / "agents")
    assert not agents.errors
    assert "reviewer" in agents.subagents


def test_the_bundled_skills_are_listed() -> None:
    listed = text_of("docs/skills-and-agents.md").partition("skills ship with it:")[2]
    named = re.findall(r"`([\w-]+)`", listed.split("\n\n")[1])
    assert sorted(named) == sorted(one.name for one in (ROOT / "skills").iterdir())


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(text_of("README.md").splitlines()) < 150
