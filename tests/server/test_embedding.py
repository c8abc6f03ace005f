"""`serve`, `asgi_app` and `serve module:attribute`, as the official client sees them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from deep_agent_mcp import Agent, ScriptedModel, create_agent, create_deep_agent
from deep_agent_mcp.server import ServeContext, asgi_app, serve
from deep_agent_mcp.server.auth.tokens import TokenFile
from deep_agent_mcp.server.embedding.asgi import MountedServer
from deep_agent_mcp.server.settings.settings import SettingsError
from deep_agent_mcp.server.transports.transports import bind
from tests.fork_server import environment, run, stand_in, start

pytestmark = pytest.mark.anyio

Mode = Literal["auto", "legacy"]
both_eras = pytest.mark.parametrize("mode", ["auto", "legacy"])

APP = """
from deep_agent_mcp import ScriptedModel, create_deep_agent
from deep_agent_mcp.server import serve

def agent(context):
    model = ScriptedModel([{"text": "Hello from Python."}] * 9)
    print("a line that stdout must not have")
    return create_deep_agent(model, skills=context.skills)

if __name__ != "__main__":
    print("another one")
else:
    serve(agent, transport="http", port=0, state_dir="state")
"""


def deep() -> Agent:
    return create_deep_agent(ScriptedModel([{"text": "Hello."}] * 9))


async def answer_of(client: Client) -> str:
    done = await client.call_tool("task", {"goal": "Say hello."})
    return str((done.structured_content or {})["answer"])


async def home(_: Any) -> PlainTextResponse:
    return PlainTextResponse("home")


@asynccontextmanager
async def web(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI app in this process; yields its address."""
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    with anyio.fail_after(60), listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True


def _no_signals() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def alone(mounted: MountedServer) -> tuple[Any, str]:
    return mounted, ""


def without_lifespan(mounted: MountedServer) -> tuple[Any, str]:
    return Starlette(routes=[Route("/", home), Mount("/agents/one", app=mounted)]), "/agents/one"


def with_lifespan(mounted: MountedServer) -> tuple[Any, str]:
    routes = [Route("/", home), Mount("/agent", app=mounted)]
    return Starlette(routes=routes, lifespan=mounted.lifespan), "/agent"


def in_fastapi(mounted: MountedServer) -> tuple[Any, str]:
    app = fastapi().FastAPI(lifespan=mounted.lifespan)
    app.add_route("/", home)
    app.mount("/agent", mounted)
    return app, "/agent"


def in_a_lifespan_of_fastapi(mounted: MountedServer) -> tuple[Any, str]:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with mounted.lifespan():
            yield

    app = fastapi().FastAPI(lifespan=lifespan)
    app.add_route("/", home)
    app.mount("/agents/one", mounted)
    return app, "/agents/one"


def fastapi() -> Any:
    """Return the package, of which only these tests know; skip the test without it."""
    return pytest.importorskip("fastapi")


MOUNTS: list[Callable[[MountedServer], tuple[Any, str]]] = [
    alone,
    without_lifespan,
    with_lifespan,
    in_fastapi,
    in_a_lifespan_of_fastapi,
]


@both_eras
@pytest.mark.parametrize("mount", MOUNTS)
async def test_an_agent_is_served_inside_another_app(
    tmp_path: Path, mode: Mode, mount: Callable[[MountedServer], tuple[Any, str]]
) -> None:
    mounted = asgi_app(deep(), state_dir=tmp_path / "state")
    app, prefix = mount(mounted)
    async with web(app) as base:
        async with Client(f"{base}{prefix}/mcp", mode=mode) as client:
            assert await answer_of(client) == "Hello."
            wrote = await client.call_tool("write_file", {"path": "/a.txt", "content": "x"})
            assert not wrote.is_error
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"{base}{prefix}/healthz")).json()["status"] == "ok"
            if prefix:
                assert (await http.get(f"{base}/")).text == "home"
            foreign = await http.get(f"{base}{prefix}/healthz", headers={"Host": "evil.example"})
            assert foreign.status_code >= 400
    await mounted.aclose()
    assert not [*(tmp_path / "state" / "servers").glob("*.lock")]  # it has ended


async def test_a_mounted_agent_begins_again_after_its_end_and_remembers(tmp_path: Path) -> None:
    mounted = asgi_app(deep(), state_dir=tmp_path / "state")
    threads: list[str] = []
    for _ in range(2):
        app, prefix = with_lifespan(mounted)
        async with web(app) as base, Client(f"{base}{prefix}/mcp") as client:
            done = await client.call_tool("threads", {})
            threads.append(str(done.content[0].text))  # type: ignore[union-attr]
            await answer_of(client)
    assert "no threads yet" in threads[0]
    assert "thr_" in threads[1]


