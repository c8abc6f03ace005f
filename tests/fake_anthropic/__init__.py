"""A fake Messages API server: scripted answers, real HTTP, and the real API's refusals."""

from tests.fake_anthropic.answers import Answer, sign
from tests.fake_anthropic.server import FakeAnthropic, Recorded

__all__ = ["Answer", "FakeAnthropic", "Recorded", "sign"]
