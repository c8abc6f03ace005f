"""`debug=True` prints each step and changes nothing else."""

from typing import Any

import pytest

from deep_agent_mcp.harness.agent import RunOptions
from tests.loop.test_factory import looking

pytestmark = pytest.mark.anyio


async def test_debug_prints_each_step_and_leaves_the_stream_as_it_is(capsys):
    plain: list[Any] = []
    debugged: list[Any] = []
    for events, debug in ((plain, False), (debugged, True)):
        options = RunOptions(emit=events.append, modes=("updates", "tasks"))
        await looking(debug=debug).ainvoke("go", options=options)
        shown = capsys.readouterr()
        assert (shown.out, bool(shown.err)) == ("", debug)
    lines = shown.err.splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "step 0 by input, then model | go",
        "model_start turns:test",
        "step 1 by model, then tools | calls look",
        "model_end turns:test",
        "tool_start look",
        "tool_end look | saw it",
        "step 2 by tools, then model | ran look",
        "model_start turns:test",
        "step 3 by model, then end | done",
        "model_end turns:test | done",
    ]
    assert "agent > 1: tool_start" in lines[4]
    assert [(one.mode, one.seq) for one in debugged] == [(one.mode, one.seq) for one in plain]


async def test_debug_can_be_printed_and_read_at_once(capsys):
    events: list[Any] = []
    options = RunOptions(emit=events.append, modes=("debug",))
    await looking(debug=True).ainvoke("go", options=options)
    assert len(capsys.readouterr().err.splitlines()) == len(events) == 10
