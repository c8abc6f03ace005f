"""`deep-agent-mcp install …`, with a home of its own."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deep_agent_mcp.server.cli.install import INSTALLABLE
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.install.clients import CLIENTS, PLACES
from deep_agent_mcp.server.install.jsonc import parse
from deep_agent_mcp.server.install.machine import Machine, NotInstalled, own_command
from deep_agent_mcp.server.settings.sources import load_settings

KEY = "sk-ant-secret-of-the-test"

# As Claude Code keeps it: strict JSON with much else in it.
CLAUDE_CODE = """\
{
  "numStartups": 34,
  "projects": {
    "/home/me/app": {
      "mcpServers": {}
    }
  },
  "mcpServers": {
    "github": {
      "type": "http",
      "url": "https://api.example.com/mcp"
    }
  },
  "userID": "…"
}
"""
CLAUDE_DESKTOP = """\
{
  "globalShortcut": "",
  "mcpServers": {
    "files": { "command": "npx", "args": ["-y", "files", "/Users/me"] }
  }
}"""
CURSOR = '{"mcpServers":{"a":{"url":"https://a.example.com"}}}'
VSCODE = """\
{
\t// who we are
\t"inputs": [
\t\t{ "id": "pat", "type": "promptString", "description": "token", "password": true },
\t],
\t"servers": {
\t\t"github": { "type": "http", "url": "https://a.example.com", "headers": {} }, // theirs
\t},
}
"""
GEMINI = """\
{
  // dark is better
  "theme": "Dracula",
  "mcpServers": {
    "a": { "httpUrl": "https://a.example.com", "timeout": 5000 }
  },
  "selectedAuthType": "gemini-api-key"
}
"""
OPENCODE = """\
{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "a": { "type": "remote", "url": "https://a.example.com", "enabled": true }, /* theirs */
  },
}
"""
OPENCODE_2 = """\
{
  "mcp": {
    "servers": {
      "a": { "type": "local", "command": ["a"] }
    }
  }
}
"""
CODEX = """\
model = "gpt-5" # the good one

[mcp_servers.a]
command = "a"
"""

FILES = {
    "claude-desktop": (".config/Claude/claude_desktop_config.json", CLAUDE_DESKTOP),
    "claude-code": (".claude.json", CLAUDE_CODE),
    "cursor": (".cursor/mcp.json", CURSOR),
    "vscode": (".config/Code/User/mcp.json", VSCODE),
    "codex": (".codex/config.toml", CODEX),
    "gemini": (".gemini/settings.json", GEMINI),
    "opencode": (".config/opencode/opencode.json", OPENCODE),
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="places of files on Linux")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own; no variable leads to the real one."""
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "ANTHROPIC_API_KEY", "UV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "project")
    return home


def run(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["install", *args], prog_name="deep-agent-mcp")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def seeded(home: Path, client: str) -> Path:
    """Write a file as people have it, for its owner only."""
    place, text = FILES[client]
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(0o600)
    return path


