"""What is redacted holds for the call that is worked on, and for nothing after it."""

import pytest

from deep_agent_mcp.harness.loop.screening import Screen, current_screen, working_in
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.redaction.rules import Keys


def test_a_screen_is_the_current_one_for_as_long_as_its_call_is_worked_on():
    outer, inner = (Screen(PIIMiddleware("email").redaction, Keys("t")) for _ in range(2))
    assert current_screen() is None
    with working_in(outer):
        with working_in(None):
            assert current_screen() is outer
        with pytest.raises(ValueError, match="stop"), working_in(inner):
            assert current_screen() is inner
            raise ValueError("stop")
        assert current_screen() is outer
    assert current_screen() is None
