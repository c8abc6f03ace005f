"""Rules hold in code without an event loop as they do with one."""

from pathlib import Path

from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.messages.message import ToolMessage
from deep_agent_mcp.harness.policy import Policy, Rule
from tests.loop.models import Turns, call, says


def test_what_may_not_be_read_is_in_no_listing_of_a_sync_run(tmp_path: Path) -> None:
    (tmp_path / "open.txt").write_text("needle")
    (tmp_path / "secret.key").write_text("needle")
    model = Turns(
        says("", call("1", "ls", path="/"), call("2", "glob", pattern="*")),
        says("", call("3", "grep", pattern="needle"), call("4", "read_file", path="/secret.key")),
        says("Done."),
    )
    agent = create_deep_agent(
        model,
        backend=DirectoryBackend(tmp_path),
        policy=Policy([Rule("deny", path="/*.key", reason="keys")]),
    )
    result = agent.invoke("go")
    *listings, read = [one for one in result.state["messages"] if isinstance(one, ToolMessage)]
    assert all("open.txt" in one.text and "secret" not in one.text for one in listings)
    assert len(listings) == 3 and "keys" in read.text and read.status == "error"
