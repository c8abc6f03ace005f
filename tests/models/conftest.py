"""A fixture that hides the current user's credentials from the tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*os.environ]:
        if name.startswith("ANTHROPIC_"):
            monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "APPDATA", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
