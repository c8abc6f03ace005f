"""Runs that wait for a client's model: how long, for whom, and what they say."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp import Client
from mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResultWithTools,
    ErrorData,
)

from deep_agent_mcp.harness.checkpoint.base import Run
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import ThreadBusy, UnknownRun
from deep_agent_mcp.harness.limits.limits import Limits
from deep_agent_mcp.harness.loop.run.events import Event
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage
from deep_agent_mcp.harness.models.base import ChatRequest
from deep_agent_mcp.harness.models.registry import UnknownModel
from deep_agent_mcp.server.app import App, create_app
from deep_agent_mcp.server.auth.caller import ALL_SCOPES, Caller, current_caller
from deep_agent_mcp.server.auth.shared_state import PrincipalFile
from deep_agent_mcp.server.doctor.environment import examine_key
from deep_agent_mcp.server.engine import Bounds
from deep_agent_mcp.server.sampling import queue as sampling_queue
from deep_agent_mcp.server.sampling.client_model import sampling_model
from deep_agent_mcp.server.sampling.messages import params_of
from deep_agent_mcp.server.sampling.queue import PARKED, SampledRun, SamplingQueue
from deep_agent_mcp.server.sampling.sampled_call import Activity, SampledCall
from deep_agent_mcp.server.settings.sources import load_settings
from tests.e2e.client_model import ClientModel, calls, says
from tests.e2e.servers import ERAS, Era, call, refused, text_of
from tests.e2e.task_client import TaskChange, Tasks, ask, listen_to

pytestmark = pytest.mark.anyio

HELLO = {"hello": [says("Hello.")]}
WRITE = calls(("write_file", {"path": "/a.txt", "content": "a"}))


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@asynccontextmanager
async def running(
    place: Path, environ: dict[str, str] | None = None, **flags: object
) -> AsyncGenerator[App]:
    given = {"state_dir": str(place / "state"), **flags}
    with anyio.fail_after(60):
        async with create_app(load_settings(given, environ or {})) as app:
            yield app


async def test_a_run_nobody_lends_a_model_to_is_paused_and_goes_on_with_who_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as app:
        with monkeypatch.context() as hurried:
            hurried.setattr(sampling_queue, "UNATTENDED_SECONDS", 0.05)
            run_id = await app.runs.start("hello", offer="tools")
            parked = await app.runs.wait(run_id, 60)
        assert (parked.run.status, parked.run.reason) == ("paused", PARKED)
        async with Client(app.server) as client:
            seen = await call(client, "wait", run_id=run_id)
            assert seen["status"] == "paused" and "sampling with tools" in seen["next"]
        for mode in ERAS:
            model = ClientModel(HELLO)
            async with Client(app.server, mode=mode, **model.options) as client:
                done = await call(client, "wait", run_id=run_id)
            assert done["answer"] == "Hello."
            assert len(model.asked) == (1 if mode == ERAS[0] else 0)


async def test_a_paused_run_goes_on_when_its_task_is_looked_at_by_who_lends_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, model="sampling") as app:
        with monkeypatch.context() as hurried:
            hurried.setattr(sampling_queue, "UNATTENDED_SECONDS", 0.0)
            run_id = await app.runs.start("hello", offer="tools")
            assert (await app.runs.wait(run_id, 60)).run.reason == PARKED
        async with Client(app.server, extensions=[Tasks()]) as client:
            seen = await ask(client.session, "tasks/get", run_id)
            assert seen["result"]["structuredContent"]["status"] == "paused"
        model = ClientModel(HELLO)
        async with Client(app.server, extensions=[Tasks()], **model.options) as client:
            seen = await ask(client.session, "tasks/get", run_id)
            assert seen["status"] in ("working", "input_required")
            assert (await call(client, "wait", run_id=run_id))["answer"] == "Hello."


async def parked(app: App, hurried: pytest.MonkeyPatch, goal: str = "hello") -> Run:
    """Return a run that was paused for want of a client."""
    with hurried.context() as now:
        now.setattr(sampling_queue, "UNATTENDED_SECONDS", 0.0)
        run = (await app.runs.wait(await app.runs.start(goal, offer="tools"), 10)).run
    assert run.reason == PARKED
    return run


async def test_a_paused_run_whose_thread_went_on_without_it_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ClientModel(HELLO)
    async with running(tmp_path) as app:
        runs = [await parked(app, monkeypatch) for _ in range(2)]
        async with Client(app.server, extensions=[Tasks()], **model.options) as client:
            for one in runs:
                app.runs.sampling.lease(one.thread_id)
                newer = await app.runs.start("hello", thread_id=one.thread_id, offer="tools")
                assert (await call(client, "wait", run_id=newer))["answer"] == "Hello."
            seen = await ask(client.session, "tasks/get", runs[0].id)
            assert "moved on without" in seen["statusMessage"]
            why = await refused(client, "wait", run_id=runs[1].id)
            assert "moved on without" in why and "failed" in why


async def test_a_list_of_tasks_lets_no_paused_run_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ClientModel(HELLO)
    async with running(tmp_path) as app:
        run = await parked(app, monkeypatch)
        async with Client(app.server, mode="legacy", **model.options) as client:
            seen = await ask(client.session, "tasks/list", "")
        assert [one["taskId"] for one in seen["tasks"]] == [run.id]
        assert (await app.runs.snapshot(run.id)).run.reason == PARKED


async def test_a_list_of_tasks_leaves_out_what_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ClientModel(HELLO)
    async with running(tmp_path) as app:
        gone, left = [await parked(app, monkeypatch) for _ in range(2)]
        find_runs = SqliteCheckpointer.find_runs

        async def then_deleted(journal: SqliteCheckpointer, **wanted: Any) -> list[Run]:
            found = await find_runs(journal, **wanted)
            await journal.delete_thread(gone.thread_id)
            return found

        async with Client(app.server, mode="legacy", **model.options) as client:
            monkeypatch.setattr(SqliteCheckpointer, "find_runs", then_deleted)
            seen = await ask(client.session, "tasks/list", "")
        assert [one["taskId"] for one in seen["tasks"]] == [left.id]


async def test_a_paused_run_that_is_one_too_many_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = Caller("ann", ALL_SCOPES)
    token = current_caller.set(ann)
    (tmp_path / "state").mkdir()
    PrincipalFile(tmp_path / "state" / "principals.jsonl").add(ann)
    try:
        async with running(tmp_path) as app:
            run = await parked(app, monkeypatch)
            app.runs.bound(Limits(), Bounds(max_runs=1), 0, 0)
            await app.runs.start("hello", offer="tools")
            with pytest.raises(ThreadBusy, match="1 of your runs are working"):
                await app.runs.unpark(run.id)
    finally:
        current_caller.reset(token)


async def test_a_model_call_counts_once_a_client_has_been_given_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, {"DEEP_AGENT_LIMITS_MODEL_CALLS": "2"}) as app:
        run = await parked(app, monkeypatch)
        for _ in range(3):  # nobody comes
            with monkeypatch.context() as hurried:
                hurried.setattr(sampling_queue, "UNATTENDED_SECONDS", 0.0)
                await app.runs.unpark(run.id)
                assert (await app.runs.wait(run.id, 10)).run.reason == PARKED
        given_up = ClientModel({"hello": [ErrorData(code=-1, message="Not now.")]})
        async with Client(app.server, mode="legacy", **given_up.options) as client:
            why = await client.call_tool("wait", {"run_id": run.id})
            assert used(why)["model_calls"] == 1
        model = ClientModel(HELLO)
        async with Client(app.server, mode="legacy", **model.options) as client:
            done = await client.call_tool("reply", {"run_id": run.id})
    assert used(done)["model_calls"] == 2 and "Used: 2 model calls" in text_of(done)


def used(result: CallToolResult) -> dict[str, Any]:
    return cast("dict[str, Any]", (result.structured_content or {})["usage"])


async def test_what_no_model_was_asked_for_counts_as_no_call(tmp_path: Path) -> None:
    for model in (None, "sampling"):
        async with running(tmp_path, model=model) as app, Client(app.server) as client:
            failed = await client.call_tool("task", {"goal": "hello"})
        assert (failed.structured_content or {})["status"] == "failed"
        assert "Used:" not in text_of(failed)


async def test_two_who_let_a_paused_run_go_on_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as app:
        run = await parked(app, monkeypatch)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(app.runs.unpark, run.id)
        assert len((await app.runs.wait(run.id, 10, to_lend=True)).calls) == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_a_recovered_run_is_not_failed_by_a_client_that_only_looks(
    mode: Era, tmp_path: Path
) -> None:
    async with running(tmp_path) as app:
        run_id = await app.runs.start("hello", offer="tools")
        async with Client(app.server) as client:
            early = await call(client, "wait", run_id=run_id, wait_seconds=0.1)
            assert early["status"] == "running"
    async with running(tmp_path) as app:
        async with Client(app.server) as client:
            assert (await call(client, "wait", run_id=run_id, wait_seconds=0.1))[
                "status"
            ] == "running"
        model = ClientModel(HELLO)
        async with Client(app.server, mode=mode, **model.options) as client:
            assert (await call(client, "wait", run_id=run_id))["answer"] == "Hello."


async def test_waiting_by_zero_seconds_asks_nothing(tmp_path: Path) -> None:
    model = ClientModel(HELLO)
    async with running(tmp_path) as app, Client(app.server, **model.options) as client:
        run_id = (await call(client, "task", goal="hello", wait_seconds=0))["run_id"]
        assert (await call(client, "wait", run_id=run_id, wait_seconds=0))["status"] == "running"
        assert not model.asked


class Slow:
    """A model that thinks until it is told that nobody wants to know any more."""

    def __init__(self) -> None:
        self.thinking, self.stopped = anyio.Event(), anyio.Event()

    async def think(self) -> None:
        self.thinking.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.stopped.set()


async def test_a_cancelled_run_takes_its_question_back_from_the_client(tmp_path: Path) -> None:
    slow = Slow()
    model = ClientModel({"hello": [slow.think]})
    async with (
        running(tmp_path) as app,
        Client(app.server, mode="legacy", **model.options) as client,
        anyio.create_task_group() as group,
    ):
        run_id = (await call(client, "task", goal="hello", wait_seconds=0))["run_id"]

        async def cancel() -> None:
            await slow.thinking.wait()
            assert "waiting for the client's model" in (app.runs.doing(run_id) or "")
            await app.runs.cancel(run_id, "enough")

        group.start_soon(cancel)
        assert (await call(client, "wait", run_id=run_id))["status"] == "cancelled"
        await slow.stopped.wait()


async def test_a_server_that_ends_takes_its_question_back_and_the_run_can_go_on(
    tmp_path: Path,
) -> None:
    slow = Slow()
    model = ClientModel({"hello": [slow.think]})
    async with (
        running(tmp_path) as app,
        Client(app.server, mode="legacy", **model.options) as client,
        anyio.create_task_group() as group,
    ):
        run_id = (await call(client, "task", goal="hello", wait_seconds=0))["run_id"]
        group.start_soon(lambda: call(client, "wait", run_id=run_id))
        await slow.thinking.wait()
        app.services.requests.close()
        await slow.stopped.wait()
        assert (await app.runs.snapshot(run_id)).run.status == "running"
        group.cancel_scope.cancel()


async def test_of_two_clients_the_slower_one_is_told_that_the_other_has_answered(
    tmp_path: Path,
) -> None:
    slow = Slow()

    async def done() -> object:
        await slow.stopped.wait()
        return says("Done.")

    first, second = ClientModel({"hello": [slow.think]}), ClientModel({"hello": [WRITE, done]})
    async with (
        running(tmp_path) as app,
        Client(app.server, mode="legacy", **first.options) as one,
        Client(app.server, mode="legacy", **second.options) as other,
        anyio.create_task_group() as group,
    ):
        run_id = (await call(one, "task", goal="hello", wait_seconds=0))["run_id"]
        group.start_soon(lambda: call(one, "wait", run_id=run_id))
        await slow.thinking.wait()
        assert (await call(other, "wait", run_id=run_id))["answer"] == "Done."


async def test_who_finds_everything_answered_by_another_client_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered_meanwhile(self: SamplingQueue, thread_id: str) -> list[SampledCall]:
        self.take(thread_id, {one.key: says("Hello.") for one in self.calls(thread_id)})
        return self.calls(thread_id)

    monkeypatch.setattr(SamplingQueue, "gathered", answered_meanwhile)
    model = ClientModel(HELLO)
    async with running(tmp_path) as app, Client(app.server, **model.options) as client:
        assert (await call(client, "task", goal="hello"))["answer"] == "Hello."
    assert not model.asked


async def test_an_answer_to_a_question_that_is_no_longer_open_changes_nothing(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as app:
        run_id = await app.runs.start("hello", offer="tools")
        asked = await app.runs.wait(run_id, 10, to_lend=True)
        (one,) = asked.calls
        app.runs.sampling.take(asked.run.thread_id, {"smp_other": says("No.")})
        assert [call.key for call in (await app.runs.snapshot(run_id)).calls] == [one.key]
        for text in ("First.", "Second."):
            app.runs.sampling.take(asked.run.thread_id, {one.key: says(text)})
        done = await app.runs.wait(run_id, 60)
    assert done.run.answer == "First."


async def test_calls_of_one_thread_are_no_others(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        first = await app.runs.start("hello", offer="tools")
        asked = await app.runs.wait(first, 10, to_lend=True)
        second = await app.runs.start("hello", offer="tools")
        other = await app.runs.wait(second, 10, to_lend=True)
        (call,) = asked.calls
        app.runs.sampling.take(other.run.thread_id, {call.key: says("Wrong thread.")})
        assert (await app.runs.snapshot(first)).calls == [call]
        with pytest.raises(UnknownRun):
            await app.runs.wait("run_0000000000000000", 0)


async def test_a_limit_on_tokens_cannot_be_kept_and_says_so(tmp_path: Path) -> None:
    model = ClientModel({"hello": [WRITE, says("Hello.")]})
    environ = {"DEEP_AGENT_LIMITS_TOKENS": "100000"}
    async with running(tmp_path, environ) as app, Client(app.server, **model.options) as client:
        why = await refused(client, "task", goal="hello")
    assert "sampling does not report its tokens" in why and "model_calls" in why
    assert len(model.asked) == 1


@pytest.mark.parametrize("code", [-1, -32000, -32001])
async def test_whatever_its_code_a_refusal_fails_the_run(code: int, tmp_path: Path) -> None:
    model = ClientModel({"hello": [ErrorData(code=code, message="The user said no.")]})
    async with (
        running(tmp_path) as app,
        Client(app.server, mode="legacy", **model.options) as client,
    ):
        assert "The user said no." in await refused(client, "task", goal="hello")
    assert len(model.asked) == 1


def ended(text: str, reason: str) -> CreateMessageResultWithTools:
    return says(text).model_copy(update={"stop_reason": reason})


@pytest.mark.parametrize("reason", ["maxTokens", "max_tokens", "length"])
async def test_an_answer_that_the_clients_model_cut_off_goes_on_or_is_said_to_be_cut_off(
    reason: str, tmp_path: Path
) -> None:
    parts = {
        "short": [ended("Half ", reason)],
        "Go on exactly where it stopped": [says("an answer."), says("an answer.")],
    }
    async with running(tmp_path) as app:
        model = ClientModel(parts)
        async with Client(app.server, **model.options) as client:
            assert (await call(client, "task", goal="short"))["answer"] == "Half an answer."
        endless = ClientModel({"o": [ended("a ", reason)]})
        async with Client(app.server, **endless.options) as client:
            failed: Any = (await client.call_tool("task", {"goal": "go"})).structured_content
        assert (failed["status"], len(endless.asked)) == ("failed", 4)
        assert "cut off 4 times" in failed["reason"]
        assert failed["answer"] == "a a a a \n\n[The answer was cut off here.]"


async def test_an_empty_answer_of_the_clients_model_is_asked_for_once_more(tmp_path: Path) -> None:
    async with running(tmp_path) as app:
        turns = iter([says(""), says("Hello.")])

        async def turn() -> CreateMessageResultWithTools:
            return next(turns)

        model = ClientModel({"hello": [turn]})
        async with Client(app.server, **model.options) as client:
            assert (await call(client, "task", goal="hello"))["answer"] == "Hello."
        assert "Your answer was empty" in str(model.asked[1].messages)
        mute = ClientModel({"e": [says(" \n")]})
        async with Client(app.server, **mute.options) as client:
            failed: Any = (await client.call_tool("task", {"goal": "hello"})).structured_content
        assert (failed["status"], len(mute.asked)) == ("failed", 2)
        assert "answer was empty" in failed["reason"]


async def test_a_request_too_large_for_the_clients_model_is_summarised(tmp_path: Path) -> None:
    written: list[str] = []

    class Small(ClientModel):
        async def __call__(self, context: Any, params: CreateMessageRequestParams) -> Any:
            if params.tools is None:
                return says("A summary.")
            if len(str(params.messages)) > 20_000:
                return ErrorData(code=-1, message="prompt is too long: 9000 tokens > 5000 maximum")
            if len(written) == 6:
                return says("Hello.")
            written.append(f"/{len(written)}.txt")
            return calls(
                ("write_file", {"path": written[-1], "content": "a"}), text="words " * 1_000
            )

    async with (
        running(tmp_path) as app,
        Client(app.server, mode="legacy", **Small({}).options) as client,
    ):
        done = await call(client, "task", goal="hello")
        state = await app.agent().get_state(done["thread_id"])
    assert done["answer"] == "Hello." and len(written) == 6
    used = [
        one.id
        for message in state.values["messages"]
        if isinstance(message, AIMessage)
        for one in message.tool_calls
    ]
    assert len({*used}) == 6  # though the client calls each call the same


def test_the_window_of_the_clients_model_can_be_set() -> None:
    assert sampling_model("sampling", context_window=32_000).context_window == 32_000
    assert sampling_model("sampling").context_window is None
    with pytest.raises(UnknownModel, match="context_window=0"):
        sampling_model("sampling", context_window=0)


async def test_a_server_told_to_sample_says_what_the_client_lacks(tmp_path: Path) -> None:
    model = ClientModel(HELLO)
    async with running(tmp_path, model="sampling:opus") as app:
        async with Client(app.server) as client:
            why = await refused(client, "task", goal="hello")
            assert "--model sampling" in why and "declares no sampling" in why
        async with Client(app.server, **model.options) as client:
            assert (await call(client, "task", goal="hello"))["answer"] == "Hello."
    wishes = model.asked[0].model_preferences
    assert wishes and wishes.hints and wishes.hints[0].name == "opus"


async def test_a_key_goes_before_the_clients_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-real-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    model = ClientModel(HELLO)
    async with running(tmp_path) as app, Client(app.server, **model.options) as client:
        await call(client, "task", goal="hello", wait_seconds=0.3)
    assert not model.asked


async def test_a_model_that_thinks_longer_than_the_call_may_wait_is_waited_for(
    tmp_path: Path,
) -> None:
    class Thoughtful(ClientModel):
        async def __call__(self, context: Any, params: CreateMessageRequestParams) -> Any:
            await anyio.sleep(0.3)
            return await super().__call__(context, params)

    model = Thoughtful({"hello": [WRITE, WRITE, says("Hello.")]})
    async with (
        running(tmp_path, wait_budget=0.1) as app,
        Client(app.server, mode="legacy", **model.options) as client,
    ):
        seen = await call(client, "task", goal="hello")
        while seen["status"] == "running":
            seen = await call(client, "wait", run_id=seen["run_id"])
    assert seen["answer"] == "Hello." and len(model.asked) == 3


async def test_who_listens_to_a_task_is_told_what_its_model_is_asked(tmp_path: Path) -> None:
    model, tasks = ClientModel(HELLO), Tasks()
    async with (
        running(tmp_path) as app,
        Client(app.server, extensions=[tasks], **model.options) as client,
        anyio.create_task_group() as group,
    ):
        told = anyio.Event()

        async def hear(change: TaskChange) -> None:
            if change.status == "input_required":
                told.set()

        tasks.changed = hear
        run_id = await app.runs.start("hello", offer="tools")
        group.start_soon(listen_to, client, run_id)
        await told.wait()
        group.cancel_scope.cancel()
    (request,) = (tasks.changes[-1].model_extra or {})["inputRequests"].values()
    assert request["method"] == "sampling/createMessage"


async def test_a_task_of_2025_asks_the_client_that_waits_for_its_result(tmp_path: Path) -> None:
    model = ClientModel(HELLO)
    async with (
        running(tmp_path) as app,
        Client(app.server, mode="legacy", **model.options) as client,
    ):
        run_id = await app.runs.start("hello", offer="tools")
        await app.runs.wait(run_id, 10, to_lend=True)
        assert (await ask(client.session, "tasks/get", run_id))["status"] == "input_required"
        result = await ask(client.session, "tasks/result", run_id)
    assert result["structuredContent"]["answer"] == "Hello." and len(model.asked) == 1


@pytest.mark.parametrize("model", ["sampling", None])
def test_the_doctor_says_which_clients_can_delegate(model: str | None, tmp_path: Path) -> None:
    settings = load_settings({"state_dir": str(tmp_path), "model": model}, {})
    (finding,) = examine_key(settings, {})
    assert finding.status == "note" and "sampling with tools" in finding.text


def test_a_setting_the_clients_model_cannot_have_is_refused() -> None:
    assert sampling_model("sampling", max_tokens=5).name == "sampling"
    with pytest.raises(UnknownModel, match="temperature"):
        sampling_model("sampling", temperature=1)


# --- what a run does besides -----------------------------------------------------------------


def event(name: str, *path: str) -> Event:
    return Event("tasks", {"event": name}, "thr_1", "run_1", 1, path)


def test_a_tool_call_is_at_work_unless_its_subagent_asks() -> None:
    activity = Activity()
    activity.hear(event("model_start", "main"))
    assert activity.is_more_than(0) and not activity.is_more_than(1)
    activity.hear(event("model_end", "main"))
    activity.hear(event("tool_start", "main", "call_1"))
    activity.hear(event("tool_start", "main", "call_2"))
    activity.hear(event("model_start", "main", "call_1", "sub"))
    assert activity.is_more_than(1)  # call_2
    activity.hear(event("tool_end", "main", "call_2"))
    assert not activity.is_more_than(1)
    activity.hear(event("tool_end", "main", "call_1"))  # the subagent has failed
    assert not activity.is_more_than(0)


async def test_a_run_with_a_tool_at_work_is_not_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_queue, "UNATTENDED_SECONDS", 0.0)
    monkeypatch.setattr(sampling_queue, "LOOK_AGAIN_SECONDS", 0.01)
    paused: list[tuple[str, bool]] = []
    at_work = True
    with anyio.CancelScope() as scope, anyio.fail_after(60):

        def pause(reason: str) -> None:
            paused.append((reason, at_work))
            scope.cancel()

        with SamplingQueue(lambda _: None).carrying("run_1", "thr_1", pause, "tools") as run:
            for one in (
                event("tool_start", "main", "call_1"),
                event("tool_start", "main", "call_2"),
                event("model_start", "main", "call_1", "sub"),
            ):
                run.hear(one)
            async with anyio.create_task_group() as group:
                group.start_soon(_ask, run)
                await anyio.sleep(0.1)
                at_work = False
                run.hear(event("tool_end", "main", "call_2"))
    assert paused == [(PARKED, False)]


async def _ask(run: SampledRun) -> None:
    await run.ask(SampledCall(params_of(ChatRequest([HumanMessage("hi")])), "sub"))


def pause(reason: str) -> None:
    raise AssertionError(reason)


async def test_a_call_that_waits_for_others_waits_no_longer_for_many_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling_queue, "GATHER_SECONDS", 0.5)
    at_desk = SamplingQueue(lambda _: None)
    with ExitStack() as stack, anyio.fail_after(60):
        for number in range(50):
            thread_id = f"thr_1.task-{number:08x}"
            run = stack.enter_context(at_desk.carrying(f"run_{number}", thread_id, pause, "tools"))
            call = SampledCall(params_of(ChatRequest([HumanMessage("hi")])), "sub")
            run.calls[call.key] = call
            run.hear(event("tool_start", "main", "call_1"))
        began = anyio.current_time()
        assert len(await at_desk.gathered("thr_1")) == 50
        assert anyio.current_time() - began < 20  # of 50 runs, not 50 times as long


async def test_a_client_may_think_about_a_task_though_the_run_that_began_it_is_done() -> None:
    at_desk = SamplingQueue(lambda _: None)
    with at_desk.carrying("run_2", "thr_1.task-00000000", pause, "tools"):
        with at_desk.carrying("run_1", "thr_1", pause, "tools"):
            at_desk.lease("thr_1")
        left = at_desk.attended_until("thr_1.task-00000000", anyio.current_time())
        assert left > anyio.current_time() + sampling_queue.UNATTENDED_SECONDS + 1
