"""Python objects by name: what is found, and what each mistake is answered with."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from deep_agent_mcp.harness.models.registry import UnknownModel, init_chat_model
from deep_agent_mcp.harness.plugins import (
    ObjectError,
    entry_points,
    load_object,
    resolve,
)
from deep_agent_mcp.server.cli.main import cli
from deep_agent_mcp.server.doctor.state import examine_agent, examine_plugins
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.settings.sources import load_settings
from tests.plugins.installed import install, on_path

pytestmark = pytest.mark.anyio

MODELS = """
from deep_agent_mcp.harness import ScriptedModel

def make(model_id, *, shout=False):
    if model_id == "gone":
        raise RuntimeError("the vendor has no such model")
    if model_id == "none":
        return None
    return ScriptedModel([{"text": model_id.upper() if shout else model_id}])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fine_object.py").write_text("class Box:\n    inner = 3\n\nvalue = 7\n")
    (tmp_path / "raising_object.py").write_text("import os\n\n\nraise ValueError('no database')\n")
    (tmp_path / "broken_object.py").write_text("value = 1\ndef (:\n")
    (tmp_path / "needing_object.py").write_text("import surely_not_there\n")
    (tmp_path / "leaving_object.py").write_text("import sys\nsys.exit(3)\n")
    install(
        tmp_path,
        "vendor-pack",
        {"vendor_pack.py": MODELS},
        {
            "models": {"vendorname": "vendor_pack:make", "lost": "vendor_pack:nothing"},
            "tools": {"find": "vendor_pack:make"},
        },
    )
    install(tmp_path, "other-pack", {}, {"tools": {"find": "vendor_pack:make"}}, "2.0")
    on_path(tmp_path, monkeypatch)
    return tmp_path


def test_an_attribute_of_a_module_is_found_a_dotted_one_too(place: Path) -> None:
    assert load_object("fine_object:value") == 7
    assert load_object("fine_object:Box.inner") == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fine_object", "'fine_object' names no Python object. Write it as package.module:name"),
        ("fine_object:", "names no Python object"),
        ("a b:c", "names no Python object"),
        ("surely_not_there.app:agent", "there is no module 'surely_not_there'"),
        ("fine_object.deeper:agent", "there is no module 'fine_object.deeper'"),
        ("fine_object:valeu", r"fine_object has no attribute 'valeu' \(.*fine_object.py\)\. Did"),
        ("raising_object:x", r"raised ValueError: no database \(.*raising_object.py:4\)"),
        ("broken_object:x", r"raised SyntaxError: .* \(.*broken_object.py:2\)"),
        ("needing_object:x", r"ModuleNotFoundError: .*surely_not_there.*needing_object.py:1\)"),
        ("leaving_object:x", r"raised SystemExit: 3 \(.*leaving_object.py:2\)"),
    ],
)
def test_a_name_that_leads_nowhere_says_why_and_where(place: Path, name: str, told: str) -> None:
    with pytest.raises(ObjectError, match=told) as refused:
        load_object(name, "agent")
    assert str(refused.value).startswith("agent")
    assert "\n" not in str(refused.value)


def test_a_module_that_takes_long_is_spoken_of(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("deep_agent_mcp.harness.plugins.SLOW_SECONDS", 0.0)
    (place / "slow_object.py").write_text(
        "import threading\n"
        "for one in threading.enumerate():\n"
        "    if isinstance(one, threading.Timer): one.join()\n"
        "value = 3\n"
    )
    assert load_object("slow_object:value", "agent") == 3
    assert "agent slow_object:value: importing slow_object has taken" in caplog.text


def test_plugins_are_found_by_name_and_not_imported_to_be_listed(place: Path) -> None:
    found = entry_points("models")
    (plugin,) = found["vendorname"]
    assert (plugin.value, plugin.source) == ("vendor_pack:make", "vendor-pack 1.0")
    assert entry_points("backends") == {}


def test_a_name_of_two_packages_is_refused_and_names_both(place: Path) -> None:
    with pytest.raises(
        ObjectError, match=r"other-pack 2\.0 and vendor-pack 1\.0.*vendor_pack:make"
    ):
        resolve("find", "tools")
    assert callable(resolve("vendor_pack:make", "tools"))


def test_a_plugin_that_is_not_there_says_which_are(place: Path) -> None:
    with pytest.raises(ObjectError, match=r"no plugin 'vendornam'\. Did you mean 'vendorname'\?"):
        resolve("vendornam", "models")
    with pytest.raises(ObjectError, match="None is installed"):
        resolve("vendorname", "backends")


def test_a_plugin_that_cannot_be_loaded_names_its_package(place: Path) -> None:
    with pytest.raises(ObjectError, match=r"plugin 'lost' of vendor-pack 1\.0 .*no attribute"):
        resolve("lost", "models")


def test_models_of_an_installed_package_are_made_by_name(place: Path) -> None:
    model = init_chat_model("vendorname:echo", shout=True)
    assert model.name.startswith("scripted")
    assert load_settings({"model": "vendorname:echo"}, {}).model == "vendorname:echo"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("vendorname:gone", r"raised RuntimeError: .*no such model \(.*vendor_pack.py:6\)"),
        ("vendorname:none", "returned None, which is not a ChatModel"),
        ("lost:x", "plugin 'lost' of vendor-pack 1.0"),
        ("vendornam:x", "unknown model 'vendornam:x'.*vendorname:…"),
        ("vendorname:", "unknown model"),
    ],
)
def test_a_model_that_a_plugin_does_not_make_says_why(place: Path, name: str, told: str) -> None:
    with pytest.raises(UnknownModel, match=told):
        init_chat_model(name)


def test_a_setting_that_a_plugin_does_not_take_is_an_error_of_ours(place: Path) -> None:
    with pytest.raises(UnknownModel, match="unexpected keyword argument 'volume'"):
        init_chat_model("vendorname:echo", volume=3)


def test_settings_refuse_a_model_that_nobody_makes(place: Path) -> None:
    with pytest.raises(SettingsError, match=re.escape("unknown model 'nobody:x'")):
        load_settings({"model": "nobody:x"}, {})


def test_doctor_loads_plugins_and_names_what_is_broken(place: Path) -> None:
    found = [(one.about, one.status, one.text) for one in examine_plugins()]
    assert ("models plugin", "ok", "vendorname: vendor_pack:make, of vendor-pack 1.0") in found
    broken = [text for about, status, text in found if status == "broken"]
    assert len(broken) == 2
    assert "find is the name of plugins of" in broken[0]
    assert "has no attribute 'nothing'" in broken[1]


def test_middleware_lists_the_plugins_that_are_installed(place: Path) -> None:
    shown = CliRunner().invoke(cli, ["middleware"])
    assert "Plugins installed:\n- tools: find = vendor_pack:make (other-pack 2.0)" in shown.output
    data = json.loads(CliRunner().invoke(cli, ["middleware", "--json"]).output)
    assert {"name": "vendorname", "value": "vendor_pack:make"}.items() <= data["plugins"]["models"][
        1
    ].items()


async def test_doctor_makes_the_agent_of_a_module(place: Path) -> None:
    (place / "doctored_app.py").write_text(
        "from deep_agent_mcp import *\n"
        "agent = create_deep_agent(ScriptedModel([]))\n"
        "def failing(): raise OSError('down')\n"
    )
    settings = load_settings({}, {})
    fine = await examine_agent("doctored_app:agent", settings)
    assert (fine.status, "read_file" in fine.text) == ("ok", True)
    failing = await examine_agent("doctored_app:failing", settings)
    assert (failing.status, "doctored_app.py:3)" in failing.text) == ("broken", True)
