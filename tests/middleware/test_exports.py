"""The packages hand out what they name."""

import harness.checkpoint
import harness.middleware
import harness.shell


def test_every_name_is_there():
    for package in (harness.middleware, harness.checkpoint, harness.shell):
        for name in package.__all__:
            assert getattr(package, name).__name__ == name


def test_every_middleware_with_a_file_of_its_own_is_named():
    named = {getattr(harness.middleware, name).__module__ for name in harness.middleware.__all__}
    assert "harness.middleware.todo_list" in named
    assert len(named) >= 29