def held(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else parse(text)


def entry_in(path: Path, client: str, name: str = "deep-agent") -> Any:
    value = held(path)
    for key in CLIENTS[client].group:
        value = value[key]
    return value[name]


def words_in(path: Path, client: str) -> list[str]:
    """Return the command of our entry, from `serve` on."""
    entry = entry_in(path, client)
    words = entry["args"] if "args" in entry else entry["command"]
    return words[words.index("serve") :]


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.*.bak"))


def test_the_command_line_knows_every_client() -> None:
    assert INSTALLABLE == tuple(CLIENTS) == tuple(PLACES)


@pytest.mark.parametrize("client", INSTALLABLE)
def test_an_entry_joins_those_of_others(client: str, home: Path) -> None:
    path = seeded(home, client)
    before = path.read_bytes()
    code, output = run(client, "--", "--root", str(home))
    assert code == 0, output
    group = CLIENTS[client].group[0]
    old, new = held_text(before, path), held(path)
    entry = new[group].pop("deep-agent")
    if client == "vscode":
        assert new["inputs"].pop()["password"] is True
    assert new == old
    command = entry["command"]
    words = command if isinstance(command, list) else [command, *entry["args"]]
    assert (words[words.index("serve")], *words[-2:]) == ("serve", "--root", str(home))
    assert Path(words[0]).is_absolute() and os.access(words[0], os.X_OK)
    (backup,) = backups(path)
    assert backup.read_bytes() == before
    assert str(backup) in output and str(path) in output


def held_text(data: bytes, path: Path) -> Any:
    return tomllib.loads(data.decode()) if path.suffix == ".toml" else parse(data.decode())


@pytest.mark.parametrize("client", INSTALLABLE)
def test_a_second_installation_changes_nothing(client: str, home: Path) -> None:
    path = seeded(home, client)
    run(client, "--", "--root", str(home))
    before, status = path.read_bytes(), path.stat()
    code, output = run(client, "--", "--root", str(home))
    assert code == 0
    assert "Nothing was changed" in output
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert len(backups(path)) == 1


@pytest.mark.parametrize("client", INSTALLABLE)
def test_each_client_is_offered_the_tools_that_suit_it(client: str, home: Path) -> None:
    path = seeded(home, client)
    code, output = run(client)
    assert code == 0, output
    chosen = ["--toolsets", "delegation,history,skills"]
    if client == "claude-desktop":  # which has no tools of its own
        assert words_in(path, client)[-1] == "serve" and "--toolsets" not in output
    else:
        assert words_in(path, client)[-2:] == chosen
        assert "only task, wait, reply, cancel, threads, rewind, skill. To offer all" in output
        load_settings({"toolsets": chosen[1:]}, {})


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (("--toolsets", "all"), ["--toolsets=all"]),
        (("--toolsets", "todos", "--toolsets", "files"), ["--toolsets=todos", "--toolsets=files"]),
        (("--", "--toolsets", "files,todos"), ["--toolsets", "files,todos"]),
        (("--", "--exclude-tools", "rewind"), ["--exclude-tools", "rewind"]),
        (("--", "--read-only"), ["--read-only"]),
    ],
)
def test_who_chooses_tools_gets_those(
    options: tuple[str, ...], written: list[str], home: Path
) -> None:
    code, output = run("codex", *options)
    assert code == 0, output
    assert words_in(home / FILES["codex"][0], "codex")[1:] == written
    assert "all tools" not in output


def test_a_configuration_file_that_chooses_tools_is_not_overridden(home: Path) -> None:
    config = home / "c.toml"
    config.write_text('toolsets = ["files"]\n')
    assert run("codex", "--", "--config", str(config))[0] == 0
    assert words_in(home / FILES["codex"][0], "codex")[1:] == ["--config", str(config)]


def test_an_entry_keeps_its_tools_when_it_is_installed_again(home: Path) -> None:
    path = seeded(home, "opencode")
    run("opencode", "--", "--toolsets=files", "--toolsets", "commands", "--execute", "host")
    code, output = run("opencode", "--", "--execute", "host", "--root", ".")
    assert code == 0 and "keeps its tools (--toolsets files,commands)" in output
    assert words_in(path, "opencode")[-5:-3] == ["files,commands", "--execute"]
    before = path.read_bytes()
    code, output = run("opencode")  # these tools need --execute
    assert code == 2 and "needs --execute" in output and "choose others with" in output
    assert path.read_bytes() == before
    assert run("opencode", "--toolsets", "all")[0] == 0
    assert run("opencode")[1].endswith("choose others with --toolsets.\n")
    assert words_in(path, "opencode")[-1] == "all"


@pytest.mark.parametrize("client", INSTALLABLE)
def test_removing_leaves_the_file_as_it_was(client: str, home: Path) -> None:
    path = seeded(home, client)
    run(client)
    code, output = run(client, "--remove")
    assert code == 0, output
    assert f"deep-agent was removed from {CLIENTS[client].title}: {path}" in output
    assert path.read_bytes().rstrip() == FILES[client][1].encode().rstrip()
    code, output = run(client, "--remove")
    assert code == 0
    assert "Nothing was changed" in output


