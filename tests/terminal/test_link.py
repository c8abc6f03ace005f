"""Calls of the terminal to a server that goes away and comes back."""

from collections.abc import AsyncIterator, Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED
from prompt_toolkit.history import InMemoryHistory

from deep_agent_mcp.harness.mcp_servers.transports import UNSENT, _HttpClient
from deep_agent_mcp.server.runs.accounts import _short
from deep_agent_mcp.server.runs.active_run import busy
from deep_agent_mcp.server.runs.starting import _ASK_TO_WAIT
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.terminal import link as link_module
from deep_agent_mcp.server.terminal.chat import Chat
from deep_agent_mcp.server.terminal.link import RECONNECT_SECONDS, Link
from deep_agent_mcp.server.terminal.live import LiveView
from deep_agent_mcp.server.terminal.places import local_place
from deep_agent_mcp.server.terminal.questions import Stop
from deep_agent_mcp.server.terminal.remote import RemoteRuns
from deep_agent_mcp.server.terminal.session import Interrupts, Session
from deep_agent_mcp.server.terminal.states import LinkError, Lost, NotStarted, Task
from deep_agent_mcp.server.terminal.views import View

pytestmark = pytest.mark.anyio

CUT = MCPError(CONNECTION_CLOSED, "SSE stream ended without a response")
UNREACHED = MCPError(CONNECTION_CLOSED, "cannot connect", UNSENT)
STATE = {"run_id": "run_1", "thread_id": "thread_1", "status": "running"}


class Away:
    """A client with a clock; each call takes its seconds, then fails or has a result.

    A call that takes any reports progress first.

    Attributes:
        now: The time, in seconds.
        calls: The next calls: seconds, and an error, or None for a result.
        state: The result.
        tools: The tools that were called.
    """

    def __init__(self, *calls: tuple[float, MCPError | None], forever: MCPError = CUT) -> None:
        self.now = 1_000.0
        self.calls = [*calls]
        self.forever = forever
        self.session = self
        self.state: dict[str, Any] = STATE
        self.tools: list[str] = []

    async def call_tool(self, tool: str, args: Any, progress_callback: Any = None) -> Any:
        seconds, error = self.calls.pop(0) if self.calls else (0.0, self.forever)
        self.tools.append(tool)
        if progress_callback is not None and seconds:
            await progress_callback(0.0, None, "main: thinking")
        self.now += seconds
        if error is not None:
            raise error
        return SimpleNamespace(is_error=False, content=[], structured_content=self.state)

    async def send_request(self, request: Any, kind: Any) -> Any:
        self.now += 1
        raise self.calls.pop(0)[1] if self.calls else self.forever

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
async def linked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Link]]:
    def link(client: Away, *, is_local: bool = False) -> Link:
        clock = SimpleNamespace(current_time=lambda: client.now, sleep=client.sleep)
        monkeypatch.setattr(link_module, "anyio", clock)
        return Link(client, is_local=is_local)  # type: ignore[arg-type]

    yield link


async def test_a_stream_that_is_cut_late_in_a_call_is_opened_again(linked) -> None:
    client = Away((RECONNECT_SECONDS + 1, CUT), (0, None))
    assert (await linked(client).look("run_1")).run_id == "run_1"


async def test_a_server_that_stays_away_is_given_up_after_two_minutes(linked) -> None:
    client = Away((300, CUT))
    with pytest.raises(LinkError, match="cannot be reached any more: SSE stream ended"):
        await linked(client).look("run_1")
    assert 1_300 + RECONNECT_SECONDS < client.now <= 1_300 + RECONNECT_SECONDS + 5


async def test_a_server_that_was_back_gets_two_minutes_again(linked) -> None:
    client = Away((0, CUT), (RECONNECT_SECONDS + 1, CUT), (0, None))
    assert (await linked(client).wait("run_1", lambda _: None)).run_id == "run_1"


async def test_a_server_in_this_process_that_ended_is_not_waited_for(linked) -> None:
    client = Away()
    with pytest.raises(LinkError, match="SSE stream ended"):
        await linked(client, is_local=True).look("run_1")
    assert client.now == 1_000


async def test_a_deletion_that_was_cut_off_is_not_repeated_but_said_to_be_possible(linked) -> None:
    client = Away((0, UNREACHED))
    with pytest.raises(LinkError, match="lost before it answered threads/delete, so it may have"):
        await linked(client).act("threads/delete", threadId="thread_1")
    assert client.calls == []


async def test_a_message_whose_answer_was_lost_is_not_sent_again_but_said_to_be_possible(
    linked,
) -> None:
    looks, tries = (0, None), [(0, UNREACHED), (0, CUT), (0, None)]
    client = Away(looks, *tries)
    with pytest.raises(LinkError, match=r"may have stored it\..*`threads events run_1`"):
        await RemoteRuns(linked(client)).tell("run_1", "More!")
    assert client.calls == tries[2:]


