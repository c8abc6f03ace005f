import time
from contextlib import suppress
from email.utils import formatdate

import anyio
import pytest

from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from tests.fake_anthropic import Answer, FakeAnthropic
from tests.models.calls import ask, claude
from tests.ports_and_waits import growing

pytestmark = pytest.mark.anyio


async def failure(answer: Answer, **settings: object) -> ModelError:
    async with FakeAnthropic([answer]) as api, claude(api.url, **settings) as model:
        with pytest.raises(ModelError) as raised, anyio.fail_after(10):
            await ask(model, "go")
    return raised.value


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        (Answer(status=401), "auth", False),
        (Answer(status=402), "auth", False),
        (Answer(status=403), "auth", False),
        (Answer(status=429), "rate_limit", True),
        (Answer(status=529), "overloaded", True),
        (Answer(status=500), "server", True),
        (Answer(status=503, error_type="api_error"), "server", True),
        (Answer(status=404), "invalid_request", False),
        (Answer(status=400, message="tools: bad"), "invalid_request", False),
        (Answer(status=400, message="prompt is too long: 9 tokens > 8"), "overflow", False),
        (Answer(status=400, message="`max_tokens` exceed context limit: 9"), "overflow", False),
        (Answer(status=413), "overflow", False),
        (Answer(status=413, error_type="new_error"), "overflow", False),
        (Answer(status=529, error_type="new_error"), "overloaded", True),
        (Answer(status=502, error_type="new_error"), "server", True),
        (Answer(status=418, error_type="new_error"), "invalid_request", False),
    ],
)
async def test_refusals_have_a_kind(answer: Answer, kind: str, retryable: bool) -> None:
    error = await failure(answer)
    assert (error.kind, error.retryable) == (kind, retryable)
    assert answer.message in str(error)
    assert "req_fake" in str(error)
    assert "test-key" not in str(error)


async def test_an_account_without_credit_is_told_where_to_add_some() -> None:
    said = "Your credit balance is too low to access the Anthropic API."
    error = await failure(Answer(status=400, message=said))
    assert (error.kind, error.retryable) == ("auth", False)
    assert "no credit left" in str(error) and "settings/billing" in str(error)
    assert "will fail again" not in str(error)


