"""The table of behaviours is complete, and every test it names is there."""

import ast
from functools import cache
from pathlib import Path

from tests.behaviour_table import ROWS
from tests.behaviour_table.page import page

ROOT = Path(__file__).parents[1]

NUMBERED = {
    "A1": 16, "A2": 17, "A3": 20, "A4": 11, "A5": 14, "A6": 9, "A7": 9, "A8": 8, "B": 20,
    "B1": 10, "B8": 6, "B9": 1, "B10": 2, "B11": 2, "B20": 3, "C1": 18, "C2": 8, "C3": 9,
    "C4": 4, "C5": 6, "C6": 13, "C7": 4, "C8": 11, "C9": 5, "C10": 1, "C12": 5, "D1": 12,
    "D3": 7, "D4": 6, "D8": 7,
}  # fmt: skip
"""How many behaviours each section has; those of a row of B are sections of their own."""

PLAIN = ["C11", *(f"E{number}" for number in range(1, 26))]
"""Rows that belong to no numbered section."""

LONGEST = 160
"""Characters of the longest text that says how we differ."""


def expected() -> set[str]:
    """Return the ids of all rows."""
    numbered = [
        f"{section}{number + 1}" if section == "B" else f"{section}.{number + 1}"
        for section, count in NUMBERED.items()
        for number in range(count)
    ]
    return {*numbered, *PLAIN}


def place(row_id: str) -> tuple[str, int, int]:
    """Return what orders the rows: B8 before B8.1 before B10."""
    whole, _, part = row_id.partition(".")
    return whole[0], int(whole[1:]), int(part or 0)


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of a file's tests, those of classes as `Class::name`."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = [_name(one) for one in tree.body]
    for one in tree.body:
        if isinstance(one, ast.ClassDef) and one.name.startswith("Test"):
            names += [name and f"{one.name}::{name}" for name in map(_name, one.body)]
    return frozenset(name for name in names if name)


def _name(node: ast.stmt) -> str | None:
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node.name if function and node.name.startswith("test_") else None


def test_every_behaviour_has_its_row_in_order():
    assert {*ROWS} == expected()
    assert [*ROWS] == sorted(ROWS, key=place)


def test_a_row_says_what_it_is_and_shows_it_or_says_how_we_differ():
    for row_id, row in ROWS.items():
        assert row.what.strip(), row_id
        assert row.tests or row.differs, row_id
        assert all(one.strip() for one in row.tests), row_id
        assert len({*row.tests}) == len(row.tests), row_id
        if row.differs is not None:
            assert row.differs.strip(), row_id
            assert len(row.differs) <= LONGEST, row_id


def test_the_tests_of_a_row_exist():
    for row_id, row in ROWS.items():
        for one in row.tests:
            path, _, name = one.partition("::")
            assert (ROOT / path).is_file(), f"{row_id}: there is no {path}"
            assert name in names_in(path), f"{row_id}: there is no test {name} in {path}"


def test_the_page_says_what_the_table_says():
    written = (ROOT / "docs" / "behaviours.md").read_text(encoding="utf-8")
    assert written == page(), "python -m tests.behaviour_table > docs/behaviours.md"


def test_what_pytest_would_not_run_is_not_found():
    names = names_in("tests/tools/test_functions.py")
    assert "TestWhatCanBeATool::test_bound_methods" in names
    assert "test_bound_methods" not in names
    assert not any("[" in name for name in names)
