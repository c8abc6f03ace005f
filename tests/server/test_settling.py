"""Forms over an open connection: taken back when they are moot, and nothing decided gets lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import ElicitRequestParams, ElicitResult, ErrorData
from pydantic import JsonValue

from tests.e2e.client_model import ClientModel, calls, says
from tests.e2e.servers import ERAS, Era, call, data_of, text_of
from tests.server.test_runs import running
from tests.server.test_sampling import no_key
from tests.server.test_sampling import running as sampling

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures(no_key.__name__)]

LIST = ("ls", {"path": "/"})
FIND = ("glob", {"pattern": "*"})


def accept(**content: str) -> ElicitResult:
    return ElicitResult(action="accept", content=dict(content))


class Person:
    """Answers the first forms, and thinks about the next one until it is taken back."""

    def __init__(self, *answers: ElicitResult | ErrorData) -> None:
        self.answers = list(answers)
        self.thinking, self.stopped = anyio.Event(), anyio.Event()

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        if self.answers:
            return self.answers.pop(0)
        self.thinking.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.stopped.set()
        raise AssertionError


@pytest.mark.parametrize("ending", ["answered", "cancelled"])
async def test_a_form_is_taken_back_when_somebody_else_is_faster(
    ending: str, tmp_path: Path
) -> None:
    person = Person()
    async with (
        running(tmp_path, approve=("ls",)) as app,
        Client(app.server, mode="legacy", elicitation_callback=person) as client,
        anyio.create_task_group() as group,
    ):

        async def be_faster() -> None:
            await person.thinking.wait()
            (run,) = await app.agent().checkpointer.find_runs(limit=2)
            if ending == "cancelled":
                await app.runs.cancel(run.id, "enough")
                return
            (question,) = await app.runs.questions(run.id)
            await app.runs.reply(run.id, {question.id: {"decision": "approve"}})

        group.start_soon(be_faster)
        seen = await call(client, "ls", path="/")
        assert seen["status"] == "cancelled" if ending == "cancelled" else seen["entries"] == []
        await person.stopped.wait()


@pytest.mark.parametrize("ending", ["the client fails", "the server ends"])
async def test_what_was_decided_is_kept_when_the_next_form_is_not_answered(
    ending: str, tmp_path: Path
) -> None:
    person = Person(accept(decision="approve"))
    if ending == "the client fails":
        person.answers.append(ErrorData(code=-1, message="No screen."))
    model = ClientModel({"hello": [calls(LIST, FIND), says("Hello.")]})
    seen: dict[str, Any] = {}
    async with (
        sampling(tmp_path, approve=("ls", "glob")) as app,
        Client(app.server, mode="legacy", elicitation_callback=person, **model.options) as client,
        anyio.create_task_group() as group,
    ):

        async def end() -> None:
            await person.thinking.wait()
            app.services.requests.close()

        group.start_soon(end)
        seen = await call(client, "task", goal="hello")
        group.cancel_scope.cancel()
    assert [one["tool"] for one in seen["pending"]] == ["glob"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({}, "is missing"),
        ({"args": "/b"}, "is not JSON"),
        ({"args": "7"}, "fit"),
        ({"args": '{"no": 1}'}, "fit"),
    ],
)
async def test_a_form_that_was_filled_in_wrongly_says_so(
    args: dict[str, str], why: str, mode: Era, tmp_path: Path
) -> None:
    person = Person(accept(decision="edit", **args))
    async with (
        running(tmp_path, approve=("ls",)) as app,
        Client(app.server, mode=mode, elicitation_callback=person) as client,
    ):
        result = await client.call_tool("ls", {"path": "/a"})
    (note,) = data_of(result)["notes"]
    assert why in note and note in text_of(result)
    assert data_of(result)["status"] == "needs_approval"


async def test_who_answers_too_late_is_told_which_answer_stands(tmp_path: Path) -> None:
    async with running(tmp_path, approve=("ls",)) as app:

        async def slow(context: Any, params: ElicitRequestParams) -> ElicitResult:
            (run,) = await app.agent().checkpointer.find_runs(limit=2)
            (question,) = await app.runs.questions(run.id)
            faster: dict[str, JsonValue] = {"decision": "respond", "message": "Later."}
            await app.runs.reply(run.id, {question.id: faster})
            return accept(decision="approve")

        async with Client(app.server, elicitation_callback=slow) as client:
            result = await client.call_tool("ls", {"path": "/"})
    (note,) = data_of(result)["notes"]
    assert "not stored" in note and note in text_of(result) and "Later." in text_of(result)
