"""A host of MCP Apps: a web page that shows an app and uses a real MCP client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import ElicitRequestParams, ElicitResult

from tests.e2e.servers import Era, connected
from tests.viewer.browser import Browser
from tests.viewer.conftest import Served

__all__ = ["Host", "hosting"]

PAGE = Path(__file__).with_name("host.html")
ABLE = {"serverTools": {}, "serverResources": {}}


@dataclass
class Host:
    """A host in an open browser window.

    Attributes:
        url: URL of its page.
        asked: Forms that the server sent to the person.
    """

    browser: Browser
    client: Client
    portal: BlockingPortal
    url: str = ""
    asked: list[ElicitRequestParams] = field(default_factory=list[ElicitRequestParams])

    def tool(self, name: str) -> dict[str, Any]:
        tools = self.portal.call(self.client.list_tools).tools
        (found,) = [one for one in tools if one.name == name]
        return found.model_dump(mode="json", by_alias=True, exclude_none=True)

    def show(
        self,
        name: str,
        args: dict[str, Any],
        *,
        call_tool: bool = True,
        capabilities: dict[str, Any] = ABLE,
        context: dict[str, Any] | None = None,
    ) -> None:
        """Call a tool, and enter the frame of its app."""
        browser = self.browser
        browser.go(self.url)
        options = {"capabilities": capabilities, "context": context or {}, "callTool": call_tool}
        browser.run("show(...arguments)", self.tool(name), args, options)
        browser.until("document.querySelector('iframe')")
        browser.enter_frame()
        browser.until("document.getElementById('main')")

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Pass a request of the host's page to the server."""
        params = request["params"]
        try:
            if request["method"] == "resources/read":
                result: Any = self.portal.call(self.client.read_resource, params["uri"])
            else:
                result = self.portal.call(
                    self.client.call_tool, params["name"], params.get("arguments")
                )
        except MCPError as refused:
            return {"error": {"code": refused.error.code, "message": refused.error.message}}
        return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}


@contextmanager
def hosting(
    browser: Browser, served: Served, mode: Era = "auto", *, forms: bool = False
) -> Iterator[Host]:
    """Open a host; with `forms`, its client supports elicitation, and cancels all questions."""
    asked: list[ElicitRequestParams] = []

    async def ask(_: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="cancel")

    options = {"elicitation_callback": ask} if forms else {}
    with start_blocking_portal() as portal:
        connecting = connected(served.server.target("http"), mode, **options)
        with portal.wrap_async_context_manager(connecting) as client:
            host = Host(browser, client, portal, asked=asked)
            web = ThreadingHTTPServer(("127.0.0.1", 0), _handler(host))
            web.daemon_threads = False  # closing then waits for open calls
            serving = Thread(target=web.serve_forever, args=(0.05,))
            serving.start()
            try:
                host.url = f"http://127.0.0.1:{web.server_port}/"
                yield host
            finally:
                browser.leave_frame()
                browser.go("about:blank")  # stops the page's requests
                web.shutdown()
                serving.join(10)
                web.server_close()


def _handler(host: Host) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/"
            self._answer(200 if found else 204, PAGE.read_bytes() if found else b"", "text/html")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(200, json.dumps(host.handle(request)).encode(), "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
