"""Every snippet of docs/commands.md runs as it is written, in real sandboxes."""

import os
from pathlib import Path

import pytest

from tests.doc_pages import DocPage
from tests.shell.support import need_bubblewrap

PAGE = DocPage("commands.md")
WITHOUT = ["Limits", "What a sandbox does and does not"]


@pytest.mark.skipif(os.name == "nt", reason="shells need a POSIX system")
@pytest.mark.parametrize("title", [one for one in PAGE.titles if one not in WITHOUT])
def test_the_snippets_of_a_section_run(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_bubblewrap()
    monkeypatch.chdir(tmp_path)
    PAGE.run(title)


def test_every_other_section_has_a_snippet_and_the_page_stays_short() -> None:
    assert PAGE.without_snippet() == WITHOUT
    assert PAGE.lines <= 230


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
