"""The snippets of docs/models.md run as they are written."""

import pytest

from deep_agent_mcp.harness.models.vendors import VENDORS, Vendor
from tests.doc_pages import DocPage

PAGE = DocPage("models.md")


@pytest.mark.parametrize("title", ["Other servers", "Your own adapter"])
def test_a_snippet_runs(title: str) -> None:
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    PAGE.run(title)


@pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
def test_every_vendor_is_listed_with_its_extra(vendor: Vendor) -> None:
    rows = [line for line in PAGE.text("Names").splitlines() if f"`{vendor.name}:`" in line]
    assert len(rows) == 1
    assert f"`{vendor.extra}`" in rows[0]
