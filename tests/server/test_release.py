"""The bundle for desktop apps and the registry's entry: what their formats ask for, at work.

The rules are those of the manifest's specification (MCPB 0.4) and of `server.json` (2025-12-11).
With `MCPB_VALIDATE=1` the publisher's own tool, taken from npm, has a look too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deep_agent_mcp.server.doctor.findings import KNOWN_CLIENTS
from deep_agent_mcp.server.doctor.wire import Wire
from deep_agent_mcp.server.settings.sources import load_settings
from release.mcpb import USER_CONFIG, VARIABLES, build
from release.project import REPO, Project
from release.registry import mcpb_package, server_entry

VERSION = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def unpacked(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(bundle) as held:
        held.extractall(place)
    return place


@pytest.fixture(scope="module")
def manifest(unpacked: Path) -> dict[str, Any]:
    return json.loads((unpacked / "manifest.json").read_text(encoding="utf-8"))


# --- the bundle ------------------------------------------------------------------------------

# Member -> type.
MANIFEST: Mapping[str, type] = {
    "manifest_version": str,
    "name": str,
    "display_name": str,
    "version": str,
    "description": str,
    "author": dict,
    "server": dict,
    "tools": list,
    "prompts_generated": bool,
    "keywords": list,
    "privacy_policies": list,
    "compatibility": dict,
    "user_config": dict,
}
OPTION = {
    "type": ("string", "number", "boolean", "directory", "file"),
    "title": None,
    "description": None,
    "required": None,
    "default": None,
    "sensitive": None,
}


def test_the_manifest_keeps_the_rules(manifest: dict[str, Any]) -> None:
    assert manifest["manifest_version"] == "0.4"
    assert {key: type(value) for key, value in manifest.items()} == dict(MANIFEST)
    assert manifest["author"].keys() == {"name"}
    assert re.fullmatch(r"\d+\.\d+\.\d+([-+].+)?", manifest["version"])
    assert manifest["compatibility"].keys() == {"platforms", "runtimes"}
    assert {*manifest["compatibility"]["platforms"]} <= {"darwin", "win32", "linux"}
    assert all(url.startswith("https://") for url in manifest["privacy_policies"])


def test_the_version_is_that_of_the_project(manifest: dict[str, Any], bundle: Path) -> None:
    assert manifest["version"] == VERSION
    assert bundle.name == f"deep-agent-mcp-{VERSION}.mcpb"


def test_the_server_is_run_by_uv(manifest: dict[str, Any], unpacked: Path) -> None:
    server = manifest["server"]
    assert server.keys() == {"type", "entry_point", "mcp_config"}
    assert server["type"] == "uv"
    assert (unpacked / server["entry_point"]).is_file()
    assert (unpacked / "pyproject.toml").is_file()
    # What such a bundle must not bring.
    assert not (unpacked / "server/lib").exists()
    assert not (unpacked / "server/venv").exists()
    assert server["mcp_config"]["args"][:3] == ["run", "--directory", "${__dirname}"]


def test_what_users_are_asked_for_is_what_the_server_is_given(manifest: dict[str, Any]) -> None:
    options = manifest["user_config"]
    for option in options.values():
        assert option.keys() <= OPTION.keys()
        assert option["type"] in OPTION["type"]  # type: ignore[operator]
        # Where a setting is empty, apps replace its name only if it has a default.
        assert option["default"] == ""
    assert options["api_key"]["sensitive"] is True
    assert {options[key]["type"] for key in ("root", "skills", "agents")} == {"directory"}
    given = manifest["server"]["mcp_config"]["env"]
    assert given == {name: f"${{user_config.{key}}}" for name, key in VARIABLES.items()}
    assert {*VARIABLES.values()} == options.keys()
    # A key among the arguments would be seen by everybody who lists processes.
    assert "user_config" not in json.dumps(manifest["server"]["mcp_config"]["args"])


def test_the_tools_are_those_of_the_server(manifest: dict[str, Any]) -> None:
    names = [one["name"] for one in manifest["tools"]]
    assert {"task", "wait", "reply", "write_file", "skill"} <= {*names}
    assert len(names) == len({*names})
    assert all(0 < len(one["description"]) <= 100 for one in manifest["tools"])


def test_nothing_is_in_the_bundle_that_does_not_belong_there(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as held:
        names = held.namelist()
        assert held.testzip() is None
    tops = {name.split("/")[0] for name in names}
    expected = {"manifest.json", "main.py", "README.md", "pyproject.toml"}
    assert tops == {*expected, "deep_agent_mcp", "harness", "server", "skills"}
    assert not [name for name in names if "__pycache__" in name or "/." in name]
    assert bundle.stat().st_size < 5 << 20


def test_building_again_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == bundle.read_bytes()


def test_settings_that_an_app_leaves_empty_or_does_not_fill_in_are_none() -> None:
    empty = {name: USER_CONFIG[key]["default"] for name, key in VARIABLES.items()}
    assert load_settings({}, empty) == load_settings({}, {})


@pytest.mark.anyio
async def test_the_unpacked_bundle_serves_with_settings_that_are_not_filled_in(
    unpacked: Path, tmp_path: Path
) -> None:
    """As an app starts it, but with this Python in place of uv's environment."""
    values = {name: f"${{user_config.{key}}}" for name, key in VARIABLES.items()}
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(unpacked), **values}
    command = [sys.executable, "-P", str(unpacked / "main.py")]
    client = KNOWN_CLIENTS["claude-desktop"]
    async with Wire.to(command, client, env, tmp_path / "log") as wire:
        hello = {
            "protocolVersion": client.protocol,
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        assert (await wire.request("initialize", hello))["serverInfo"]
        await wire.notify("notifications/initialized")
        skills = await wire.request("tools/call", {"name": "skill", "arguments": {}})
        assert not skills.get("isError")
        files = (unpacked / "skills").glob("*/SKILL.md")
        heads = {one.parent.name: one.read_text().split("---")[1] for one in files}
        offered = {name for name in heads if name in json.dumps(skills)}
        assert offered == {name for name, head in heads.items() if "needs: shell" not in head}


@pytest.mark.skipif("MCPB_VALIDATE" not in os.environ, reason="MCPB_VALIDATE=1 asks npm; 10 s")
@pytest.mark.timeout(300)
def test_the_publishers_own_tool_accepts_it(bundle: Path, unpacked: Path, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm")
    install = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path)]
    subprocess.run([*install, "@anthropic-ai/mcpb@2.1"], check=True, timeout=200)
    tool = tmp_path / "node_modules/.bin/mcpb"
    for command in ("validate", unpacked / "manifest.json"), ("info", bundle):
        subprocess.run([tool, *command], check=True, timeout=60)


