"""Nothing heavy is imported until it is used, and an extra that is missing is named."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EXTRAS = ("psycopg", "psycopg_pool", "redis", "sqlite_vec")
HEAVY = (*EXTRAS, "aiosqlite", "regex", "pydantic", "anyio")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_imports_nothing_heavy() -> None:
    loaded = f"print([name for name in {HEAVY!r} if name in sys.modules])"
    assert run(f"import sys, deep_agent_mcp.harness.store; {loaded}") == "[]"


def test_stores_import_no_extra_but_their_own() -> None:
    loaded = f"print([name for name in {EXTRAS!r} if name in sys.modules])"
    code = (
        f"import sys; from deep_agent_mcp.harness.store import MemoryStore, SqliteStore; {loaded}"
    )
    assert run(code) == "[]"
    assert run(f"import sys, deep_agent_mcp.harness.store.conformance; {loaded}") == "[]"


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("psycopg", "PostgresStore", "postgres"), ("redis", "RedisStore", "redis")],
)
def test_a_missing_extra_is_named(module: str, name: str, extra: str) -> None:
    code = f"""
import sys
sys.modules["{module}"] = None
import deep_agent_mcp.harness.store
try:
    deep_agent_mcp.harness.store.{name}
except ImportError as error:
    print(error)
"""
    assert run(code).endswith(f"pip install 'deep-agent-mcp[{extra}]'")


def test_every_public_name_is_there() -> None:
    code = (
        "import deep_agent_mcp.harness.store as s\n"
        "print(all(getattr(s, name) for name in s.__all__))"
    )
    assert run(code) == "True"
