"""docs/telemetry.md names every metric."""

from __future__ import annotations

import re

from deep_agent_mcp.harness.telemetry import conventions as names
from tests.doc_pages import DocPage

PAGE = DocPage("telemetry.md")


def test_every_metric_is_listed():
    listed = set(re.findall(r"`((?:gen_ai|deep_agent)\.[a-z_.]+)`", PAGE.text("Metrics")))
    assert listed == {
        names.TOKEN_USAGE,
        names.OPERATION_DURATION,
        names.FIRST_CHUNK_DURATION,
        names.AGENT_DURATION,
        names.TOOL_DURATION,
        names.RUNS_STARTED,
        names.RUNS_ENDED,
        names.RUNS_ACTIVE,
        names.TOOL_CALLS,
        names.COMMIT_DURATION,
        names.APPROVAL_DURATION,
    }
