"""Questions reach the person on every way there is, and never where nobody can answer."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp.types import ElicitRequestParams, ElicitResult

from tests.e2e.conftest import SCRIPT
from tests.e2e.servers import ERAS, Era, HttpServer, Setup, call, connected, refused, text_of

pytestmark = pytest.mark.anyio

WAYS = [("http", "auto"), ("http", "legacy"), ("sse", "auto"), ("sse", "legacy")]
NOTE = {"path": "/asked.txt", "content": "old\n"}
EDIT = {"path": "/asked.txt", "old_string": "old", "new_string": "new"}


class Person:
    """Answers forms, one after the other, and remembers what was asked."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.answers = list(answers)
        self.asked: list[ElicitRequestParams] = []

    async def __call__(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return self.answers.pop(0)


def accept(**content: str) -> ElicitResult:
    return ElicitResult(action="accept", content=dict(content))


@pytest.mark.parametrize(("transport", "mode"), WAYS)
async def test_a_delegated_run_asks_the_person_and_goes_on(
    transport: str, mode: Era, shared: tuple[Setup, HttpServer]
) -> None:
    setup, server = shared
    person = Person(accept(decision="approve"))
    with anyio.fail_after(60):
        target = server.target(transport)
        async with connected(target, mode, elicitation_callback=person) as client:
            done = await call(client, "task", goal="change the note")
    assert (done["status"], done["answer"]) == ("done", "The note is changed.")
    assert (setup.root / "note.txt").read_text() == "second\n"
    (form,) = person.asked
    assert "edit_file" in form.message and "/note.txt" in form.message
    fields: dict[str, Any] = form.requested_schema["properties"]  # type: ignore[union-attr]
    assert fields["decision"]["enum"] == ["approve", "edit", "reject", "respond"]
    assert {one["type"] for one in fields.values()} == {"string"}


@pytest.mark.parametrize("mode", ERAS)
async def test_a_driven_call_asks_and_can_be_edited_or_declined(
    mode: Era, shared: tuple[Setup, HttpServer]
) -> None:
    setup, server = shared
    edited = '{"path": "/asked.txt", "old_string": "old", "new_string": "edited"}'
    person = Person(
        accept(decision="edit", args=edited),
        ElicitResult(action="decline"),
        accept(decision="edit", args="not JSON"),
    )
    with anyio.fail_after(60):
        async with connected(server.target("http"), mode, elicitation_callback=person) as client:
            thread_id = (await call(client, "write_file", **NOTE))["thread_id"]
            changed = await call(client, "edit_file", **EDIT, thread_id=thread_id)
            assert "a person edited this call" in changed["note"]
            assert (setup.root / "asked.txt").read_text() == "edited\n"
            again = {**EDIT, "old_string": "edited", "thread_id": thread_id}
            assert "rejected by a person" in await refused(client, "edit_file", **again)
            assert (setup.root / "asked.txt").read_text() == "edited\n"
            waiting = await call(client, "edit_file", **again)
            assert waiting["status"] == "needs_approval"
            await call(client, "cancel", run_id=waiting["run_id"])
    assert len(person.asked) == 3


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_without_forms_answers_with_the_reply_tool(
    mode: Era, shared: tuple[Setup, HttpServer]
) -> None:
    with anyio.fail_after(60):
        async with connected(shared[1].target("http"), mode) as client:
            asked = await client.call_tool("task", {"goal": "change the note"})
            assert asked.structured_content is not None
            data = asked.structured_content
            run_id, thread_id = data["run_id"], data["thread_id"]
            (question,) = data["pending"]
            assert (data["status"], question["tool"]) == ("needs_approval", "edit_file")
            for fact in (run_id, question["id"], "edit_file", "approve | edit | reject"):
                assert fact in text_of(asked)
            shown = await call(client, "threads", thread_id=thread_id)
            assert [one["id"] for one in shown["pending"]] == [question["id"]]
            assert "waits for an answer" in await refused(client, "ls", thread_id=thread_id)
            wrong = await refused(client, "reply", run_id=run_id, answers={"int_no": "approve"})
            assert question["id"] in wrong
            assert "does not fit" in await refused(
                client, "reply", run_id=run_id, answers={question["id"]: "perhaps"}
            )
            done = await call(client, "reply", run_id=run_id, decision="reject", message="Not now")
            assert (done["status"], done["answer"]) == ("done", "The note is changed.")
            late = await call(client, "reply", run_id=run_id, decision="approve")
            assert '"reject"' in late["notes"][0] and late["status"] == "done"
            more = await call(client, "reply", run_id=run_id, message="write a note")
            assert more["answer"] == "The note is written." and more["run_id"] != run_id
            assert more["thread_id"] == thread_id


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_cancels_the_form_leaves_the_question_open(
    mode: Era, shared: tuple[Setup, HttpServer]
) -> None:
    person = Person(ElicitResult(action="cancel"))
    with anyio.fail_after(60):
        target = shared[1].target("http")
        async with connected(target, mode, elicitation_callback=person) as client:
            asked = await call(client, "task", goal="change the note")
            assert asked["status"] == "needs_approval" and len(asked["pending"]) == 1
            person.answers = [accept(decision="approve")]
            done = await call(client, "wait", run_id=asked["run_id"])
            assert done["status"] == "done"


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_ends_takes_an_open_form_back_and_ends_soon(
    transport: str, tmp_path: Path
) -> None:
    asked = anyio.Event()

    async def nobody(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def driven(server: HttpServer) -> None:
        target = server.target(transport)
        with suppress(Exception):
            async with connected(target, "legacy", elicitation_callback=nobody) as client:
                made = await call(client, "write_file", **NOTE)
                await call(client, "edit_file", **EDIT, thread_id=made["thread_id"])

    setup = Setup(tmp_path, flags=["--approve", "edit_file"], script=SCRIPT)
    with anyio.fail_after(60), setup.serving() as server:
        async with anyio.create_task_group() as group:
            group.start_soon(driven, server)
            await asked.wait()
            began = anyio.current_time()
            server.process.terminate()
            await anyio.to_thread.run_sync(server.process.wait)
            assert anyio.current_time() - began < 25
            group.cancel_scope.cancel()
