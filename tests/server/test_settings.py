import codecs
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from deep_agent_mcp.server.settings import sources as module
from deep_agent_mcp.server.settings.settings import Settings, SettingsError
from deep_agent_mcp.server.settings.sources import load_settings


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
        (
            {},
            {"DEEP_AGENT_COMMANDS_PROCESSES": "1"},
            ["'commands.processes'", "DEEP_AGENT_COMMANDS_PROCESSES", "at least 8"],
        ),
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
        ("prot = 1", ["'prot'", "nearest: port.", "[commands], [limits]."]),
        ("limits = 3", ["'limits'", "nearest: [limits], a table."]),
        ("[commands]\ncpu = 1", ["'commands.cpu'", "nearest: commands.cpu_seconds"]),
        ("port = ", ["not valid TOML", "end of document"]),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, words: list[str]) -> None:
    file = write(tmp_path / "c.toml", text)
    message = refused({}, {}, config=file)
    for word in [str(file), *words]:
        assert word in message


def test_a_wrong_key_of_a_table_is_answered_with_the_keys_of_that_table(tmp_path: Path) -> None:
    message = refused({}, {}, config=write(tmp_path / "c.toml", "[limits]\ndepht = 1"))
    assert "limits.model_calls" in message
    assert "transport" not in message
    assert "commands.seconds" not in message


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


def test_settings_know_which_files_they_were_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "default_config_file", lambda: tmp_path / "default.toml")
    assert load_settings({}, {}).config_file is None
    default = write(tmp_path / "default.toml", "port = 11")
    named = write(tmp_path / "named.toml", "journal_key_file = 'journal.key'")
    file = key_file(tmp_path)
    assert load_settings({}, {}).config_file == default
    for settings in (
        load_settings({}, {}, config=named),
        load_settings({}, {"DEEP_AGENT_CONFIG": str(named)}),
    ):
        assert (settings.config_file, settings.journal_key_file) == (named, file)


def test_a_file_cannot_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", "config_file = 'other.toml'")
    assert "'config_file'" in refused({}, {}, config=file)
    said: list[str] = []
    load_settings({}, {"DEEP_AGENT_CONFIG_FILE": str(file)}, warn=said.append)
    assert "DEEP_AGENT_CONFIG_FILE" in said[0]


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


def test_a_usual_time_for_commands_above_the_longest_is_refused() -> None:
    message = refused({}, {"DEEP_AGENT_COMMANDS_SECONDS": "900"})
    assert "commands.seconds is 900" in message and "commands.max_seconds" in message
    environ = {"DEEP_AGENT_COMMANDS_SECONDS": "900", "DEEP_AGENT_COMMANDS_MAX_SECONDS": "1e3"}
    assert load_settings({}, environ).commands.max_seconds == 1_000


@pytest.fixture
def path_list() -> Callable[..., str]:
    import os

    return lambda *paths: os.pathsep.join(map(str, paths))


def test_an_unknown_variable_is_named_and_the_rest_goes_on() -> None:
    said: list[str] = []
    environ = {"DEEP_AGENT_PORTS": "1", "DEEP_AGENT_PORT": "5", "PATH": "/bin"}
    of_clients = {"DEEP_AGENT_TOKEN": "t"}
    settings = load_settings({}, environ | of_clients, warn=said.append)
    assert settings.port == 5
    assert len(said) == 1
    assert "DEEP_AGENT_PORTS" in said[0]
    assert "did you mean DEEP_AGENT_PORT" in said[0]


def test_another_address_needs_tokens_and_the_names_clients_will_use() -> None:
    flags: dict[str, object] = {"transport": "http", "host": "0.0.0.0"}
    message = refused({**flags, "allow_hosts": ("box.lan",)}, {})
    for word in ("'host'", "flag --host", "--auth token", "--auth none"):
        assert word in message
    assert "--allow-host" in refused({**flags, "auth": ("token",)}, {})
    flags["allow_hosts"] = ("Box.lan",)
    for auth in ("token", "None"):
        allowed = load_settings({**flags, "auth": (auth,)}, {})
        assert allowed.allow_hosts == ("box.lan",)
        assert allowed.needs_token == (auth == "token")
    for host in ("localhost", "::1", "127.0.0.2"):
        assert load_settings({"transport": "sse", "host": host}, {}).host == host


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"auth": ("none", "token")}, ["cannot be combined"]),
        ({"auth": ("oauth",)}, ["oauth_issuer", "public_url"]),
        ({"auth": ("password",)}, ["'auth'", "flag --auth"]),
        ({"auth": ("oauth",), "public_url": "box.lan", "oauth_issuer": "https://x"}, ["https://"]),
        ({"trusted_proxies": ("everybody",)}, ["'trusted_proxies'", "flag --trusted-proxy"]),
        ({"tls_cert": __file__}, ["tls_cert and tls_key"]),
        ({"tls_cert": "no-such.pem", "tls_key": __file__}, ["'tls_cert'", "existing file"]),
    ],
)
def test_half_an_authentication_is_refused(flags: dict[str, object], words: list[str]) -> None:
    message = refused({"transport": "http", **flags}, {})
    assert all(word in message for word in words), message


