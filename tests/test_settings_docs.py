"""docs/settings.md lists every setting once, with the flag and the default it really has."""

import re
from pathlib import Path

import pytest

from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.settings.settings import CommandSettings, LimitSettings, Settings
from deep_agent_mcp.server.settings.sources import load_settings
from tests.doc_pages import DocPage

PAGE = DocPage("settings.md")
TABLES = {"`[limits]`": LimitSettings, "`[commands]`": CommandSettings}
ELSEWHERE = {"config_file", "definition", *(title.strip("`[]") for title in TABLES)}
IN_WORDS = {"model", "state_dir", "toolsets", "oauth_jwks_url", "workers"}


def rows(title: str) -> dict[str, list[str]]:
    found = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE.text(title), re.MULTILINE)
    assert len(dict(found)) == len(found)
    return {key: rest.split(" | ") for key, rest in found}


def shown(value: object) -> str:
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if isinstance(value, str) else str(value).removesuffix(".0")


def listed() -> dict[str, list[str]]:
    tables = [rows(title) for title in PAGE.titles if title not in TABLES]
    assert sum(map(len, tables)) == len({key for one in tables for key in one})
    return {key: cells for one in tables for key, cells in one.items()}


def test_every_setting_is_listed_once_with_its_default() -> None:
    settings = listed()
    assert set(settings) == set(Settings.model_fields) - ELSEWHERE
    for key, (_, default, _meaning) in settings.items():
        if key not in IN_WORDS:
            assert default == shown(
                Settings.model_fields[key].get_default(call_default_factory=True)
            )


@pytest.mark.parametrize("title", TABLES)
def test_every_setting_of_a_table_is_listed_with_its_default(title: str) -> None:
    fields = TABLES[title].model_fields
    assert {key: default for key, (default, _) in rows(title).items()} == {
        key: shown(field.default) for key, field in fields.items()
    }


def test_every_flag_of_serve_is_listed_beside_its_setting() -> None:
    flags = {
        str(one.name): f"`{one.opts[0]}`"
        for one in cli.commands["serve"].params
        if one.name not in ("config", "application", "reload")  # for one start alone
    }
    given = {key: flag for key, (flag, *_) in listed().items()}
    assert {key: flag for key, flag in given.items() if flag.startswith("`")} == flags
    assert "--config FILE" in PAGE.path.read_text(encoding="utf-8")


def test_the_example_is_a_file_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "notes").mkdir()
    (tmp_path / "skills").mkdir()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.path.read_text("utf-8"), re.M | re.S)
    file = tmp_path / "config.toml"
    file.write_text(example, encoding="utf-8")
    settings = load_settings({}, {}, config=file)
    assert settings.skills == (tmp_path / "skills",)
    assert (settings.limits.cost, settings.wait_budget) == (5.0, 60)
