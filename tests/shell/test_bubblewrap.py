"""What becomes of a sandbox when bubblewrap itself cannot be asked."""

from pathlib import Path
from shutil import which

import pytest

from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
from deep_agent_mcp.harness.shell.policies import Launch
from tests.shell.support import need_bubblewrap


def _options_of(launch: Launch) -> set[bytes]:
    return {option for data in launch.inputs.values() for option in data.split(b"\0")}


def test_a_bubblewrap_that_fails_for_a_moment_costs_no_option_of_later_sandboxes(
    tmp_path: Path,
) -> None:
    need_bubblewrap()
    working = BubblewrapExecutionPolicy()
    binary = tmp_path / "bwrap"
    binary.write_text("#!/bin/sh\nexit 1\n")
    binary.chmod(0o755)
    policy = BubblewrapExecutionPolicy(binary=str(binary))
    with pytest.raises(OSError, match="exit code 1"):
        policy.launch(None, tmp_path, {})
    with pytest.raises(AgentBuildError, match="cannot make a sandbox here"):
        policy.check()
    binary.unlink()
    binary.symlink_to(which("bwrap") or "")
    policy.check()
    assert _options_of(policy.launch(None, tmp_path, {})) == _options_of(
        working.launch(None, tmp_path, {})
    )
