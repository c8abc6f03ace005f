"""Write the table as a page: `python -m tests.behaviour_table > docs/behaviours.md`."""

from __future__ import annotations

from tests.behaviour_table.page import page

print(page(), end="")
