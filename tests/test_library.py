"""`harness` as a library: what it exports, and what importing it costs."""

import subprocess
import sys

import harness


def test_every_exported_name_is_there():
    for name in harness.__all__:
        assert getattr(harness, name).__name__ == name


def test_importing_the_library_or_the_server_does_not_import_the_models_sdk():
    code = (
        "import sys, harness, harness.deep_agent, server.app\n"
        "assert 'anthropic' not in sys.modules\n"
        "from harness import create_agent, create_deep_agent\n"
        "assert 'anthropic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_engine_knows_nothing_of_the_server():
    code = "import sys, harness.deep_agent, harness.checkpoint.sqlite\n" + (
        "assert not [name for name in sys.modules if name.split('.')[0] in ('server', 'mcp')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
