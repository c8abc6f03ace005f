"""The story the demo tells, section by section. Whatever it says is checked as it goes.

One rule for all sections: what is claimed to the reader goes through `Story._claim`, which ends
the demo if it is not so.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client
from mcp.shared.exceptions import MCPError

from .conversation import Conversation, Facts, ServerProcess
from .view import DemoFailed, Journal, RunTree, Stamp, View, open_calls, stamp

__all__ = ["GATED", "Story"]

GATED = "edit_file"
"""The tool whose calls need an approval in the demo."""

CHANGES = """\
# Changes in 1.1
Status: draft
- Search is twice as fast
- Dark mod
"""
TODOS = ("Write down the changes", "Write the release note", "Have it reviewed")
SKILL = "reviewing-changes"
GOAL = """\
Write the release note for version 1.1. Take these steps in this order, one at a time:
1. Read /notes/changes.md, and load the skill "reviewing-changes".
2. Write /release/NOTE.md: the title "# Version 1.1", then one bullet per change.
3. In /notes/changes.md change "Status: draft" to "Status: final" with edit_file.
4. Have /release/NOTE.md reviewed by a subagent (the task tool, general-purpose). It shall read \
the note, grep /release for "TODO", write its findings to /release/REVIEW.md with write_file, read \
that back, and report.
5. Set every item of your todo list to completed with write_todos; keep the texts.
6. Answer in one or two sentences.
Change no other files and do not write a file twice."""


class Story:
    """Tells it.

    Args:
        view: Where it is shown.
        server: Starts and kills the server.
        root: The directory the server's file tools work in.
        journal: The journal's file.
        live: Whether the model is a real one, which may take other ways to the same end.
    """

    def __init__(
        self, view: View, server: ServerProcess, root: Path, journal: Path, *, live: bool
    ) -> None:
        self._view = view
        self._server = server
        self._root = root
        self._journal = journal
        self._live = live
        self._thread = ""
        self._run = ""
        self._origin = ""
        self._tree = RunTree(())
        self._stamps: dict[str, Stamp] = {}

    async def tell(self) -> None:
        """Tell all of it.

        Raises:
            DemoFailed: Something is not as the story has it.
        """
        async with self._connected() as talk:
            await self._todos(talk)
            await self._files(talk)
            await self._skill(talk)
            await self._delegate(talk)
            await self._approve_and_kill(talk)
        before = await self._between()
        self._view.section(
            "Started again",
            "A new process finds the run that the first one left, and continues it.",
        )
        async with self._connected() as talk:
            await self._finish(talk, before)
            await self._history(talk)
            await self._rewind(talk)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Conversation]:
        async with Client(self._server.connect()) as client:
            tools = [one.name for one in (await client.list_tools()).tools]
            self._view.say(
                f"Server process {self._server.pid} speaks MCP {client.protocol_version} and "
                f"offers {len(tools)} tools."
            )
            if not self._tree.root.children:
                self._tree = RunTree(tools)
            yield Conversation(client, self._view, self._thread)

    def _claim(self, true: object, claim: str, found: object = "") -> None:
        if not true:
            raise DemoFailed(f"This should be so and is not: {claim} {found}".rstrip())
        self._view.checked(claim)

    def _on_disk(self, path: str) -> str:
        try:
            return (self._root / path.lstrip("/")).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DemoFailed(f"{path} should be on disk by now, and is not") from None

    # --- driving ---------------------------------------------------------------------------

    async def _todos(self, talk: Conversation) -> None:
        self._view.section("A todo list", "First we drive: this client calls the tools itself.")
        first = [
            {"content": text, "status": "pending" if number else "in_progress"}
            for number, text in enumerate(TODOS)
        ]
        text, facts = await talk.call("write_todos", todos=first)
        self._thread = talk.thread_id = facts["thread_id"]
        self._view.result(text)
        self._view.say(
            f"The list lives in the durable thread {self._thread}. All later calls name that "
            "thread; it is left out below."
        )
        self._claim(facts["counts"]["total"] == len(TODOS), "The list is written.")

    async def _files(self, talk: Conversation) -> None:
        view = self._view
        view.section("Files", f"In a scratch directory on this disk: {self._root}")
        text, _ = await talk.call("write_file", path="/notes/changes.md", content=CHANGES)
        view.outcome(text)
        edit = {"old_string": "Dark mod\n", "new_string": "Dark mode\n"}
        _, facts = await talk.call("edit_file", path="/notes/changes.md", **edit)
        view.outcome(
            f"{facts.get('status')}: this server was started with --approve {GATED}, so it asks "
            "first, whoever calls. More on that in section 5."
        )
        self._claim("Dark mod\n" in self._on_disk("/notes/changes.md"), "Nothing is edited yet.")
        facts = await talk.delegate(
            "reply", RunTree(()), run_id=facts["run_id"], decision="approve"
        )
        view.outcome(str(facts.get("answer", "")))
        self._claim("Dark mode\n" in self._on_disk("/notes/changes.md"), "The edit is on disk.")
        text, _ = await talk.call("grep", pattern="mode", output_mode="content")
        view.outcome(text)
        self._claim("Dark mode" in text, "The search finds the line.")
        done = [
            {"content": text, "status": "pending" if number else "completed"}
            for number, text in enumerate(TODOS)
        ]
        text, facts = await talk.call("write_todos", todos=done)
        view.result(text)
        self._claim(facts["counts"]["completed"] == 1, "The first item is ticked off.")

    async def _skill(self, talk: Conversation) -> None:
        self._view.section(
            "A skill",
            "Instructions for one kind of work, found by description, loaded when needed.",
        )
        text, _ = await talk.call("skill")
        self._view.result(text)
        self._claim(f"- {SKILL}:" in text, f"{SKILL} is among them.")
        text, _ = await talk.call("skill", name=SKILL)
        head, _, body = text.partition("\n\n")
        titles = [line for line in body.splitlines() if line.startswith("#")]
        self._view.result("\n".join([head, "", *titles]))
        self._claim(len(text) > 500, f"Its instructions are loaded: {len(text):,} characters.")

    # --- delegating ------------------------------------------------------------------------

    async def _delegate(self, talk: Conversation) -> None:
        view = self._view
        view.section(
            "A goal, delegated",
            "Now an agent in the server works, on the same thread: it sees our todos and files.",
        )
        view.result(GOAL, "The goal")
        shown = await self._checkpoints(talk)
        self._origin = shown[0]["checkpoint_id"]
        view.outcome(f"The newest checkpoint is {self._origin}; section 9 goes back to it.")
        facts = await talk.delegate("task", self._tree, thread_id=self._thread, goal=GOAL)
        self._run = facts["run_id"]
        self._claim(
            facts["status"] == "needs_approval",
            f"Run {self._run} has begun, and stops at a question.",
            facts,
        )
        for one in facts["pending"]:  # the last progress messages may come too late to be heard
            self._tree.ask(one["tool"], str(one["asked_by"]).split(" > "))
        view.tree(self._tree, "So far:")
        self._claim(self._tree.calls(), "The agent has used its own tools.")
        self._ask(facts)

    def _ask(self, facts: Facts) -> None:
        self._view.section(
            "An approval",
            "The run waits in the journal, for seconds or days, until it is answered.",
        )
        question = facts["pending"][0]
        self._view.result(
            f"{question['question']}\nasked by: {question['asked_by']}\n"
            f"call: {question['tool']} {question['args']}\n"
            f"you may: {', '.join(question['decisions'])}",
            "The question",
        )
        self._claim(question["tool"] == GATED, f"It is about the call of {GATED}.")
        waiting = self._on_disk("/notes/changes.md")
        self._claim("Status: draft" in waiting, "The file is untouched while it waits.")
        self._view.say("A person decides here. The demo approves in your place:")

    async def _approve_and_kill(self, talk: Conversation) -> None:
        killed: list[str] = []

        def kill_when_due(agents: tuple[str, ...]) -> None:
            if not killed and self._is_due(agents):
                killed.append(" > ".join(agents))
                self._server.kill()

        facts: Facts = {"run_id": self._run}
        try:
            for _ in range(10):
                facts = await talk.delegate(
                    "reply", self._tree, kill_when_due, run_id=self._run, **_approval(facts)
                )
                if facts["status"] != "needs_approval":
                    break
        except MCPError:
            if not killed:
                raise DemoFailed("the server went away before it was killed") from None
        if not killed:
            raise DemoFailed(f"the run ended before the server could be killed: {facts}")
        code = await self._server.died()
        self._claim(
            "Status: final" in self._on_disk("/notes/changes.md"), "Approved, and the edit is made."
        )
        view = self._view
        view.section(
            "SIGKILL" if os.name == "posix" else "Killed",
            "No warning, no chance to tidy up. As a power cut would do it.",
        )
        view.strike(
            f"Server process {self._server.pid} is gone (exit code {code}), killed while the agent "
            f"{killed[0]} waited for its model."
        )
        view.tree(self._tree, "Where the run stood:")

    def _is_due(self, agents: tuple[str, ...]) -> bool:
        """Whether the run is where it must be killed: in a subagent that has written a file.

        A real model may never get there, so its run is killed at the first result in sight.
        """
        calls = self._tree.calls()
        if self._live:
            return any(one.finished and one.asked for one in calls)
        below = [one for call in calls for agent in call.children for one in agent.children]
        return len(agents) > 1 and any(one.finished and one.tool == "write_file" for one in below)

    async def _between(self) -> Journal:
        """Look at what is left while no server runs."""
        journal = await Journal.read(self._journal, self._run)
        self._claim(
            journal.run.status == "running",
            f"The journal on disk has the run as running, {journal.checkpoints} finished steps, "
            f"and {len(journal.changes)} changes of files.",
            journal.run.status,
        )
        self._stamps = {
            path: stamp(self._root / path.lstrip("/")) for path in dict(journal.changes)
        }
        self._tree.process = 2
        return journal

    async def _finish(self, talk: Conversation, before: Journal) -> None:
        view = self._view
        finished = [one for one in self._tree.calls() if one.finished]
        facts = await talk.delegate("wait", self._tree, run_id=self._run)
        for _ in range(10):
            if facts["status"] != "needs_approval":
                break
            facts = await talk.delegate("reply", self._tree, run_id=self._run, **_approval(facts))
        self._claim(facts["status"] == "done", "The run is done, under the same id.", facts)
        view.result(facts["answer"], "The agent's answer")
        view.tree(self._tree, "The whole run, over both processes:")
        new = [one for one in self._tree.calls() if one.process == 2]
        resumed = [one for one in self._tree.calls() if one.resumed]
        view.say(
            f"Calls finished before the kill: {len(finished)}. Open then and continued: "
            f"{len(resumed)}. Begun after it: {len(new)}."
        )
        subagents = [agent.label for call in self._tree.calls() for agent in call.children]
        self._claim(subagents, f"A subagent ({', '.join(subagents)}) had its part in it.")
        written = [self._on_disk(path) for path in ("/release/NOTE.md", "/release/REVIEW.md")]
        self._claim(all(written), "NOTE.md and REVIEW.md are on disk.")
        await self._nothing_twice(talk, before)
        todos = json.loads(await talk.read("todos"))
        self._claim(
            all(one["status"] == "completed" for one in todos),
            f"The agent has ticked off all {len(todos)} todos.",
            todos,
        )

    async def _nothing_twice(self, talk: Conversation, before: Journal) -> None:
        after = await Journal.read(self._journal, self._run)
        kept = tuple(after.changes[: len(before.changes)]) == tuple(before.changes)
        twice = [one for one in set(after.changes) if after.changes.count(one) > 1]
        self._claim(
            kept and not twice,
            f"{len(after.changes)} changes of files in the journal, {len(twice)} of them made "
            "twice.",
            twice,
        )
        changed_since = {path for path, _ in after.changes[len(before.changes) :]}
        same = [path for path in self._stamps if path not in changed_since]
        rewritten = [
            path for path in same if stamp(self._root / path.lstrip("/")) != self._stamps[path]
        ]
        self._claim(
            same and not rewritten,
            f"{len(same)} files from before the kill, {len(rewritten)} written again (inode and "
            "time on disk).",
            rewritten,
        )
        if not self._live:  # a real model may choose to look twice
            repeated = self._tree.repeated
            self._claim(
                not repeated,
                f"{len(repeated)} finished calls begun again, by what server 2 reports.",
                repeated,
            )
        calls, missing = open_calls(await talk.read("transcript"))
        self._claim(
            not missing,
            f"{calls} calls in the thread's transcript, each with exactly one result.",
            missing,
        )

    # --- history ---------------------------------------------------------------------------

    async def _checkpoints(self, talk: Conversation) -> list[Facts]:
        _, facts = await talk.call("threads", limit=50)
        return list(facts["checkpoints"])

    async def _history(self, talk: Conversation) -> None:
        self._view.section(
            "The history", "Every step is a checkpoint: to read, to fork from, to go back to."
        )
        shown = await self._checkpoints(talk)
        self._view.checkpoints(shown, self._origin)
        ids = [one["checkpoint_id"] for one in shown]
        self._claim(
            self._origin in ids,
            f"{len(ids)} checkpoints; {self._origin} is from before the delegated run.",
        )

    async def _rewind(self, talk: Conversation) -> None:
        view = self._view
        view.section("Going back", "To the checkpoint before the delegated run: files, todos, all.")
        view.result(self._on_disk("/notes/changes.md"), "/notes/changes.md on disk, before")
        text, _ = await talk.call("rewind", checkpoint_id=self._origin)
        view.outcome(text.partition("\nNext:")[0])
        now = self._on_disk("/notes/changes.md")
        view.result(now, "/notes/changes.md on disk, after")
        expected = CHANGES.replace("Dark mod\n", "Dark mode\n")
        self._claim(now == expected, "The file is back as it was, byte for byte.", repr(now))
        gone = not list((self._root / "release").glob("*"))
        self._claim(gone, "The files that the run had made are gone.")
        todos = json.loads(await talk.read("todos"))
        done = [one["content"] for one in todos if one["status"] == "completed"]
        self._claim(done == [TODOS[0]], "The todo list is back at one item done.", todos)


def _approval(facts: Facts) -> Facts:
    """Return the arguments of `reply` that approve what a run asks."""
    if "pending" not in facts:
        return {"decision": "approve"}
    return {"answers": {one["id"]: "approve" for one in facts["pending"]}}