# --- the registry ----------------------------------------------------------------------------


def test_the_registrys_entry_keeps_the_rules() -> None:
    entry = server_entry("io.github.example", Project.read())
    assert entry["$schema"].endswith("/2025-12-11/server.schema.json")
    assert entry["name"] == "io.github.example/deep-agent-mcp"
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert 0 < len(entry["description"]) <= 100
    assert 0 < len(entry["title"]) <= 100
    (package,) = entry["packages"]
    assert package["registryType"] == "pypi"
    assert package["identifier"] == "deep-agent-mcp"
    assert package["transport"] == {"type": "stdio"}
    for variable in package["environmentVariables"]:
        assert variable["format"] in ("string", "number", "boolean", "filepath")
        assert variable.get("isSecret", False) == variable["name"].endswith("_KEY")


def test_the_registrys_versions_are_those_of_the_project() -> None:
    entry = server_entry("io.github.example", Project.read())
    assert entry["version"] == VERSION
    assert [one["version"] for one in entry["packages"]] == [VERSION]


def test_a_bundle_is_entered_with_its_digest(bundle: Path) -> None:
    url = f"https://github.com/example/releases/download/v{VERSION}/{bundle.name}"
    package = mcpb_package(bundle, url, Project.read())
    entry = server_entry("io.github.example", Project.read(), package)
    assert entry["packages"][1]["fileSha256"] == hashlib.sha256(bundle.read_bytes()).hexdigest()
    assert entry["packages"][1]["identifier"] == url


@pytest.mark.parametrize("namespace", ["example", "io.github.a/b", "", "io.github."])
def test_what_is_no_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match=r"io\.github\.OWNER"):
        server_entry(namespace, Project.read())


def test_the_entry_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ".ci/release", "registry", "io.github.example"],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["version"] == VERSION
    assert "mcp-name: io.github.example/deep-agent-mcp" in done.stderr
