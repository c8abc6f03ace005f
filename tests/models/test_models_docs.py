"""docs/models.md lists every vendor."""

import pytest

from deep_agent_mcp.harness.models.vendors import VENDORS, Vendor
from tests.doc_pages import DocPage

PAGE = DocPage("models.md")


@pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)
def test_every_vendor_is_listed_with_its_extra(vendor: Vendor) -> None:
    rows = [line for line in PAGE.text("Names").splitlines() if f"`{vendor.name}:`" in line]
    assert len(rows) == 1
    assert f"`{vendor.extra}`" in rows[0]
