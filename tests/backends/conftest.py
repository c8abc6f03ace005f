from pathlib import Path

import pytest

from tests.backends.workbench import BACKENDS, Bench, make_backend


@pytest.fixture(params=BACKENDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    root = tmp_path / "root"
    root.mkdir()
    return Bench(make_backend(request.param, root), root)


@pytest.fixture(params=BACKENDS[1:])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    root = tmp_path / "root"
    root.mkdir()
    return Bench(make_backend(request.param, root), root)
