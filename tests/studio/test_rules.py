"""Decisions that last: shown before they hold, limited, revocable, and never a model's to make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from deep_agent_mcp.harness.checkpoint.base import Batch, Interrupt
from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.tools.tool import Tool
from deep_agent_mcp.server.approvals import remembered as remembered_rules
from deep_agent_mcp.server.approvals.remembered import proposed
from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller
from deep_agent_mcp.server.operations.run_admin import RunAdmin
from deep_agent_mcp.server.studio import Studio
from deep_agent_mcp.server.studio.methods import AddParams, ProposeParams
from deep_agent_mcp.server.tools.lasting_decisions import LastingDecisions
from tests.studio.looking import Looking, calling_as, looking, script

pytestmark = pytest.mark.anyio


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "write_file", "args": {"path": path, "content": content}}]}


TASK = {"tool_calls": [{"name": "task", "args": {"description": "write one"}}]}
RUNS = script(
    one=[write("/notes/a.txt", "1"), {"text": "Done."}],
    two=[write("/notes/a.txt", "2"), {"text": "Done."}],
    three=[write("/notes/b.txt", "3"), {"text": "Done."}],
    four=[write("/other.txt", "4"), {"text": "Done."}],
    hand={
        "main": [TASK, {"text": "Done."}],
        "general-purpose": [write("/notes/a.txt", "1"), {"text": "Done."}],
    },
)
ASKS = ("write_file",)


async def asked(server: Looking, goal: str, **more: Any) -> dict[str, Any]:
    run = await server.call("task", goal=goal, **more)
    assert run["status"] == "needs_approval", run
    (question,) = run["pending"]
    return {**run, "question": question["id"]}


async def remember(server: Looking, run: dict[str, Any], scope: str, kind: str) -> dict[str, Any]:
    found = await server.ask("rules/propose", runId=run["run_id"], questionId=run["question"])
    (chosen,) = [
        one for one in found["proposals"] if (one["scope"], one["match"]["kind"]) == (scope, kind)
    ]
    await server.ask("rules/add", proposal=chosen["proposal"])
    await server.call("reply", run_id=run["run_id"], decision="approve")
    return chosen


@pytest.mark.parametrize(
    ("kind", "passes"),
    [
        ("exact", {"one"}),
        ("path", {"one", "two"}),
        ("below", {"one", "two", "three"}),
    ],
)
async def test_a_rule_lets_through_what_it_says_and_nothing_else(
    tmp_path: Path, kind: str, passes: set[str]
):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        rule = await remember(server, await asked(server, "one"), "always", kind)
        assert rule["says"].startswith("Let main call write_file")
        for goal in ("one", "two", "three", "four"):
            run = await server.call("task", goal=goal)
            assert run["status"] == ("done" if goal in passes else "needs_approval")
            if run["status"] != "done":
                await server.call("cancel", run_id=run["run_id"])
        # A subagent is another agent.
        assert (await server.call("task", goal="hand"))["status"] == "needs_approval"


async def test_a_rule_of_a_thread_holds_there_alone_and_survives_a_restart(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        await remember(server, run, "thread", "any")
        again = await server.call("task", goal="four", thread_id=run["thread_id"])
        assert again["status"] == "done"
        assert (await server.call("task", goal="one"))["status"] == "needs_approval"
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        again = await server.call("task", goal="three", thread_id=run["thread_id"])
        assert again["status"] == "done"
        (rule,) = (await server.read("studio://rules"))["rules"]
        assert (rule["scope"], rule["thread_id"]) == ("thread", run["thread_id"])
        await server.ask("rules/revoke", id=rule["id"])
        assert (await server.read("studio://rules"))["rules"] == []
        last = await server.call("task", goal="two", thread_id=run["thread_id"])
        assert last["status"] == "needs_approval"
        with pytest.raises(MCPError, match="There is no rule"):
            await server.ask("rules/revoke", id=rule["id"])


async def test_what_the_policy_denies_or_wants_decided_each_time_is_never_let_through(
    tmp_path: Path,
):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\naction = "ask"\ntool = "write_file"\n')
    async with looking(tmp_path, RUNS, policy=[str(policy)]) as server:
        await remember(server, await asked(server, "one"), "always", "below")
        assert (await server.call("task", goal="two"))["status"] == "done"
        policy.write_text('[[rule]]\naction = "ask"\ntool = "write_file"\neach_time = true\n')
        server.app.common.policy.reload()
        run = await asked(server, "one")
        await server.call("cancel", run_id=run["run_id"])
        policy.write_text('[[rule]]\naction = "deny"\ntool = "write_file"\nreason = "no"\n')
        server.app.common.policy.reload()
        done = await server.call("task", goal="one")
        steps = (await server.read(f"thread://{done['thread_id']}/steps"))["steps"]
        (refused,) = [one for one in steps if one["kind"] == "tool"]
        assert "was refused" in refused["text"]


async def test_a_model_cannot_make_a_decision_last(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        listed = (await server.client.list_tools()).tools
        assert [one.name for one in listed if "remember" in one.model_dump_json()] == []
        answer = {"decision": "approve", "remember": "always"}
        for more in (answer, {"answers": {run["question"]: answer}}):
            said = await server.said("reply", run_id=run["run_id"], **more)
            assert "Nothing was stored: you may not make a decision last" in said
            assert (await server.read("studio://rules"))["rules"] == []
            assert (await server.read(f"run://{run['run_id']}"))["status"] == "needs_approval"


async def test_the_model_of_a_run_cannot_make_a_decision_last_by_a_call_of_its_own(tmp_path: Path):
    args = {"run_id": "run_1", "decision": "approve", "remember": "always"}
    calls = {"tool_calls": [{"name": "reply", "args": args}]}
    async with looking(tmp_path, script(sly=[calls, {"text": "No."}])) as server:
        done = await server.call("task", goal="sly")
        steps = (await server.read(f"thread://{done['thread_id']}/steps"))["steps"]
        (refused,) = [one for one in steps if one["kind"] == "tool"]
        assert "no tool" in refused["text"], refused
        assert (await server.read("studio://rules"))["rules"] == []


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ("thread", "with exactly these arguments, on this thread"),
        ({"scope": "always", "match": "path"}, "on /notes/a.txt, on all"),
        ({"scope": "thread", "match": "below"}, "on everything in /notes, on this thread"),
        ({"scope": "thread", "match": "any"}, "with any arguments"),
    ],
)
async def test_a_reply_names_one_of_the_rules_that_would_be_proposed(
    tmp_path: Path, wish: JsonValue, says: str
):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        async with calling_as(Caller("", ALL_SCOPES | {"remember"})):
            lasting = LastingDecisions(server.app.services)
            assert await lasting.choose(run["run_id"], "approve", {}, wish) == {}
            await lasting.store(run["run_id"])
            assert (await server.read("studio://rules"))["rules"] == []  # it is not approved yet
            await server.call("reply", run_id=run["run_id"], decision="approve")
            await lasting.store(run["run_id"])
        (rule,) = (await server.read("studio://rules"))["rules"]
        assert says in rule["says"]


@pytest.mark.parametrize(
    ("decision", "answers", "wish", "said"),
    [
        ("approve", {}, "forever", r'one of:\n- {"scope": "thread", "match": "exact"}: Let main'),
        ("approve", {}, {"scope": "always", "match": "any"}, "names no rule"),
        ("reject", {}, "thread", "goes with"),
        ("", {"int_x": {"decision": "approve", "remember": "thread"}}, None, "goes with"),
    ],
)
async def test_a_reply_that_names_no_rule_is_refused_with_those_there_are(
    tmp_path: Path, decision: str, answers: dict[str, JsonValue], wish: JsonValue, said: str
):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        async with calling_as(Caller("", ALL_SCOPES | {"remember"})):
            lasting = LastingDecisions(server.app.services)
            with pytest.raises(HarnessError, match=said):
                await lasting.choose(run["run_id"], decision, answers, wish)


async def test_a_rule_is_shown_before_it_holds_and_only_what_was_shown_is_stored(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        found = await server.ask("rules/propose", runId=run["run_id"], questionId=run["question"])
        assert (await server.read("studio://rules"))["rules"] == []
        good = found["proposals"][0]["proposal"]
        for bad in ("x", good[:-8], good.replace(good[40:44], "AAAA")):
            with pytest.raises(MCPError, match="nothing was stored"):
                await server.ask("rules/add", proposal=bad)
        with pytest.raises(MCPError, match="no open approval"):
            await server.ask("rules/propose", runId=run["run_id"], questionId="int_x")


async def test_who_may_not_approve_and_who_is_somebody_else_makes_no_rules(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        studio = Studio(server.app.services)
        params = ProposeParams(runId=run["run_id"], questionId=run["question"])
        async with calling_as(Caller("", frozenset({"drive", "delegate"}))):
            with pytest.raises(MCPError, match="needs the scope 'approve'"):
                await studio.act("rules/propose", None, params)  # type: ignore[arg-type]
        async with calling_as(Caller("eve", ALL_SCOPES - {"admin"})):
            with pytest.raises(MCPError, match="no open approval"):
                await studio.act("rules/propose", None, params)  # type: ignore[arg-type]


async def test_rules_that_this_server_did_not_sign_are_left_out(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        await remember(server, await asked(server, "one"), "always", "exact")
        journal = server.app.journal
        (stored,) = await journal.interrupts("rules_")
        rule: Any = {**stored.payload["rule"], "id": "rule_2", "match": {"kind": "any"}}  # type: ignore[dict-item]
        forged = replace(stored, id="rule_2", payload={**stored.payload, "rule": rule})
        await journal.commit(Batch("rules_", interrupts=[forged]))
        assert len((await server.read("studio://rules"))["rules"]) == 1
        assert (await server.call("task", goal="four"))["status"] == "needs_approval"


@pytest.mark.parametrize(
    ("name", "args", "open_world", "kinds"),
    [
        ("upload", {"path": "/notes/a.txt", "host": "a"}, True, {"exact"}),
        ("remote", {"command": "git status", "host": "a"}, True, {"exact"}),
        ("write_file", {"path": "/notes/a.txt"}, False, {"exact", "path", "below", "any"}),
        ("execute", {"command": "git status -s"}, True, {"exact", "command"}),
    ],
)
async def test_of_what_reaches_outside_only_the_same_arguments_can_be_remembered(
    name: str, args: dict[str, JsonValue], open_world: bool, kinds: set[str]
):
    question = Interrupt(
        id="int_1",
        thread_id="thr_1",
        ns="",
        step_id="",
        run_id="run_1",
        kind="approval",
        path=("main", "call_1"),
        message="",
        payload={"tool": name, "args": args},
        answer_schema={},
    )
    schema = {"type": "object", "properties": {one: {"type": "string"} for one in args}}
    tool = Tool.from_schema(name, name, schema, _nothing, open_world=open_world)
    assert {one.match.kind for one in proposed(question, tool)} == kinds


def _nothing(args: dict[str, Any]) -> None: ...


async def test_the_place_of_rules_is_no_thread_for_anybody(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        await remember(server, await asked(server, "one"), "always", "exact")
        found = await server.call("threads")
        assert [one["thread_id"] for one in found["threads"] if "rules" in one["thread_id"]] == []
        with pytest.raises(MCPError, match="There is no thread"):
            await server.read("thread://rules_/overview")
        assert "There is no thread" in await server.said("threads", thread_id="rules_")
        assert (await server.read("threads://search"))["all"] == 1


async def test_decisions_say_who_decided_what_and_how_and_travel_with_the_thread(tmp_path: Path):
    from deep_agent_mcp.harness.checkpoint.memory import MemoryCheckpointer
    from deep_agent_mcp.harness.checkpoint.transfer import export_thread, import_thread

    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        rule = await remember(server, run, "thread", "any")
        await server.call("task", goal="two", thread_id=run["thread_id"])
        uri = f"thread://{run['thread_id']}/decisions"
        later, first = (await server.read(uri))["decisions"]
        assert (first["decision"], first["how"], first["tool"]) == (
            "approve", "reply", "write_file"
        )  # fmt: skip
        assert (first["by"], first["asked_by"]) == ("", ["main"])
        assert first["client"]
        assert first["question"] == run["question"]
        assert (later["how"], later["rule"]) == ("rule", rule["id"])
        lines = [one async for one in export_thread(server.app.journal, run["thread_id"])]
        journal = MemoryCheckpointer()
        await import_thread(journal, lines)
        kept = [
            one.payload["how"]
            for each in await journal.find_runs(thread_id=run["thread_id"])
            for one in await journal.interrupts(each.id)
            if one.kind == "decision"
        ]
        assert sorted(map(str, kept)) == ["reply", "rule"]


async def test_decisions_on_the_command_line_are_kept_too(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        settings = server.app.services.settings
    async with RunAdmin.open(settings) as admin:
        await admin.answer(run["run_id"], {run["question"]: {"decision": "approve"}})
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        await server.call("wait", run_id=run["run_id"])
        (only,) = (await server.read(f"thread://{run['thread_id']}/decisions"))["decisions"]
        assert (only["how"], only["decision"], only["by"]) == ("cli", "approve", "")


async def test_an_admin_makes_no_decision_last_for_another_user(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        studio = Studio(server.app.services)
        params = ProposeParams(runId=run["run_id"], questionId=run["question"])
        found = await server.ask("rules/propose", runId=run["run_id"], questionId=run["question"])
        remembered = server.app.runs.supervisor.consents.remembered
        assert remembered is not None
        rule = remembered.unseal(found["proposals"][0]["proposal"])
        async with calling_as(Caller("boss", ALL_SCOPES | {"remember"})):
            with pytest.raises(MCPError, match=r"another user's.*Nothing was stored"):
                await studio.act("rules/propose", None, params)  # type: ignore[arg-type]
            mine = remembered.seal(replace(rule, by="boss"))
            with pytest.raises(MCPError, match=r"another user's.*Nothing was stored"):
                await studio.act("rules/add", None, AddParams(proposal=mine))  # type: ignore[arg-type]
            with pytest.raises(HarnessError, match=r"another user's.*Nothing was stored"):
                await LastingDecisions(server.app.services).choose(
                    run["run_id"], "approve", {}, "always"
                )
        assert (await server.read("studio://rules"))["rules"] == []


async def test_a_rule_of_a_thread_ends_with_the_thread(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one", thread_id="work")
        rule = await remember(server, run, "thread", "any")
        again = await server.call("task", goal="two", thread_id="work")
        assert again["status"] == "done"  # the rule holds on this thread
        gone = {"threadId": run["thread_id"], "confirm": run["thread_id"]}
        await server.ask("threads/delete", **gone)
        run = await server.call("task", goal="one", thread_id="work")
        assert (run["status"], run["thread_id"]) == ("needs_approval", gone["threadId"])
        listed = (await server.read("studio://rules"))["rules"]
        assert rule["id"] not in [one["id"] for one in listed]


async def test_rules_of_threads_that_are_gone_take_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(remembered_rules, "MOST_RULES", 1)
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one")
        await remember(server, run, "thread", "exact")
        another = await asked(server, "one")
        with pytest.raises(MCPError, match="the most allowed; nothing was stored"):
            await remember(server, another, "thread", "exact")
        gone = {"threadId": run["thread_id"], "confirm": run["thread_id"]}
        await server.ask("threads/delete", **gone)
        rule = await remember(server, another, "thread", "exact")
        assert [one["id"] for one in (await server.read("studio://rules"))["rules"]] == [rule["id"]]


async def test_a_rule_of_a_thread_does_not_hold_by_a_run_that_was_moved_elsewhere(tmp_path: Path):
    async with looking(tmp_path, RUNS, approve=ASKS) as server:
        run = await asked(server, "one", thread_id="work")
        await remember(server, run, "thread", "any")
        journal = server.app.journal
        known = await journal.run(run["run_id"])
        assert known is not None
        thread_id = run["thread_id"]
        await server.ask("threads/delete", threadId=thread_id, confirm=thread_id)
        moved = replace(known, thread_id="thr_elsewhere", status="done")  # as an import has it
        await journal.commit(Batch("thr_elsewhere", runs=[moved]))
        again = await server.call("task", goal="one", thread_id="work")
        assert (again["thread_id"], again["status"]) == (thread_id, "needs_approval")
