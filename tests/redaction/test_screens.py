"""What is redacted holds for the call that is worked on, and for nothing after it."""

import pytest

from deep_agent_mcp.harness.loop.run.redaction import RunRedaction, current_redaction, working_in
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.redaction.rules import Keys


def test_a_screen_is_the_current_one_for_as_long_as_its_call_is_worked_on():
    outer, inner = (RunRedaction(PIIMiddleware("email").redaction, Keys("t")) for _ in range(2))
    assert current_redaction() is None
    with working_in(outer):
        with working_in(None):
            assert current_redaction() is outer
        with pytest.raises(ValueError, match="stop"), working_in(inner):
            assert current_redaction() is inner
            raise ValueError("stop")
        assert current_redaction() is outer
    assert current_redaction() is None