async def test_a_mounted_agent_asks_for_tokens_as_configured(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    _, token = TokenFile(tmp_path / "state" / "tokens.json").create("ada", ("delegate",))
    mounted = asgi_app(deep(), state_dir=tmp_path / "state", auth=["token"])
    app, prefix = without_lifespan(mounted)
    async with web(app) as base, httpx2.AsyncClient() as http:
        assert (await http.post(f"{base}{prefix}/mcp", json={})).status_code == 401
        known = {"Authorization": f"Bearer {token}"}
        assert (await http.post(f"{base}{prefix}/mcp", json={}, headers=known)).status_code != 401
    await mounted.aclose()


async def test_a_mounted_agent_that_cannot_be_made_answers_so_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    works: list[bool] = []

    def make() -> Agent:
        if not works:
            raise LookupError("no catalogue yet")
        return deep()

    mounted = asgi_app(make, state_dir=tmp_path / "state")
    app, prefix = without_lifespan(mounted)
    async with web(app) as base, httpx2.AsyncClient() as http:
        refused = await http.get(f"{base}{prefix}/healthz")
        assert (refused.status_code, "log says why" in refused.text) == (503, True)
        assert "no catalogue yet" in caplog.text
        assert (await http.get(f"{base}/")).text == "home"
        works.append(True)
        assert (await http.get(f"{base}{prefix}/healthz")).status_code == 200
    await mounted.aclose()


async def test_a_host_that_runs_lifespans_is_told_that_it_cannot_begin(tmp_path: Path) -> None:
    def make() -> Agent:
        raise LookupError("no catalogue yet")

    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await asgi_app(make, state_dir=tmp_path / "state")({"type": "lifespan"}, receive, send)
    (message,) = sent
    assert message["type"] == "lifespan.startup.failed"
    assert "no catalogue yet" in message["message"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"prot": 1}, r"setting 'prot' \(argument prot\) does not exist; nearest: port"),
        ({"port": "abc"}, r"setting 'port' = abc \(from argument port\) is refused"),
        ({"limits": {"costs": 1}}, "'limits.costs'"),
        ({"transport": "stdio"}, "served over HTTP"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_app_is_made(
    settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        asgi_app(create_agent(ScriptedModel([])), **settings)


async def test_serve_refuses_to_block_an_event_loop(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Mount asgi_app"):
        serve(deep(), state_dir=tmp_path)


# --- other processes -----------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "my_app.py").write_text(APP)
    return tmp_path


@both_eras
@pytest.mark.parametrize(
    "command",
    [
        ["my_app.py"],
        ["-m", "deep_agent_mcp", "serve", "my_app:agent", "--transport", "http", "--port", "0"],
    ],
    ids=["serve()", "serve module:attribute"],
)
async def test_another_process_serves_an_agent_over_http(
    place: Path, mode: Mode, command: list[str]
) -> None:
    said, out = os.pipe()
    env = environment(place, DEEP_AGENT_STATE_DIR=str(place / "state"))
    with TemporaryFile() as log, anyio.fail_after(60):
        process = start([sys.executable, *command], env, place, stdout=out, stderr=log.fileno())
        os.close(out)
        listening = json.loads(await anyio.to_thread.run_sync(_line_of, said))
        async with Client(listening["url"], mode=mode) as client:
            assert await answer_of(client) == "Hello from Python."
            assert "skill" in [one.name for one in (await client.list_tools()).tools]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def _line_of(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.readline()


@both_eras
async def test_another_process_serves_an_agent_over_stdio(place: Path, mode: Mode) -> None:
    env = environment(place, DEEP_AGENT_STATE_DIR=str(place / "state"))
    words = [sys.executable, "-m", "deep_agent_mcp", "serve", "my_app:agent", "--reload"]
    command, *args = stand_in(words, env)
    parameters = StdioServerParameters(command=command, args=args, env=env, cwd=place)
    with anyio.fail_after(60):
        async with Client(stdio_client(parameters), mode=mode) as client:
            assert await answer_of(client) == "Hello from Python."


ORDERS = """
from deep_agent_mcp import ScriptedModel, create_agent, tool

@tool
def order(item: str) -> str:
    "Order an item."
    with open("orders.txt", "a") as file:
        print(item, file=file)
    return "ordered"

def call(item):
    return {"tool_calls": [{"name": "order", "args": {"item": item}}]}

agent = create_agent(ScriptedModel([call("pears"), {"text": "Done."}]), [order])
"""


async def test_a_run_goes_on_after_its_server_was_killed(tmp_path: Path) -> None:
    (tmp_path / "orders_app.py").write_text(ORDERS)
    env = environment(tmp_path, DEEP_AGENT_STATE_DIR=str(tmp_path / "state"))
    words = ["serve", "orders_app:agent", "--transport", "http", "--port", "0"]
    command = [sys.executable, "-m", "deep_agent_mcp", *words, "--approve", "ord*"]
    run: dict[str, Any] = {}
    with TemporaryFile() as log, anyio.fail_after(60):
        for _ in range(2):
            said, out = os.pipe()
            process = start(command, env, tmp_path, stdout=out, stderr=log.fileno())
            os.close(out)
            listening = json.loads(await anyio.to_thread.run_sync(_line_of, said))
            async with Client(listening["url"]) as client:
                if not run:
                    done = await client.call_tool("task", {"goal": "Order."})
                else:
                    answer = {"run_id": run["run_id"], "decision": "approve"}
                    done = await client.call_tool("reply", answer)
                run = dict(done.structured_content or {})
            process.send_signal(signal.SIGKILL)
            process.wait(30)
    assert (run["status"], run["answer"]) == ("done", "Done.")
    assert (tmp_path / "orders.txt").read_text() == "pears\n"


@pytest.mark.parametrize(
    ("module", "args", "told"),
    [
        (None, ["gone:agent"], "agent gone:agent: there is no module 'gone'"),
        ("agent = 3\n", ["bad_app:agnet"], "has no attribute 'agnet'"),
        ("agent = 3\n", ["bad_app:agent"], "agent bad_app:agent is of type int"),
        ("agent = 1 / 0\n", ["bad_app:agent"], "bad_app.py:1)"),
        ("def agent():\n    raise OSError('down')\n", ["bad_app:agent"], "bad_app.py:2)"),
        (None, ["no-name"], "names no Python object"),
        (None, ["--reload"], "--reload follows the files of MODULE:ATTRIBUTE"),
    ],
)
def test_what_cannot_be_served_is_one_sentence_and_starts_nothing(
    tmp_path: Path, module: str | None, args: list[str], told: str
) -> None:
    if module is not None:
        (tmp_path / "bad_app.py").write_text(module)
    env = environment(tmp_path, DEEP_AGENT_STATE_DIR=str(tmp_path / "state"))
    ended = run([sys.executable, "-m", "deep_agent_mcp", "serve", *args], env, tmp_path)
    assert ended.returncode == 2
    assert (told in ended.stderr, ended.stdout, "Traceback" in ended.stderr) == (True, "", False)
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr


def test_the_current_directory_is_imported_from_only_if_a_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "anthropic.py").write_text("raise SystemExit('a stranger file was imported')\n")
    env = environment(tmp_path, DEEP_AGENT_STATE_DIR=str(tmp_path / "state"))
    code = "import sys; from deep_agent_mcp.server.cli.main import main; main()"
    plain = [sys.executable, "-P", "-c", code, "serve"]
    ended = subprocess.run(plain, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, timeout=60)
    assert ended.returncode == 0


def test_importing_the_server_package_imports_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import sys, deep_agent_mcp.server as s; "
        "print([m for m in sys.modules if m.startswith('deep_agent_mcp.') and m != s.__name__])"
    )
    command, env = [sys.executable, "-c", code], environment(tmp_path)
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "[]", ended.stderr


async def test_a_function_makes_an_agent_for_each_user_with_a_root_of_their_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "roots").mkdir()
    (tmp_path / "state").mkdir(mode=0o700)
    tokens = TokenFile(tmp_path / "state" / "tokens.json")
    made: list[str] = []

    def make(context: ServeContext) -> Agent:
        made.append(context.principal)
        model = ScriptedModel([{"text": f"Hello {context.principal}."}] * 9)
        return create_deep_agent(model, backend=context.backend)

    mounted = asgi_app(
        make,
        state_dir=tmp_path / "state",
        root=str(tmp_path / "roots" / "{principal}"),
        auth=["token"],
    )
    app, prefix = with_lifespan(mounted)
    async with web(app) as base:
        for user in ("ada", "ben", "ada"):
            _, token = tokens.create(user, ("delegate", "drive"))
            async with create_mcp_http_client({"Authorization": f"Bearer {token}"}) as http:
                target = streamable_http_client(f"{base}{prefix}/mcp", http_client=http)
                async with Client(target) as client:
                    assert await answer_of(client) == f"Hello {user}."
                    await client.call_tool("write_file", {"path": "/a.txt", "content": user})
                    seen = str((await client.call_tool("ls", {"path": "/"})).content)
                    assert "a.txt" in seen
    assert made == ["ada", "ben"]
    assert (tmp_path / "roots" / "ben" / "a.txt").read_text() == "ben"
