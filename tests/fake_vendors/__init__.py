"""Servers that speak the vendors' protocols: scripted answers, real HTTP, and real refusals."""

from tests.fake_vendors.chat import FakeChat
from tests.fake_vendors.server import FakeVendor, Refused, Reply, ReplyCall

__all__ = ["FakeChat", "FakeVendor", "Refused", "Reply", "ReplyCall"]