@pytest.mark.parametrize("status", ["running", "failed"])
async def test_a_run_whose_continuation_lost_its_answer_is_not_continued_twice(
    linked, status: str
) -> None:
    client = Away((0, UNREACHED), (0, CUT), (0, None))
    client.state = {**STATE, "status": status}
    continuing = linked(client).answer("run_1", {})
    if status == "running":
        assert (await continuing).status == "running"
    else:
        with pytest.raises(Lost, match=r"it may have\. Look with `runs show run_1`"):
            await continuing
    assert client.tools == ["reply", "reply", "wait"]


@pytest.mark.parametrize("resumes", [False, True])
async def test_a_server_that_is_lost_after_it_took_the_goal_is_not_said_to_have_started_nothing(
    linked, resumes: bool
) -> None:
    link = linked(Away((0, None), (0, CUT)) if resumes else Away())
    link.events, link.agent_of, link.subagent_of = no_events, nobody, nobody
    place = SimpleNamespace(link=link, pause=lambda run_id: False)
    session, heard = Session(place, View(StringIO(), StringIO()), Stop()), Interrupts()  # type: ignore[arg-type]
    link._client.state = {**STATE, "status": "paused"}
    work = session.resume("run_1", heard) if resumes else session.run(Task("go"), heard)
    with pytest.raises(Lost, match=r"may have(\.| started)"):
        await work


@pytest.mark.parametrize("resumes", [False, True])
async def test_a_server_that_was_never_reached_has_started_nothing(linked, resumes: bool) -> None:
    link = linked(Away(forever=UNREACHED))
    place = SimpleNamespace(link=link, pause=lambda run_id: False)
    session, heard = Session(place, View(StringIO(), StringIO()), Stop()), Interrupts()  # type: ignore[arg-type]
    with pytest.raises(NotStarted, match="cannot be reached any more"):
        await (session.resume("run_1", heard) if resumes else session.run(Task("go"), heard))


async def test_the_subagent_of_a_run_is_found_though_its_long_goal_is_shortened(
    monkeypatch: pytest.MonkeyPatch, linked
) -> None:
    call = {"name": "task", "tool_call_id": "call_1", "path": ["boss", "call_1"]}
    args = {"subagent_type": "scout", "description": "x" * 400}
    below = {"event": "model_start", "name": "m", "path": ["boss", "call_1", "scout"]}

    async def subagent(args: object) -> str:
        async def events(*_: object) -> tuple[list[object], bool]:
            return [{**call, "args": args}, below], False

        monkeypatch.setattr(Link, "events", events)
        return await linked(Away()).subagent_of("run_1")

    assert await subagent(args) == await subagent(_short(args)) == "scout"


async def test_a_thread_in_use_is_said_with_commands_and_not_with_tools(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    ask = "- tool_calls: [{name: write_file, args: {path: /a, content: b}}]\n- Done.\n"
    script.write_text(ask, encoding="utf-8")
    given = {"state_dir": str(tmp_path / "state"), "model": f"scripted:{script}"}
    with anyio.fail_after(60):
        async with local_place(load_settings({"approve": ("write_file",), **given}, {})) as place:
            run = await place.link.start(Task("go"))
            assert (await place.link.wait(run.run_id, lambda _: None)).status == "needs_approval"
            with pytest.raises(LinkError) as asked:
                await place.link.start(Task("go on", thread_id=run.thread_id))
    working = link_module._for_people(f"{busy('thr_1', 'run_1')} {_ASK_TO_WAIT}")
    for said, run_id in ((str(asked.value), run.run_id), (working, "run_1")):
        assert f"run --resume {run_id}" in said and f"runs cancel {run_id}" in said
        assert "run_id=" not in said and "on_busy" not in said


async def test_the_answer_of_a_proxy_that_cannot_reach_the_server_counts_as_away() -> None:
    def gateway(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(502, text="<h1>Bad Gateway</h1>")

    async with _HttpClient(transport=httpx2.MockTransport(gateway)) as http:
        answer = await http.post("http://server.example/mcp", json={})
    error = {"code": CONNECTION_CLOSED, "message": "HTTP 502 Bad Gateway"}
    assert answer.json()["error"] == error


async def test_a_chat_that_loses_the_server_in_its_first_message_keeps_its_run(linked) -> None:
    client = Away((0, None), forever=CUT)
    link = linked(client)
    link.events = no_events
    place = SimpleNamespace(link=link, pause=lambda run_id: False)
    errors = StringIO()
    view = LiveView(StringIO(), errors)
    chat = Chat(place, view, Stop(), InMemoryHistory(), Task(""))  # type: ignore[arg-type]
    with pytest.raises(LinkError, match="/resume continues it"):
        await chat._take("hello")
    assert chat.thread_id == "thread_1"
    with pytest.raises(LinkError, match="cannot be reached any more"):
        await chat._take("/resume")
    view.close()


async def no_events(run_id: str, after: int) -> Any:
    return [], False


async def nobody(run_id: str) -> None:
    return None
