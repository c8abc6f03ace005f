"""Servers behind HTTP: both endpoints, both eras, and what goes wrong on the way."""

from collections import defaultdict

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest

from deep_agent_mcp.harness.mcp_servers import HttpServer, SseServer
from deep_agent_mcp.harness.mcp_servers.transports import sse_streams
from tests.loop.models import call
from tests.mcp_servers.support import agent_with, http_server, lines, results

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["new", "old"])
def served(request, tmp_path_factory):
    log = tmp_path_factory.mktemp(request.param) / "log"
    with http_server(log, request.param) as port:
        yield f"http://127.0.0.1:{port}", log, request.param


@pytest.fixture(params=["http", "sse"])
def endpoint(request, served):
    url, _, _ = served
    headers = {"x-key": "secret"}
    if request.param == "sse":
        return SseServer(f"{url}/sse", headers)
    return HttpServer(f"{url}/mcp", headers)


async def test_tools_run_at_both_endpoints(mount, endpoint):
    agent = agent_with(
        mount(web=endpoint),
        (call("1", "web_add", a=1, b=2), call("2", "web_header", name="x-key")),
    )
    assert [one.text for one in results(await agent.ainvoke("go"))] == ["3", "secret"]


async def test_questions_come_through_both_endpoints(mount, endpoint):
    agent = agent_with(mount(web=endpoint), (call("1", "web_order", item="figs"),))
    result = await agent.ainvoke("go")
    (question,) = result.interrupts
    answer = {"action": "accept", "content": {"amount": 4}}
    result = await agent.aresume(result.run.id, {question.id: answer})
    assert results(result)[0].text == "4 figs"


async def test_a_call_that_a_forgetful_server_refused_is_sent_once_more(mount, served):
    url, log, era = served
    tools = mount(web=HttpServer(f"{url}/mcp"))
    agent = agent_with(tools, (call("1", "web_forget"),), (call("2", "web_add", a=5, b=len(era)),))
    forgot, added = results(await agent.ainvoke("go"))
    assert forgot.status == "success"
    assert added.text == "8"
    assert lines(log).count("add 5 3") == 1


@pytest.mark.parametrize("served", ["old"], indirect=True)
async def test_parallel_calls_that_a_forgetful_server_refused_are_all_sent_once_more(
    mount, served, monkeypatch
):
    """The second is refused when the first is already on its way in a new session."""
    tools = mount(web=HttpServer(f"{served[0]}/mcp"))
    await agent_with(tools, (call("1", "web_forget"),)).ainvoke("go")
    send = httpx2.AsyncClient.send
    waits_for = {"first": "second", "second": "first again", "first again": "second again"}
    begun, sent = defaultdict(anyio.Event), set()

    async def in_turns(self, request, **options):
        for step in ("first", "second", '"initialize"'):
            if step.encode() in request.content:
                step = f"{step} again" if step in sent else step
                sent.add(step)
                begun[step].set()
                with anyio.fail_after(25):
                    if step in waits_for:
                        await begun[waits_for[step]].wait()
        return await send(self, request, **options)

    monkeypatch.setattr(httpx2.AsyncClient, "send", in_turns)
    calls = [call(one, "web_header", name=one) for one in ("first", "second")]
    done = results(await agent_with(tools, (*calls,)).ainvoke("go"))
    assert [one.text for one in done] == ["none", "none"]
    assert '"initialize" again' not in sent


async def test_a_message_that_comes_when_the_session_has_left_harms_nothing(served):
    ping = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping"))
    with anyio.fail_after(25):
        async with sse_streams(f"{served[0]}/sse") as (read, write):
            await read.aclose()
            await write.send(ping)
            await anyio.sleep_forever()  # the streams end when the answer finds nobody


async def test_an_endpoint_that_is_none_is_told_with_its_status(mount, served):
    url, _, _ = served
    agent = agent_with(mount(web=HttpServer(f"{url}/elsewhere")))
    await agent.ainvoke("go")
    assert "HTTP 404" in agent.definition.model.requests[0].system[-1].text


async def test_one_request_that_fails_on_its_way_takes_no_other_down(mount, served, monkeypatch):
    url, _, era = served
    tools = mount(web=HttpServer(f"{url}/mcp"))
    await tools._pool.refresh(["web"])
    send = httpx2.AsyncClient.send

    async def lossy(self, request, **options):
        if b"lost" in request.content:
            await send(self, request, **options)
            raise httpx2.ReadError("reset by peer")
        if b"unsent" in request.content:
            raise httpx2.ConnectError("refused")
        return await send(self, request, **options)

    monkeypatch.setattr(httpx2.AsyncClient, "send", lossy)
    together = [call(str(n), "web_together", key=era, number=n, count=2) for n in range(2)]
    calls = (
        together[0],
        call("lost", "web_header", name="lost"),
        call("unsent", "web_header", name="unsent"),
    )
    done = []

    async def run() -> None:
        done.extend(results(await agent_with(tools, calls).ainvoke("go")))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(25):
            while not done:
                await agent_with(tools.only(["web"]), (together[1],)).ainvoke("go")
    waited, lost, unsent = done
    assert waited.text == "0"
    assert "Whether the tool acted is unknown" in lost.text
    assert "was not run: the server cannot be used (cannot connect: refused)" in unsent.text
