"""A client of your own: the official SDK over Streamable HTTP, driving two tools.

Run it with `python examples/mcp_client.py`; it starts a server of its own on a free port. With a
URL as argument, such as http://127.0.0.1:8000/mcp, it connects to a server that runs already.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from mcp import Client
from mcp.types import CallToolResult, TextContent, TextResourceContents


@contextmanager
def own_server() -> Iterator[str]:
    """Start a server and yield its URL."""
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "deep_agent_mcp", "serve", "--transport", "http"]
        command += ["--port", "0", "--state-dir", state]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                # Once it listens, it says where, as one line of JSON on stdout.
                assert server.stdout
                yield json.loads(server.stdout.readline())["url"]
            finally:
                server.terminate()


def text_of(result: CallToolResult) -> str:
    """Return the text that a model would read."""
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


async def main(url: str) -> None:
    async with Client(url) as client:
        assert client.server_info
        print("server:", client.server_info.name, "speaking", client.protocol_version)
        print("tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))

        # The first call begins a thread; the next ones name it. It outlives this connection.
        todos = [{"content": "Say hello", "status": "completed"}, {"content": "Stay in touch"}]
        result = await client.call_tool("write_todos", {"todos": todos})
        thread_id = result.structured_content["thread_id"]
        print(text_of(result))

        note = {"path": "/hello.txt", "content": "Hello, thread.\n", "thread_id": thread_id}
        result = await client.call_tool("write_file", note)
        print(text_of(result))
        stored = await client.read_resource(f"thread://{thread_id}/files/hello.txt")
        for part in stored.contents:
            if isinstance(part, TextResourceContents):
                print("read back:", part.text.strip())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(main, sys.argv[1])
    else:
        with own_server() as own_url:
            anyio.run(main, own_url)
