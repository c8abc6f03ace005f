"""Globs over names mean what the library says they mean, also where it is not asked."""

import pytest
from wcmatch import fnmatch

from deep_agent_mcp.harness._internal.patterns import fits

NAMES = ["", "a", "a*", "write_file", "write_", "Write_file", "a/b", ".a", "a\nb", "a:b", "a]"]
GLOBS = ["*", "**", "write_*", "*_file", "w?ite*", "a[*", "[aw]*", "a\\**", ".*", "a*b", "?"]


@pytest.mark.parametrize("pattern", [*NAMES, *GLOBS])
def test_a_glob_means_the_same(pattern: str) -> None:
    for name in NAMES:
        assert fits(name, pattern) == fnmatch.fnmatch(name, pattern, flags=fnmatch.CASE), name


def test_one_of_several_is_enough_and_none_fits_nothing() -> None:
    assert fits("ls", ["write_*", "ls"])
    assert not fits("ls", ["write_*", "l"])
    assert not fits("ls", ())
