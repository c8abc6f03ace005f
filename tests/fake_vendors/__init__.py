"""Fake servers with the vendors' protocols: scripted answers, real HTTP, and real refusals."""

from tests.fake_vendors.bedrock import FakeBedrock
from tests.fake_vendors.chat import FakeChat
from tests.fake_vendors.google import FakeGoogle
from tests.fake_vendors.mistral import FakeMistral
from tests.fake_vendors.responses import FakeResponses
from tests.fake_vendors.server import FakeVendor, Refused, Reply, ReplyCall

__all__ = [
    "FakeBedrock",
    "FakeChat",
    "FakeGoogle",
    "FakeMistral",
    "FakeResponses",
    "FakeVendor",
    "Refused",
    "Reply",
    "ReplyCall",
]
