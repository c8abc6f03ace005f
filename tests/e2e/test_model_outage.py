"""A provider is down, or cuts answers off: clients are told, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.servers import Setup, call, connected, until_progress
from tests.fake_anthropic import Answer, FakeAnthropic

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/log.txt", "content": "begun\n"}}


def script(*last: dict[str, Any]) -> dict[str, Any]:
    return {"name": "outage", "agents": {"main": [{"tool_calls": [WRITE]}, *last]}}


def down(retry_after: float) -> dict[str, Any]:
    error = {"kind": "overloaded", "message": "Overloaded", "retryable": True}
    return {"error": {**error, "retry_after": retry_after}}


async def test_a_server_killed_during_the_wait_goes_on_after_its_restart(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=script(down(300)))
    told = "main: The model is overloaded; next try in 300 s"
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                assert await until_progress(client, told, 1, "task", goal="go") is None
                (thread,) = (await call(client, "threads"))["threads"]
                run_id: str = thread["last_run"]["run_id"]
                waiting = await call(client, "wait", run_id=run_id, wait_seconds=0)
                assert (waiting["status"], waiting["doing"]) == ("running", told)
            server.kill()
        setup.script = script({"text": "Done."})
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                done = await call(client, "wait", run_id=run_id)
                assert (done["status"], done["answer"]) == ("done", "Done.")
                assert (setup.root / "log.txt").read_text() == "begun\n"


async def test_without_patience_an_outage_ends_a_run_which_can_be_resumed(tmp_path: Path) -> None:
    setup = Setup(tmp_path, script=script(down(0)), flags=["--model-patience", "0"])
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                failed = (await client.call_tool("task", {"goal": "go"})).structured_content
    assert failed is not None
    assert (failed["status"], failed["reason"]) == ("failed", "Overloaded")


async def test_a_client_is_told_that_an_answer_is_cut_off_and_gets_the_rest(tmp_path: Path) -> None:
    cuts = [Answer(text=one, stop_reason="max_tokens") for one in ("One, ", "two, ", "3, ", "4")]
    with anyio.fail_after(60):
        async with FakeAnthropic(cuts) as api:
            setup = Setup(
                tmp_path, env={"ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": api.url}
            )
            async with connected(setup.stdio(), "auto") as client:
                result = await client.call_tool("task", {"goal": "count"})
                failed, text = result.structured_content, str(result.content[0])
                assert result.is_error
                assert failed is not None
                assert failed["status"] == "failed"
                assert failed["answer"] == "One, two, 3, 4\n\n[The answer was cut off here.]"
                assert "cut off 4 times (max_tokens)" in failed["reason"]
                assert "One, two, 3, 4" in text
                api.add(", five.")
                done = await call(client, "reply", run_id=failed["run_id"])
                assert (done["status"], done["answer"]) == ("done", "One, two, 3, 4, five.")