def test_settings_cannot_be_changed_later() -> None:
    settings = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


KEY = Keyring.generate()
posix = pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX")


def key_file(tmp_path: Path, content: str | bytes = KEY, mode: int = 0o600) -> Path:
    path = tmp_path / "journal.key"
    path.touch()
    path.chmod(mode)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def keys(settings: Settings) -> str:
    assert settings.journal_key is not None
    return settings.journal_key.get_secret_value()


def test_keys_come_from_the_environment_or_from_a_file_that_any_source_names(
    tmp_path: Path,
) -> None:
    file, config = key_file(tmp_path, f"{KEY}\n"), tmp_path / "c.toml"
    config.write_text("journal_key_file = 'journal.key'", encoding="utf-8")
    assert load_settings({}, {}).journal_key is None
    assert keys(load_settings({}, {"DEEP_AGENT_JOURNAL_KEY": KEY})) == KEY
    for settings in (
        load_settings({"journal_key_file": str(file)}, {}),
        load_settings({}, {"DEEP_AGENT_JOURNAL_KEY_FILE": str(file)}),
        load_settings({}, {}, config=config),
    ):
        assert keys(settings).strip() == KEY


@pytest.mark.parametrize(
    "content",
    [codecs.BOM_UTF8 + KEY.encode(), codecs.BOM_UTF16_LE + KEY.encode("utf-16-le")],
    ids=["utf-8", "utf-16"],
)
def test_a_key_file_may_be_one_that_a_windows_shell_wrote(tmp_path: Path, content: bytes) -> None:
    file = key_file(tmp_path, content)
    assert keys(load_settings({"journal_key_file": str(file)}, {})) == KEY


def test_a_wrong_key_is_refused_and_never_shown(tmp_path: Path) -> None:
    spoilt = KEY[:-3] + "!?"
    file = key_file(tmp_path, spoilt)
    for flags, environ, source in (
        ({}, {"DEEP_AGENT_JOURNAL_KEY": spoilt}, "environment DEEP_AGENT_JOURNAL_KEY"),
        ({"journal_key_file": str(file)}, {}, f"file {file}, named by flag --journal-key-file"),
    ):
        with pytest.raises(SettingsError) as caught:
            load_settings(flags, environ)
        message = str(caught.value)
        assert f"setting 'journal_key' = … (from {source}) is refused: key 1 of 1" in message
        assert "Accepted: keys that `deep-agent-mcp threads new-key` prints" in message
        assert KEY[:20] not in "".join(traceback.format_exception(caught.value))


@posix
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_key_file_that_others_have_access_to_is_refused(tmp_path: Path, mode: int) -> None:
    file = key_file(tmp_path, mode=mode)
    message = refused({"journal_key_file": str(file)}, {})
    for word in ("'journal_key_file'", "flag --journal-key-file", f"{mode:04o}", "chmod 600"):
        assert word in message
    assert KEY not in message


@posix
def test_a_key_file_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe"):
        message = refused({}, {"DEEP_AGENT_JOURNAL_KEY_FILE": str(path)})
        assert f"'journal_key_file' = {path}" in message and "not an existing file" in message


def test_two_sources_of_keys_are_refused(tmp_path: Path) -> None:
    message = refused(
        {"journal_key_file": str(key_file(tmp_path))}, {"DEEP_AGENT_JOURNAL_KEY": KEY}
    )
    for word in ("environment DEEP_AGENT_JOURNAL_KEY", "flag --journal-key-file", "one of them"):
        assert word in message
    assert KEY not in message


def test_a_key_in_the_configuration_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "c.toml", f"journal_key = '{KEY}'")
    message = refused({}, {}, config=file)
    assert str(file) in message and 'journal_key_file = "FILE"' in message
    assert KEY not in message


def test_settings_do_not_show_their_key() -> None:
    settings = load_settings({}, {"DEEP_AGENT_JOURNAL_KEY": KEY})
    for shown in (repr(settings), str(settings), repr(settings.model_dump())):
        assert KEY not in shown
    assert KEY not in settings.model_dump_json()
