import subprocess
import sys
from pathlib import Path

import pytest

from deep_agent_mcp.server.settings import state_dir
from deep_agent_mcp.server.settings.state_dir import StateDir, StateDirError

HOLD = (
    "import sys\nfrom pathlib import Path\n"
    "from deep_agent_mcp.server.settings.state_dir import StateDir\n"
    "with StateDir.open(Path(sys.argv[1])).claim() as owner:\n"
    "    print(owner, flush=True); sys.stdin.read()"
)


def test_a_server_is_alive_until_it_is_killed(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "deep" / "state")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        owner = other.stdout.readline().strip()
        assert state.is_alive(owner)
        other.kill()
        other.wait()
    assert not state.is_alive(owner)
    assert not state.is_alive(owner)


def test_a_server_sees_itself_alive_and_leaves_nothing_behind(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path)
    with state.claim() as mine, state.claim() as another:
        assert mine != another
        assert state.is_alive(mine)
        assert state.is_alive(another)
    assert not state.is_alive(mine)
    assert list((tmp_path / "servers").iterdir()) == []


def test_an_owner_is_never_a_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a server id"):
        StateDir.open(tmp_path).is_alive("../../etc/passwd")


def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StateDirError, match=r"cannot be used.*--state-dir"):
        StateDir.open(tmp_path / "file" / "state")


def test_nobody_is_alone_beside_a_server_until_it_has_died(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        refused = pytest.raises(StateDirError, match=r"uses the state directory .* Stop the server")
        with refused, state.alone():
            raise AssertionError("it is not alone")
        other.kill()
        other.wait()
    with state.alone():
        pass


def test_who_is_alone_stays_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_dir, "ALONE_SECONDS", 0.05)
    state = StateDir.open(tmp_path)
    with state.alone():
        with pytest.raises(StateDirError, match="being sealed or unsealed"), state.claim():
            raise AssertionError("it is not alone")
        with pytest.raises(StateDirError, match="nothing was done"), state.alone():
            raise AssertionError("it is not alone")
    with state.claim() as one, state.claim() as other:
        assert state.is_alive(one) and state.is_alive(other)
    assert list((tmp_path / "servers").iterdir()) == []


def test_a_server_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path)
    with pytest.raises(KeyError), state.claim():
        raise KeyError("failed")
    assert list((tmp_path / "servers").iterdir()) == []