@pytest.mark.parametrize("client", INSTALLABLE)
def test_without_a_file_one_is_made_for_its_owner_only(client: str, home: Path) -> None:
    code, output = run(client)
    assert code == 0, output
    path = home / FILES[client][0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert entry_in(path, client)
    assert backups(path) == []


@pytest.mark.parametrize("client", INSTALLABLE)
def test_printing_changes_nothing_and_shows_file_and_entry(client: str, home: Path) -> None:
    path = seeded(home, client)
    code, output = run(client, "--print")
    assert code == 0
    assert str(path) in output
    assert "deep-agent" in output
    assert path.read_bytes() == FILES[client][1].encode()
    assert backups(path) == []


@pytest.mark.parametrize(
    ("client", "where", "reference"),
    [
        ("claude-code", "env", "${ANTHROPIC_API_KEY:-}"),
        ("cursor", "env", "${env:ANTHROPIC_API_KEY}"),
        ("vscode", "env", "${input:deep-agent-anthropic-key}"),
        ("gemini", "env", "${ANTHROPIC_API_KEY:-}"),
        ("opencode", "environment", "{env:ANTHROPIC_API_KEY}"),
    ],
)
def test_the_key_is_named_and_not_written(
    client: str, where: str, reference: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    code, output = run(client)
    assert code == 0
    path = home / FILES[client][0]
    assert entry_in(path, client)[where] == {"ANTHROPIC_API_KEY": reference}
    assert KEY not in path.read_text() + output


def test_codex_is_told_which_variable_to_pass_on_and_how_long_calls_take(home: Path) -> None:
    run("codex")
    entry = entry_in(home / ".codex/config.toml", "codex")
    assert entry["env_vars"] == ["ANTHROPIC_API_KEY"]
    assert entry["tool_timeout_sec"] > 280
    assert "env" not in entry


def test_claude_desktop_passes_no_variables_on_and_that_is_said(home: Path) -> None:
    code, output = run("claude-desktop")
    assert code == 0
    assert "env" not in entry_in(home / FILES["claude-desktop"][0], "claude-desktop")
    assert "--with-key" in output


@pytest.mark.parametrize("client", INSTALLABLE)
def test_with_key_writes_it_into_a_private_file_and_shows_it_nowhere(
    client: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    path = seeded(home, client)
    assert KEY not in run(client, "--with-key", "--print")[1]
    code, output = run(client, "--with-key")
    assert code == 0, output
    assert KEY not in output
    entry = entry_in(path, client)
    assert entry.get("env", entry.get("environment")) == {"ANTHROPIC_API_KEY": KEY}
    run(client, "--with-key", "--name", "second")
    for file in (path, *backups(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_with_key_is_refused_where_others_could_read_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    path = seeded(home, "cursor")
    path.chmod(0o644)
    code, output = run("cursor", "--with-key")
    assert code == 2
    assert f"chmod 600 {path}" in output
    assert path.read_text() == CURSOR
    code, output = run("claude-code", "--scope", "project", "--with-key")
    assert code == 2
    assert "belongs to a project" in output
    assert not (home / "project/.mcp.json").exists()


def test_with_key_without_a_key_is_refused(home: Path) -> None:
    code, output = run("cursor", "--with-key")
    assert code == 2
    assert "ANTHROPIC_API_KEY is not set" in output
    assert not (home / ".cursor").exists()


def test_a_scripted_model_needs_no_key(home: Path) -> None:
    run("vscode", "--", "--model", "scripted:/tmp/script.yaml")
    document = held(home / FILES["vscode"][0])
    assert "inputs" not in document
    assert "env" not in document["servers"]["deep-agent"]


def test_the_mode_stays_and_the_backup_is_for_its_owner_only(home: Path) -> None:
    path = seeded(home, "cursor")
    path.chmod(0o640)
    run("cursor")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(backups(path)[0].stat().st_mode) == 0o600


def test_a_link_stays_a_link_and_its_target_is_changed(home: Path) -> None:
    target = home / "dotfiles" / "cursor.json"
    target.parent.mkdir()
    target.write_text(CURSOR)
    link = home / ".cursor" / "mcp.json"
    link.parent.mkdir()
    link.symlink_to(target)
    code, _ = run("cursor")
    assert code == 0
    assert link.is_symlink()
    assert not target.is_symlink()
    assert entry_in(target, "cursor")
    assert backups(target) and not backups(link)


@pytest.mark.parametrize(
    ("client", "text", "words"),
    [
        ("claude-code", '{\n  "mcpServers": {\n    "a": 1\n    "b": 2\n', "line 4, column 5"),
        ("gemini", "<<<<<<< HEAD\n{}", "line 1, column 1"),
        ("cursor", '{"mcpServers": []}', "mcpServers is not an object"),
        ("codex", "[mcp_servers.a\n", "at line 1"),
        ("vscode", '{"inputs": {}}', "inputs is not an array"),
    ],
)
@pytest.mark.parametrize("remove", [False, True])
def test_a_file_that_is_not_valid_is_left_alone(
    client: str, text: str, words: str, remove: bool, home: Path
) -> None:
    path = seeded(home, client)
    path.write_text(text)
    code, output = run(client, *(["--remove"] if remove else []))
    if remove and "is not an" in words:  # nothing of ours can be there
        assert path.read_text() == text
        return
    assert code == 2
    assert words in output
    assert "Nothing was changed" in output
    assert path.read_text() == text
    assert backups(path) == []


def test_a_file_in_another_encoding_is_left_alone(home: Path) -> None:
    path = seeded(home, "cursor")
    path.write_bytes(CURSOR.encode("utf-16"))
    code, output = run("cursor")
    assert code == 2
    assert "not UTF-8" in output
    assert path.read_bytes() == CURSOR.encode("utf-16")


@pytest.mark.parametrize("text", ["", "\n", "\ufeff"])
def test_an_empty_file_is_like_none(text: str, home: Path) -> None:
    path = seeded(home, "cursor")
    path.write_text(text)
    assert run("cursor")[0] == 0
    assert json.loads(path.read_text(encoding="utf-8-sig"))["mcpServers"]["deep-agent"]


def test_somebody_elses_entry_of_that_name_is_not_touched(home: Path) -> None:
    path = seeded(home, "cursor")
    path.write_text('{"mcpServers": {"deep-agent": {"command": "other"}}}')
    for args in ((), ("--remove",)):
        code, output = run("cursor", *args)
        assert code == 2
        assert "--name" in output
        assert json.loads(path.read_text()) == {"mcpServers": {"deep-agent": {"command": "other"}}}
    assert run("cursor", "--name", "second")[0] == 0


def test_an_entry_keeps_what_people_added_to_it(home: Path) -> None:
    path = seeded(home, "gemini")
    run("gemini")
    text = path.read_text()
    at = text.index('"command"')
    path.write_text(text[:at] + '"trust": true, // mine\n      ' + text[at:])
    assert run("gemini", "--", "--root", str(home))[0] == 0
    entry = entry_in(path, "gemini")
    assert entry["trust"] is True
    assert entry["args"][-2:] == ["--root", str(home)]
    assert "// mine" in path.read_text()


def test_opencode_of_the_next_version_has_its_servers_elsewhere(home: Path) -> None:
    path = seeded(home, "opencode")
    path.write_text(OPENCODE_2)
    run("opencode")
    entry = held(path)["mcp"]["servers"]["deep-agent"]
    assert entry["type"] == "local"
    assert "enabled" not in entry  # there is no such key any more
    run("opencode", "--remove")
    assert path.read_text() == OPENCODE_2


def test_opencode_with_comments_in_the_name_is_found(home: Path) -> None:
    path = home / ".config/opencode/opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text(OPENCODE)
    run("opencode")
    assert entry_in(path, "opencode")
    assert not path.with_suffix(".json").exists()


def test_the_question_for_the_key_goes_with_the_last_entry_that_asks_it(home: Path) -> None:
    path = seeded(home, "vscode")
    run("vscode")
    run("vscode", "--name", "second")
    ids = [one["id"] for one in held(path)["inputs"]]
    assert ids == ["pat", "deep-agent-anthropic-key"]
    run("vscode", "--remove")
    assert len(held(path)["inputs"]) == 2
    run("vscode", "--name", "second", "--remove")
    assert path.read_text() == VSCODE


@pytest.mark.parametrize(
    ("client", "scope", "option", "written"),
    [
        ("claude-code", "project", ".", "."),
        ("claude-code", "project", "sub", "sub"),
        ("codex", "project", "./sub", "sub"),
        ("vscode", "project", ".", "${workspaceFolder}"),
        ("cursor", "project", "sub", "${workspaceFolder}/sub"),
        ("cursor", "user", ".", "{here}"),
        ("claude-code", "user", "sub", "{here}/sub"),
        ("claude-code", "project", "..", "{home}"),
        ("gemini", "project", "~", "{home}"),
        ("cursor", "user", "${workspaceFolder}", "${workspaceFolder}"),
    ],
)
@pytest.mark.parametrize("joined", [False, True])
def test_relative_paths_mean_the_same_wherever_the_client_starts_the_server(
    client: str, scope: str, option: str, written: str, joined: bool, home: Path
) -> None:
    here = home / "project"
    (here / "sub").mkdir()
    given = ["--root=" + option] if joined else ["--root", option]
    code, output = run(client, "--scope", scope, "--print", "--", *given)
    assert code == 0, output
    expected = written.replace("{here}", str(here)).replace("{home}", str(home))
    word = f"--root={expected}" if joined else expected
    assert json.dumps(word, ensure_ascii=False) in output


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("cursor", "--", "--roott", "."), "--root"),
        (("cursor", "--", "--root", "/no/such"), "not an existing directory"),
        (("cursor", "--", "--root"), "requires an argument"),
        (("cursor", "--", "--transport", "http"), "give the client its URL"),
        (("cursor", "--", "extra", "more"), "unexpected extra argument"),
        (("cursor", "--remove", "--", "--root", "."), "--remove takes no options"),
        (("cursor", "--name", "a b"), "cannot be used"),
        (("cursor", "--name", "x" * 33), "cannot be used"),
        (("gemini", "--name", "deep_agent"), "deep-agent"),
        (("claude-desktop", "--scope", "project"), "no list of servers for a project"),
        (("emacs",), "claude-desktop"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    args: tuple[str, ...], words: str, home: Path
) -> None:
    code, output = run(*args)
    assert code == 2
    assert words in output
    assert sorted(home.rglob("*")) == [home / "project"]


def test_a_path_that_is_no_text_is_refused(home: Path) -> None:
    odd = os.fsdecode(os.fsencode(home) + b"/\xff")
    os.mkdir(odd)
    code, output = run("cursor", "--", "--root", odd)
    assert code == 2
    assert "not valid Unicode" in output
    assert not (home / ".cursor").exists()


def test_a_directory_without_permission_is_said(home: Path) -> None:
    if os.geteuid() == 0:
        path = home / ".cursor"
        path.write_text("not a directory")
        code, output = run("cursor")
    else:
        home.chmod(0o500)
        code, output = run("cursor")
        home.chmod(0o700)
    assert code == 2
    assert "cannot be" in output


def test_a_change_by_the_client_at_that_moment_is_not_written_over(home: Path) -> None:
    from deep_agent_mcp.server.install.installer import Change, Placement, Request
    from deep_agent_mcp.server.install.machine import ConfigFileError

    path = seeded(home, "claude-code")
    change = Change.install(Request(Placement.of("claude-code", "user", "x")), Machine.here())
    newer = CLAUDE_CODE.replace("34", "35")
    path.write_text(newer)
    with pytest.raises(ConfigFileError, match="changed by another program"):
        change.carry_out()
    assert path.read_text() == newer
    assert sorted(home.rglob("*.bak")) == []


# --- where files are, and what is started ----------------------------------------------------


MAC = "Library/Application Support"


def machine(platform: str, home: Path, **environ: str) -> Machine:
    return Machine(platform, home, home / "project", environ)


@pytest.mark.parametrize(
    ("platform", "client", "path"),
    [
        (
            "darwin",
            "claude-desktop",
            "Library/Application Support/Claude/claude_desktop_config.json",
        ),
        ("darwin", "vscode", "Library/Application Support/Code/User/mcp.json"),
        ("darwin", "opencode", ".config/opencode/opencode.json"),
        ("win32", "claude-desktop", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("win32", "vscode", "AppData/Roaming/Code/User/mcp.json"),
        ("win32", "codex", ".codex/config.toml"),
        ("linux", "claude-desktop", ".config/Claude/claude_desktop_config.json"),
    ],
)
def test_files_are_where_each_platform_has_them(
    platform: str, client: str, path: str, home: Path
) -> None:
    assert PLACES[client]["user"](machine(platform, home)) == home / path


def test_claude_desktop_as_a_windows_package_reads_a_directory_of_its_own(home: Path) -> None:
    local = home / "AppData/Local"
    package = local / "Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming"
    package.mkdir(parents=True)
    found = PLACES["claude-desktop"]["user"](machine("win32", home, LOCALAPPDATA=str(local)))
    assert found == package / "Claude/claude_desktop_config.json"


def test_variables_of_the_clients_are_honoured(home: Path) -> None:
    here = machine("linux", home, CODEX_HOME="/c", CLAUDE_CONFIG_DIR="/d", XDG_CONFIG_HOME="/x")
    assert PLACES["codex"]["user"](here) == Path("/c/config.toml")
    assert PLACES["claude-code"]["user"](here) == Path("/d/.claude.json")
    assert PLACES["opencode"]["user"](here) == Path("/x/opencode/opencode.json")


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (None, ()),
        ({"url": "file:///src", "dir_info": {}}, ("--from", "file:///src")),
        (
            {"url": "https://e.com/r", "vcs_info": {"vcs": "git", "commit_id": "ab"}},
            ("--from", "git+https://e.com/r@ab"),
        ),
    ],
)
def test_run_by_uvx_the_entry_runs_uvx(
    origin: Any, words: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(metadata.PathDistribution, "read_text", lambda *_: text)
    uvx = home / "bin/uvx"
    uvx.parent.mkdir()
    uvx.touch()
    here = Machine(
        "linux",
        home,
        home,
        {"UV": str(home / "bin/uv")},
        ("deep-agent-mcp",),
        "/cache/uv/archive-v0/x/bin/python",
        Path("/cache/uv/archive-v0/x"),
    )
    assert own_command(here) == (str(uvx), *words, "deep-agent-mcp")


def test_the_script_that_was_called_is_what_clients_start(home: Path) -> None:
    script = home / "bin/deep-agent-mcp"
    script.parent.mkdir()
    script.touch(mode=0o755)
    here = Machine("linux", home, home, {}, (str(script), "install"), "/usr/bin/python3")
    assert own_command(here) == (str(script),)


def test_the_interpreter_is_told_to_import_nothing_from_where_a_client_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.install.machine.version", lambda: "1.0")
    python = str(tmp_path / "python")
    machine = Machine("linux", tmp_path, tmp_path, {}, ("-m",), python)
    assert own_command(machine) == (python, "-P", "-m", "deep_agent_mcp")


def test_a_checkout_that_is_not_installed_cannot_be_put_anywhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deep_agent_mcp.server.install.machine.version", lambda: "0+source")
    with pytest.raises(NotInstalled, match="pip install"):
        own_command(Machine("linux", home, home, {}, ("-m",), str(home / "python")))


def test_the_page_on_clients_names_every_file() -> None:
    page = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \|(.*)$", page, re.MULTILINE))
    assert tuple(rows) == INSTALLABLE
    for client, row in rows.items():
        for find in PLACES[client].values():
            assert find(machine("linux", Path("/h"))).name in row
        reference = CLIENTS[client].reference
        if reference is not None and "{" in reference and "input" not in reference:
            assert reference in page


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("claude", "Did you mean claude-desktop or claude-code?"),
        ("code", "Did you mean claude-code or vscode or codex"),
        ("vs-code", "Did you mean vscode"),
        ("emacs", "Clients: claude-desktop, claude-code,"),
    ],
)
def test_a_name_that_is_almost_right_gets_the_right_one(given: str, meant: str, home: Path) -> None:
    code, output = run(given)
    assert code == 2
    assert meant in output


@pytest.mark.parametrize("client", [one for one in INSTALLABLE if one != "claude-desktop"])
def test_an_entry_of_a_project_can_be_shared(client: str, home: Path) -> None:
    code, output = run(client, "--scope", "project", "--", "--root", ".")
    assert code == 0, output
    assert "the file can be shared with the project" in " ".join(output.split())
    (file,) = [one for one in Path.cwd().rglob("*") if one.is_file()]
    text = file.read_text()
    assert '"deep-agent-mcp"' in text
    assert str(home) not in text and sys.executable not in text


@pytest.mark.parametrize("client", INSTALLABLE)
def test_removing_leaves_no_empty_shells(client: str, home: Path) -> None:
    run(client)
    code, output = run(client, "--remove")
    assert code == 0, output
    assert "Nothing else was in the file, so it was deleted." in output
    assert not (home / FILES[client][0]).exists()


def test_removing_keeps_a_comment_where_servers_were(home: Path) -> None:
    path = seeded(home, "cursor")
    path.write_text('{\n  "mcpServers": {\n    // mine\n  }\n}\n')
    run("cursor")
    assert run("cursor", "--remove")[0] == 0
    assert "// mine" in path.read_text()
