"""docs/commands.md states the limits of the code."""

from tests.doc_pages import DocPage

PAGE = DocPage("commands.md")


def test_the_limits_are_those_of_the_code() -> None:
    from deep_agent_mcp.harness.shell.bubblewrap import BubblewrapExecutionPolicy
    from deep_agent_mcp.harness.shell.jobs import JobLimits
    from deep_agent_mcp.harness.shell.mount_table import TableLimits

    policy, jobs, table = BubblewrapExecutionPolicy(), JobLimits(), TableLimits()
    limits = PAGE.text("Limits")
    assert f"| {policy.command_timeout:g} s, {policy.max_command_timeout:g} s |" in limits
    processes, memory = policy.total_processes or 0, policy.total_memory_bytes or 0
    assert f"| {processes:,}, {memory >> 30} GiB |" in limits
    assert f"| {policy.tmp_bytes >> 20} MiB |" in limits
    assert f"| {policy.max_output_lines}, {policy.max_output_bytes:,} |" in limits
    assert f"({jobs.running} of a thread)" in PAGE.text("Background jobs")
    assert f"({jobs.output_bytes >> 20} MiB, both ends)" in PAGE.text("Background jobs")
    rules = PAGE.text("The same rules")
    assert f"for {table.seconds:g} s and {table.entries:,} entries" in rules
    assert f"beyond {table.points} guarded paths" in rules
