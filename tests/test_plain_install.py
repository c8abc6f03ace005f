"""What works where no extra is installed."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

WITHOUT_EXTRAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("psycopg", "psycopg_pool", "redis", "cryptography", "google"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""

EVERY_PACKAGE = """
import importlib, pkgutil
import deep_agent_mcp.harness
for found in pkgutil.walk_packages(deep_agent_mcp.harness.__path__, "deep_agent_mcp.harness."):
    if found.ispkg and found.name.rpartition(".")[2] not in ("postgres", "redis"):
        exec(f"from {found.name} import *", {})
"""

STARS = """
from deep_agent_mcp.harness.store import *
from deep_agent_mcp.harness.checkpoint import *

assert MemoryStore and SqliteStore and SqliteCheckpointer and EncryptedCheckpointer and Keyring
there = {"PostgresStore", "PostgresCheckpointer", "RedisCheckpointer"} & set(globals())
"""

BY_NAME = """
from deep_agent_mcp.harness.errors import CheckpointError
import deep_agent_mcp.harness.checkpoint as journals, deep_agent_mcp.harness.store as stores

for package, name, extra in (
    (stores, "PostgresStore", "postgres"),
    (journals, "PostgresCheckpointer", "postgres"),
    (journals, "RedisCheckpointer", "redis"),
):
    try:
        exec(f"from {package.__name__} import {name}")
    except ImportError as error:
        assert f"pip install 'deep-agent-mcp[{extra}]'" in str(error), error
    else:
        raise AssertionError(name)
try:
    journals.EncryptedCheckpointer(journals.MemoryCheckpointer(), journals.Keyring([bytes(32)]))
except CheckpointError as error:
    assert "pip install 'deep-agent-mcp[encryption]'" in str(error), error
else:
    raise AssertionError("EncryptedCheckpointer")
"""

COMMANDS = """
from click.testing import CliRunner
from deep_agent_mcp.server.cli.main import cli

place = "--state-dir state --journal postgresql://host/name"
missing = "pip install 'deep-agent-mcp[postgres]'. Nothing was done."
for words, code, said in (
    ("models", 0, "anthropic-vertex:  no: extra google"),
    (f"replicas {place}", 2, missing),
):
    done = CliRunner().invoke(cli, words.split())
    assert (done.exit_code, said in done.output) == (code, True), (words, done, done.output)
"""

PAGES = """
from tests.doc_pages import DocPage

for name in ("stores.md", "reference/checkpointers.md"):
    page = DocPage(name)
    page.run(page.titles[0])
"""


def run(code: str, place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_what_needs_no_extra_works_without_one(tmp_path: Path) -> None:
    parts = (STARS + "assert not there, there", EVERY_PACKAGE, BY_NAME, COMMANDS, PAGES)
    run(WITHOUT_EXTRAS + "".join(f"exec({one!r}, {{}})\n" for one in parts), tmp_path)


def test_with_all_extras_a_star_brings_every_name(tmp_path: Path) -> None:
    run(STARS + "assert len(there) == 3, there", tmp_path)
