"""A configuration file that is saved while the server runs: what counts at once, and what waits."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from deep_agent_mcp.server.agents.reloadable_agent import ReloadableModels
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.reload import ProfileFiles
from deep_agent_mcp.server.settings.reloadable_settings import ReloadableSettings
from deep_agent_mcp.server.settings.settings import Settings
from deep_agent_mcp.server.settings.sources import load_settings
from tests.doc_pages import DocPage
from tests.skills.folders import save_by_rename, write_skill

pytestmark = pytest.mark.anyio

POLICY = '[[rule]]\naction = "deny"\ntool = "write_file"\nreason = "no"\n'


@pytest.fixture(autouse=True)
def _level_of_the_log() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


class Config:
    """A configuration file, and what reads it as the command line does."""

    def __init__(self, folder: Path, text: str = "", **given: Any) -> None:
        self.path = folder / "config.toml"
        self.state = f'state_dir = "{folder / "state"}"\n'
        self.save(text)
        environ: dict[str, str] = given.pop("environ", {})
        self.read = partial(load_settings, given, environ, config=self.path)

    def save(self, text: str) -> None:
        save_by_rename(self.path, self.state + text)

    def live(self) -> ReloadableSettings:
        return ReloadableSettings(self.read(), self.read)

    @asynccontextmanager
    async def app(self) -> AsyncIterator[App]:
        async with create_app(self.read(), self.read) as app:
            yield app


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.02)


def changed(live: ReloadableSettings) -> list[Any]:
    """Return the list that what changes is added to."""
    found: list[Any] = []
    live.follow(found.append)
    return found


def test_what_can_change_changes_and_what_cannot_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(tmp_path, "wait_budget = 10\n")
    live = config.live()
    followed = changed(live)
    assert not live.reload()
    config.save('wait_budget = 20\nport = 9\nhost = "localhost"\n[limits]\ntokens = 5\n')
    assert live.reload()
    assert (live.current.wait_budget, live.current.limits.tokens) == (20, 5)
    assert (live.current.port, live.current.host) == (8000, "127.0.0.1")
    assert followed == [live.current]
    (line,) = [one.getMessage() for one in caplog.records]
    assert line == (f"{config.path}: host, port: takes effect when the server is started again")
    config.save('wait_budget = 30\nport = 9\nhost = "localhost"\n')
    assert live.reload()
    assert len(caplog.records) == 1


def test_flags_and_the_environment_win_over_the_file_when_it_is_saved(tmp_path: Path) -> None:
    environ = {"DEEP_AGENT_LIMITS_DEPTH": "2", "DEEP_AGENT_MODEL": "claude-a"}
    config = Config(tmp_path, max_runs="7", environ=environ)
    live = config.live()
    plain = 'max_runs = 9\nmax_sessions = 8\nmodel = "claude-b"\n'
    config.save(f"{plain}[limits]\ndepth = 9\ntokens = 9\n")
    assert live.reload()
    now = live.current
    assert (now.max_runs, now.max_sessions, now.model) == (7, 8, "claude-a")
    assert (now.limits.depth, now.limits.tokens) == (2, 9)


def test_a_setting_that_is_taken_out_of_the_file_is_unset_again(tmp_path: Path) -> None:
    config = Config(tmp_path, "wait_budget = 45\n")
    live = config.live()
    assert "wait_budget" in live.current.model_fields_set
    config.save("")
    live.reload()
    # Unset, it yields to what is known of the client, although the figure is the same.
    assert "wait_budget" not in live.current.model_fields_set


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("wait_budget = ", "not valid TOML"),
        ("wait_budget = -1", "wait_budget"),
        ("no_such = 1", "'no_such'"),
        ('model = "gpt:5"', "unknown model 'gpt:5'"),
        ('skills = ["nowhere"]', "not an existing directory"),
        ("\x00", "not valid TOML"),
    ],
)
def test_a_broken_file_keeps_the_last_good_settings(
    tmp_path: Path, text: str, problem: str
) -> None:
    config = Config(tmp_path, "wait_budget = 10\n")
    live = config.live()
    followed = changed(live)
    config.save(text)
    assert live.reload()
    assert not live.reload()
    assert live.current.wait_budget == 10
    (error,) = live.errors.values()
    assert problem in error
    assert error.endswith("The last good settings stay in force until this is fixed.")
    config.save("wait_budget = 10\n")
    assert live.reload()
    assert not live.errors
    assert not followed


def test_a_file_that_is_gone_or_no_file_lifts_nothing(tmp_path: Path) -> None:
    config = Config(tmp_path, 'approve = ["write_*"]\n')
    live = config.live()
    config.path.unlink()
    assert live.reload()
    assert live.current.approve == ("write_*",)
    assert "is gone" in live.errors[str(config.path)]
    config.path.mkdir()
    live.reload()
    assert live.current.approve == ("write_*",)
    config.path.rmdir()
    config.save("approve = []\n")
    assert live.reload()
    assert (live.current.approve, live.errors) == ((), {})


def test_a_file_that_an_editor_has_just_emptied_lifts_nothing(tmp_path: Path) -> None:
    config = Config(tmp_path, 'approve = ["write_*"]\n')
    live = config.live()
    with config.path.open("w") as file:
        assert live.reload()
        assert live.current.approve == ("write_*",)
        assert "is empty" in live.errors[str(config.path)]
        file.write("# nothing\n")
    assert live.reload()
    assert (live.current.approve, live.errors) == ((), {})


def test_a_file_that_is_empty_from_the_start_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    read = partial(load_settings, {}, {}, config=path)
    live = ReloadableSettings(read(), read)
    assert not live.reload()
    assert not live.errors


@pytest.mark.parametrize("saved", ["", None])
def test_what_is_half_saved_when_it_is_read_lifts_nothing(
    tmp_path: Path, saved: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    monkeypatch.setattr("deep_agent_mcp.server.settings.sources.default_config_file", lambda: path)
    path.write_text('approve = ["edit_*"]\n')

    def read() -> Settings:
        path.unlink() if saved is None else path.write_text(saved)
        return load_settings({}, {})

    live = ReloadableSettings(load_settings({}, {}), read)
    live.reload()
    assert live.current.approve == ("edit_*",)


def test_a_setting_that_cannot_hold_is_refused_whole(tmp_path: Path) -> None:
    from deep_agent_mcp.harness.errors import AgentBuildError

    config = Config(tmp_path)
    live = config.live()

    def refuse(_: object) -> None:
        raise AgentBuildError("the root is a key")

    live.follow(refuse)
    config.save("max_runs = 3\n")
    assert live.reload()
    assert live.current.max_runs == 32
    assert "the root is a key" in live.errors[str(config.path)]


@pytest.mark.parametrize(
    ("given", "waiting"),
    [
        ({"background_subagents": True}, ("skills", "approve")),
        ({"execute": "host"}, ("skills",)),
        ({}, ()),
    ],
)
def test_what_a_sandbox_or_background_task_was_made_with_waits(
    tmp_path: Path, given: dict[str, Any], waiting: tuple[str, ...]
) -> None:
    config = Config(tmp_path, **given)
    live = config.live()
    (tmp_path / "skills").mkdir()
    config.save('approve = ["ls"]\nskills = ["skills"]\n')
    live.reload()
    assert live.snapshot.waiting == waiting
    assert live.current.skills == (() if "skills" in waiting else (tmp_path / "skills",))


def test_an_agent_file_that_waits_has_the_name_of_its_setting(tmp_path: Path) -> None:
    agent = tmp_path / "deep-agent.toml"
    agent.write_text('[agent]\ninstructions = "Be brief."\n')
    live = Config(tmp_path, background_subagents=True, agent_file=str(agent)).live()
    save_by_rename(agent, '[agent]\ninstructions = "Be kind."\n')
    live.reload()
    assert live.waiting == ("agent_file",)


def test_the_page_lists_what_takes_effect_at_once_and_what_waits_for_background_tasks(
    tmp_path: Path,
) -> None:
    told = DocPage("hot-reload.md").text("The configuration file")
    (at_once,) = re.findall(r"^\| (`drain_seconds`.*?) \|", told, re.M)
    (waiting,) = re.findall(r"^- With `--background-subagents`(.*?)^$", told, re.M | re.S)
    usual = Config(tmp_path).live()._changeable()
    without_tasks = Config(tmp_path, background_subagents=True).live()._changeable()
    named = {*re.findall(r"`(\w+)`", at_once)}
    assert named == usual - {"definition", "store", "store_url_file"}
    named = {*re.findall(r"`(\w+)`", waiting)}
    assert named == usual - without_tasks - {"definition", "store_url_file"}


@pytest.mark.parametrize("in_python", [True, False])
def test_another_store_waits_for_an_agent_that_was_built_with_one(
    tmp_path: Path, in_python: bool
) -> None:
    config = Config(tmp_path, 'store = "memory:"\n')
    live = ReloadableSettings(config.read(), config.read, in_python=in_python)
    config.save(f'store = "sqlite://{tmp_path}/store.db"\n')
    assert live.reload()
    assert tuple(live.waiting) == (("store",) if in_python else ())
    store = live.current.store
    assert store is not None
    assert store.get_secret_value().partition(":")[0] == ("memory" if in_python else "sqlite")


async def test_an_agent_that_is_asked_for_in_the_middle_of_a_change_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(tmp_path)
    async with config.app() as app:
        first, outdate = app.agent(), app.agent.outdate

        def outdate_and_ask() -> None:
            outdate()
            app.agent()

        monkeypatch.setattr(app.agent, "outdate", outdate_and_ask)
        config.save('approve = ["ls"]\n')
        await anyio.to_thread.run_sync(app.settings.reload)
        assert app.agent() is not first
        asked = await app.runs.drive("ls", {"path": "/"}, None)
        assert asked.run.status == "needs_approval"


async def test_a_model_that_is_named_again_is_the_one_there_was(tmp_path: Path) -> None:
    config = Config(tmp_path)
    settings = [config.read().model_copy(update={"model": name}) for name in ("a:b", "c:d")]
    models = ReloadableModels(ProfileFiles(()))
    made = [models.of(settings[at]) for at in (0, 1, 0, 1)]
    assert made[0] is made[2]
    assert made[1] is made[3]
    assert made[0] is not made[1]


async def test_a_saved_file_reaches_the_running_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_skill(tmp_path / "more", "further")
    (tmp_path / "profiles").mkdir()
    rules = tmp_path / "rules.toml"
    rules.write_text(POLICY)
    config = Config(tmp_path, 'profiles = ["profiles"]\n')
    async with config.app() as app:
        first = app.agent()
        before = await app.runs.drive("write_file", {"path": "/a", "content": "b"}, None)
        assert before.result is not None and before.result.status == "success"
        config.save(
            'profiles = ["profiles"]\nskills = ["more"]\npolicy = ["rules.toml"]\n'
            'approve = ["ls"]\nlog_level = "error"\nmax_sessions = 3\n[limits]\ntool_calls = 1\n'
        )
        await until(lambda: app.agent() is not first)
        assert list(app.agent().tools) == list(first.tools)
        after = await app.runs.drive("write_file", {"path": "/a", "content": "b"}, None)
        assert after.result is not None and "rules.toml: no" in after.result.text
        asked = await app.runs.drive("ls", {"path": "/"}, None)
        assert asked.run.status == "needs_approval"
        listed = await app.runs.drive("skill", {"name": "further"}, None)
        assert listed.result is not None and listed.result.status == "success"
        assert app.announcements.sessions.most == 3
        assert logging.getLogger().level == logging.ERROR

        config.save("broken")
        await until(lambda: "broken_settings" in app.status())
        assert app.status()["broken_settings"] == ["config.toml"]
        await until(lambda: str(config.path) in caplog.text)

        second = app.agent()
        (tmp_path / "profiles" / "own.toml").write_text(
            'models = ["anthropic"]\nsystem_prompt_suffix = "Be brief."\n'
        )
        await until(lambda: app.agent() is not second)
        (tmp_path / "profiles" / "own.toml").write_text("models = 1\n")
        await until(lambda: "broken_profiles" in app.status())


async def test_clients_are_told_when_the_agents_they_may_use_are_others(tmp_path: Path) -> None:
    config = Config(tmp_path)
    async with config.app() as app:
        heard: list[str] = []
        app.announcements.bus.subscribe(lambda event: heard.append(type(event).__name__))
        config.save('[principal_agents]\nann = ["general-purpose"]\n')
        await until(lambda: "ToolsListChanged" in heard)
        heard.clear()
        config.save('wait_budget = 3\n[principal_agents]\nann = ["general-purpose"]\n')
        await until(lambda: app.services.settings.wait_budget == 3)
        assert "ToolsListChanged" not in heard
