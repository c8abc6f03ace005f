"""The page on clients shows the cells that the tests of clients go through."""

from pathlib import Path

from tests.clients.cells import CELLS, cells_of, table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "clients.md"


def test_the_page_on_clients_shows_the_cells_that_are_tested() -> None:
    assert "\n".join(table()) in PAGE.read_text(encoding="utf-8")


def test_there_are_thirty_cells() -> None:
    assert sum(len(cells_of(client)) for client in CELLS) >= 30
