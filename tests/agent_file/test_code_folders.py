"""Code beside an agent file: what is named is imported, and nothing else can come from there."""

from __future__ import annotations

import importlib
import importlib.util
import os
import py_compile
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from deep_agent_mcp.harness._internal.code_folders import IMPORTED_FILES, import_from
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.server.agents.commands import require_outside
from deep_agent_mcp.server.settings.protected_paths import protected_paths
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.servers import refused
from tests.server.test_agent_file import Served

OPTIONAL = ("brotli", "socksio", "uvloop", "trio", "ujson", "IPython", "email_validator", "a2wsgi")
NAMES = sorted({*sys.stdlib_module_names, *OPTIONAL, "filelock", "click", "anyio", "sitecustomize"})


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    modules, finders = {*sys.modules}, [*sys.meta_path]
    yield
    sys.meta_path[:] = finders
    for name in {*sys.modules} - modules:
        del sys.modules[name]


def beside(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def imported(folder: Path) -> set[str]:
    found = (one for one in IMPORTED_FILES.paths if one.is_relative_to(folder))
    return {one.relative_to(folder).as_posix() for one in found}


def origin(name: str) -> str:
    known = sys.modules.get(name)
    found = importlib.util.find_spec(name) if known is None else known.__spec__
    return str(found and found.origin)


@pytest.mark.parametrize("first", [False, True], ids=["agent file", "application"])
def test_no_other_import_of_the_process_is_served_from_the_folder(
    first: bool, tmp_path: Path
) -> None:
    assert len(NAMES) > 200
    for name in NAMES:
        beside(tmp_path, **{name: "raise SystemExit('from the root')\n"})
    beside(tmp_path, code_one="import json\nfound = json.dumps\n")
    import_from(tmp_path, ["code_one"], first=first)
    assert importlib.import_module("code_one").found.__module__ == "json"
    for name in NAMES:
        assert not origin(name).startswith(str(tmp_path)), name
    assert imported(tmp_path) == {"code_one.py"}


def test_code_of_the_folder_imports_what_is_beside_it_early_and_late(tmp_path: Path) -> None:
    beside(
        tmp_path,
        code_two="import code_three\ndef late():\n    from code_pack.inner import value\n"
        "    return value + code_three.value\n",
        code_three="value = 1\n",
        code_pack__in____init__="",
        code_pack__in__inner="from . import other\nvalue = other.value\n",
        code_pack__in__other="value = 41\n",
        code_four="",
    )
    import_from(tmp_path, ["code_two"])
    assert importlib.import_module("code_two").late() == 42
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("code_four")
    package = {"code_pack/__init__.py", "code_pack/inner.py", "code_pack/other.py"}
    assert imported(tmp_path) == {"code_two.py", "code_three.py", *package}


def test_a_compiled_file_that_says_something_else_is_not_run(tmp_path: Path) -> None:
    beside(tmp_path, code_five="value = 'good'\n")
    source = tmp_path / "code_five.py"
    status = source.stat()
    evil = tmp_path / "evil.py"
    evil.write_text("value = 'evil'\n", encoding="utf-8")
    os.utime(evil, ns=(status.st_atime_ns, status.st_mtime_ns))
    py_compile.compile(str(evil), cache_from_source(str(source)), doraise=True)
    import_from(tmp_path, ["code_five"])
    assert importlib.import_module("code_five").value == "good"


def test_a_module_that_is_named_goes_before_an_installed_one_only_if_asked(tmp_path: Path) -> None:
    beside(tmp_path, colorsys="value = 'mine'\n")
    sys.modules.pop("colorsys", None)
    import_from(tmp_path, ["colorsys"])
    assert not origin("colorsys").startswith(str(tmp_path))
    import_from(tmp_path, ["colorsys"], first=True)
    assert origin("colorsys").startswith(str(tmp_path))


@pytest.mark.skipif(sys.platform == "win32", reason="paths in the command are POSIX ones")
def test_python_m_imports_nothing_from_the_current_directory(tmp_path: Path) -> None:
    names = ("click", "anyio", "tomllib", "pydantic", "platformdirs")
    beside(tmp_path, **{name: f"raise SystemExit('{name} of the root')\n" for name in names})
    command = [sys.executable, "-m", "deep_agent_mcp", "agent", "schema"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.anyio
async def test_agents_cannot_change_code_that_was_imported_early_or_late(tmp_path: Path) -> None:
    beside(
        tmp_path,
        code_six="import code_seven\n\n\ndef find() -> str:\n"
        '    """Find."""\n    import code_eight\n\n    return code_eight.__name__\n',
        code_seven="",
        code_eight="",
        other="",
    )
    served = Served(tmp_path, root=str(tmp_path))
    served.save('[agent]\ntools = ["code_six:find"]\n')
    async with served.running() as (_, client):
        for name in ("code_six", "code_seven"):
            told = await refused(client, "write_file", path=f"/{name}.py", content="x")
            assert "whoever runs the server" in told
        importlib.import_module("code_six").find()
        told = await refused(client, "write_file", path="/code_eight.py", content="x")
        assert "whoever runs the server" in told
        edit = {"path": "/other.py", "content": "x"}
        assert not (await client.call_tool("write_file", edit)).is_error


def test_commands_are_refused_where_they_could_change_the_code(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    beside(root, code_nine="def find() -> str:\n    return 'x'\n")
    (tmp_path / "agent.toml").write_text("", encoding="utf-8")
    import_from(root, ["code_nine"])
    importlib.import_module("code_nine")
    settings = load_settings({"root": str(root), "state_dir": str(tmp_path / "state")}, {})
    assert root / "code_nine.py" in [one.path for one in protected_paths(settings)]
    with pytest.raises(AgentBuildError, match="the agent's code"):
        require_outside(settings)
