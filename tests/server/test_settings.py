from collections.abc import Callable
from pathlib import Path

import pytest

from server import settings as module
from server.settings import Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def no_config_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refused(*args: object, **kwargs: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(*args, **kwargs)  # type: ignore[arg-type]
    return str(caught.value)


def test_defaults_need_no_source() -> None:
    settings = load_settings({}, {})
    assert (settings.transport, settings.host, settings.port) == ("stdio", "127.0.0.1", 8000)
    assert settings.root is None
    assert settings.model is None
    assert settings.wait_budget == 45
    assert settings.state_dir.is_absolute()


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", "port = 1\nwait_budget = 3\nlog_level = 'info'\n")
    environ = {"DEEP_AGENT_PORT": "2", "DEEP_AGENT_LOG_LEVEL": "DEBUG"}
    settings = load_settings({"port": "3", "host": None}, environ, config=file)
    assert (settings.port, settings.log_level, settings.wait_budget) == (3, "debug", 3)
    assert load_settings({}, environ, config=file).port == 2
    assert load_settings({}, {}, config=file).port == 1


def test_an_empty_variable_is_as_good_as_unset() -> None:
    assert load_settings({}, {"DEEP_AGENT_PORT": ""}).port == 8000


@pytest.mark.parametrize(
    ("flags", "environ", "words"),
    [
        (
            {"port": "abc"},
            {},
            ["'port'", "abc", "flag --port", "0 (any free port) to 65535"],
        ),
        ({}, {"DEEP_AGENT_PORT": "70000"}, ["'port'", "70000", "environment DEEP_AGENT_PORT"]),
        ({"transport": "tcp"}, {}, ["'transport'", "flag --transport", "'stdio', 'http' or 'sse'"]),
        ({"root": "/no/such/dir"}, {}, ["'root'", "flag --root", "existing directory"]),
        ({"skills": ("/no/such",)}, {}, ["'skills'", "flag --skills", "existing directories"]),
        ({"allow_hosts": ("http://x",)}, {}, ["'allow_hosts'", "flag --allow-host", "host names"]),
        ({}, {"DEEP_AGENT_LOG_LEVEL": "loud"}, ["'log_level'", "environment DEEP_AGENT_LOG_LEVEL"]),
        ({}, {"DEEP_AGENT_LIMITS_DEPTH": "-1"}, ["'limits.depth'", "DEEP_AGENT_LIMITS_DEPTH"]),
    ],
)
def test_a_wrong_value_names_setting_source_and_what_is_accepted(
    flags: dict[str, object], environ: dict[str, str], words: list[str]
) -> None:
    message = refused(flags, environ)
    assert "Accepted: " in message
    for word in words:
        assert word in message


def test_a_wrong_value_in_the_file_names_file_and_key(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", "port = 'x'\n[limits]\nmodel_calls = 0\n")
    message = refused({}, {}, config=file)
    assert f"file {file}, key port" in message
    assert f"file {file}, key limits.model_calls" in message
    assert len(message.splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ports = 1", ["'ports'", "key ports", "nearest: port"]),
        ("[limits]\ndepht = 1", ["'limits.depht'", "nearest: limits.depth"]),
        ("limits = 3", ["'limits'", "a table"]),
        ("port = ", ["not valid TOML", "end of document"]),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, words: list[str]) -> None:
    file = write(tmp_path / "c.toml", text)
    message = refused({}, {}, config=file)
    for word in [str(file), *words]:
        assert word in message


def test_a_file_that_is_missing_names_who_asked_for_it(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert "flag --config" in refused({}, {}, config=missing)
    assert "environment DEEP_AGENT_CONFIG" in refused({}, {"DEEP_AGENT_CONFIG": str(missing)})


def test_the_platforms_file_is_read_only_when_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "default_config_file", lambda: tmp_path / "default.toml")
    write(tmp_path / "default.toml", "port = 11")
    named = write(tmp_path / "named.toml", "log_level = 'info'")
    assert load_settings({}, {}).port == 11
    assert load_settings({}, {"DEEP_AGENT_CONFIG": str(named)}).port == 8000


def test_relative_paths_of_a_file_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "etc" / "skills").mkdir(parents=True)
    file = write(tmp_path / "etc" / "c.toml", "skills = ['skills']\nmemory = ['AGENTS.md']")
    settings = load_settings({}, {}, config=file)
    assert settings.skills == (tmp_path / "etc" / "skills",)
    assert settings.memory == (tmp_path / "etc" / "AGENTS.md",)


def test_other_relative_paths_are_relative_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    assert load_settings({"root": "work"}, {}).root == tmp_path / "work"


def test_lists_in_the_environment(tmp_path: Path, path_list: Callable[..., str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    environ = {
        "DEEP_AGENT_SKILLS": path_list(one, two),
        "DEEP_AGENT_APPROVE": "write_*, edit_file",
        "DEEP_AGENT_LIMITS_TOOL_CALLS": "7",
    }
    settings = load_settings({}, environ)
    assert settings.skills == (one, two)
    assert settings.approve == ("write_*", "edit_file")
    assert settings.limits.tool_calls == 7
    assert settings.limits.model_calls == 200


@pytest.fixture
def path_list() -> Callable[..., str]:
    import os

    return lambda *paths: os.pathsep.join(map(str, paths))


def test_an_unknown_variable_is_named_and_the_rest_goes_on() -> None:
    said: list[str] = []
    settings = load_settings(
        {}, {"DEEP_AGENT_PORTS": "1", "DEEP_AGENT_PORT": "5", "PATH": "/bin"}, warn=said.append
    )
    assert settings.port == 5
    assert len(said) == 1
    assert "DEEP_AGENT_PORTS" in said[0]
    assert "did you mean DEEP_AGENT_PORT" in said[0]


def test_another_address_needs_the_names_clients_will_use() -> None:
    message = refused({"transport": "http", "host": "0.0.0.0"}, {})
    for word in ("'host'", "flag --host", "no authentication yet", "--allow-host"):
        assert word in message
    allowed = load_settings(
        {"transport": "http", "host": "0.0.0.0", "allow_hosts": ("Box.lan",)}, {}
    )
    assert allowed.allow_hosts == ("box.lan",)
    for host in ("localhost", "::1", "127.0.0.2"):
        assert load_settings({"transport": "sse", "host": host}, {}).host == host


def test_settings_cannot_be_changed_later() -> None:
    settings = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]