async def test_a_model_that_does_not_exist_is_named() -> None:
    error = await failure(Answer(status=404, message="model: claude-nope"))
    assert "there is no model claude-nope" in str(error)
    assert "Check the name of the model" in str(error)
    assert "--model" not in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "nan", "retry-after": "9"}, 9.0),
        ({"retry-after": "Wed, 21 Oct 99999 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
async def test_the_wait_a_provider_asks_for_is_reported(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert (await failure(Answer(status=429, headers=headers))).retry_after == seconds


async def test_a_wait_may_be_given_as_a_date() -> None:
    date = formatdate(time.time() + 100, usegmt=True)
    wait = (await failure(Answer(status=429, headers={"retry-after": date}))).retry_after
    assert wait is not None
    assert 90 < wait <= 100


async def test_a_refusal_for_load_is_repeated_after_the_wait_asked_for() -> None:
    busy = Answer(status=529, headers={"retry-after-ms": "20"})
    async with (
        FakeAnthropic([busy, busy, "at last"]) as api,
        claude(api.url, max_retries=2) as model,
    ):
        assert (await ask(model, "go")).text == "at last"
    assert len(api.requests) == 3


async def test_a_very_long_wait_is_an_error_instead() -> None:
    error = await failure(Answer(status=429, headers={"retry-after": "86400"}), max_retries=5)
    assert error.retry_after == 86400
    assert "86400 s" in str(error)


@pytest.mark.parametrize("cut", ["hang_up_after", "truncate_after"])
@pytest.mark.parametrize("events", [0, 4, 8])
async def test_an_answer_that_breaks_off_is_an_error(cut: str, events: int) -> None:
    error = await failure(Answer(text="hello", **{cut: events}))
    assert (error.kind, error.retryable) == ("connection", True)
    assert "No answer was kept" in str(error)


@pytest.mark.parametrize(
    ("error_type", "kind"),
    [("overloaded_error", "overloaded"), ("api_error", "server"), (None, "overloaded")],
)
async def test_an_error_inside_the_stream_keeps_its_kind(error_type: str | None, kind: str) -> None:
    error = await failure(Answer(text="hello", error_after=4, error_type=error_type))
    assert (error.kind, error.retryable) == (kind, True)


async def test_a_server_that_is_not_there_is_a_connection_error() -> None:
    async with FakeAnthropic() as api:
        url = api.url
    async with claude(url) as model:
        with pytest.raises(ModelError) as raised:
            await ask(model, "go")
    assert (raised.value.kind, raised.value.retryable) == ("connection", True)


async def test_a_silent_server_is_a_connection_error() -> None:
    error = await failure(Answer(text="hello", stall_after=3), timeout=0.2)
    assert error.kind == "connection"


async def test_a_server_that_does_not_even_begin_is_said_to_be_silent() -> None:
    error = await failure(Answer(text="hello", delay=60), timeout=0.2)
    assert (error.kind, error.retryable) == ("connection", True)
    assert "the server stayed silent too long" in str(error)


@pytest.mark.parametrize(
    "sent", [b'event: ping\ndata: {"type": "ping"}\n\n', b": still at work\n\n"]
)
async def test_a_server_that_only_sends_pings_or_comments_is_not_waited_for_without_end(
    sent: bytes,
) -> None:
    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            with suppress(anyio.BrokenResourceError):
                while True:
                    await stream.send(sent)
                    await anyio.sleep(0.01)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        for seconds in growing(0.05, 1.0):
            async with claude(f"http://127.0.0.1:{port}", timeout=seconds) as model:
                with anyio.fail_after(30), pytest.raises(ModelError) as told:
                    await ask(model, "go")
            assert (told.value.kind, told.value.retryable) == ("connection", True)
            if "nothing but pings" in str(told.value):
                break
        assert "nothing but pings" in str(told.value)
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("said", "told"), [("Too busy", "Too busy."), ("Wait. ", "Wait."), ("", "no reason given.")]
)
async def test_a_reason_is_a_sentence_and_not_too_long(said: str, told: str) -> None:
    assert f": {told} No answer was kept." in str(await failure(Answer(status=529, message=said)))
    assert len(str(await failure(Answer(status=529, message="x" * 100_000)))) < 3_000


async def test_an_answer_that_is_no_event_stream_is_an_error() -> None:
    async def serve_page(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            page = b"event: message_start\ndata: <html>\n\n"
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(page)}\r\n\r\n".encode()
            await stream.send(head + page)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as group, claude(f"http://127.0.0.1:{port}") as model:
            group.start_soon(listener.serve, serve_page)
            with pytest.raises(ModelError) as raised:
                await ask(model, "go")
            group.cancel_scope.cancel()
    assert raised.value.kind == "connection"


async def test_without_a_key_the_error_says_what_to_do() -> None:
    with pytest.raises(ModelError) as raised:
        await ask(AnthropicModel("claude-sonnet-5-5"), "go")
    assert raised.value.kind == "auth"
    assert str(raised.value) == (
        "No Anthropic API key: set ANTHROPIC_API_KEY, or choose another model; "
        "everything else works without it. Nothing was sent."
    )


async def test_the_key_is_looked_up_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeAnthropic(["one", "two"]) as api, claude(api.url, api_key=None) as model:
        with pytest.raises(ModelError):
            await ask(model, "go")
        for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, f"value of {name}")
            await ask(model, "go")
    used = [record.headers["authorization"] for record in api.recorded]
    assert used == ["Bearer value of ANTHROPIC_AUTH_TOKEN", "Bearer value of ANTHROPIC_API_KEY"]


async def test_the_base_url_may_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with FakeAnthropic(["here"]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        model = AnthropicModel("claude-sonnet-5-5", api_key="k")
        assert (await ask(model, "go")).text == "here"
        await model.aclose()


async def test_a_malformed_base_url_is_an_error_of_ours() -> None:
    with pytest.raises(ModelError, match="base_url"):
        await ask(
            AnthropicModel("claude-sonnet-5-5", api_key="k", base_url="http://host:port"), "go"
        )


async def test_the_key_does_not_show() -> None:
    assert "secret" not in repr(AnthropicModel("claude-sonnet-5-5", api_key="secret"))
