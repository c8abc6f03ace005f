"""A server whose journal is encrypted, from one start to the next."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from deep_agent_mcp.harness.checkpoint.keyring import Keyring
from tests.e2e.servers import Setup, call, connected
from tests.e2e.test_threads_beside_a_server import threads

pytestmark = pytest.mark.anyio

WRITE = {"name": "write_file", "args": {"path": "/a.txt", "content": "plugh is written"}}
SCRIPT = {
    "name": "sealed",
    "runs": [
        {"match": "xyzzy", "agents": {"main": [{"tool_calls": [WRITE]}, {"text": "Done: fnord."}]}}
    ],
}
SECRETS = [b"xyzzy", b"plugh", b"fnord", b"frotz"]


async def test_a_thread_goes_on_after_a_restart_and_nothing_of_it_is_readable(
    tmp_path: Path,
) -> None:
    file = tmp_path / "journal.key"
    file.touch(0o600)
    file.write_text(Keyring.generate(), encoding="ascii")
    setup = Setup(
        tmp_path,
        flags=["--approve", "write_file"],
        env={"DEEP_AGENT_JOURNAL_KEY_FILE": str(file)},
        script=SCRIPT,
    )
    with anyio.fail_after(60):
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                asks = await call(client, "task", goal="say xyzzy", idempotency_key="frotz")
                assert asks["status"] == "needs_approval"
            sealing = await threads(setup, "seal")
            assert sealing.returncode == 1 and "Stop the server" in sealing.stderr
            # The log of the database is there too, as the server was not asked to end.
            server.kill()
        assert readable(setup.state) == []
        with setup.serving() as server:
            async with connected(server.target("http"), "auto") as client:
                again = await call(client, "task", goal="say xyzzy", idempotency_key="frotz")
                assert again["run_id"] == asks["run_id"]
                shown = await call(client, "threads", thread_id=asks["thread_id"])
                (question,) = shown["pending"]
                assert "plugh" in str(question)
                done = await call(client, "reply", run_id=asks["run_id"], decision="approve")
                assert (done["status"], done["answer"]) == ("done", "Done: fnord.")
                assert (setup.root / "a.txt").read_text() == "plugh is written"
        assert readable(setup.state) == []
        sealing = await threads(setup, "seal")
        assert (sealing.returncode, sealing.stderr) == (0, "")


def readable(folder: Path) -> list[bytes]:
    content = b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())
    assert content
    return [secret for secret in SECRETS if secret in content]
