"""A small server of the older protocol without any library, so that it starts fast.

`python -m tests.mcp_servers.raw_server HABIT [FILE]`. HABIT is `silent` (it never answers), `quits`
(it ends immediately), `cycles` (its schemas contain reference cycles), `holds` (its tools never
answer), `stays` (it ignores the end of its input), or `behaves` (it works normally).
"""

import json
import os
import signal
import sys
from pathlib import Path

HABIT = sys.argv[1]
FILE = Path(sys.argv[2]) if sys.argv[2:] else None
OPEN = {"type": "object", "properties": {"text": {"type": "string"}}}
BOMB = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/d30"}},
    "$defs": {
        "d0": {"type": "string"},
        **{
            f"d{n}": {
                "type": "object",
                "properties": {k: {"$ref": f"#/$defs/d{n - 1}"} for k in "ab"},
            }
            for n in range(1, 31)
        },
    },
}
LOOP = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "required": ["tree"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
        }
    },
}
PLAIN = {"echo": OPEN, "die": OPEN, "pid": OPEN, "broken": OPEN}
FAR = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}
CYCLES = {"bomb": BOMB, "loop": LOOP, "far": FAR, "fine": OPEN}
LISTED = CYCLES if HABIT == "cycles" else PLAIN


def send(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def result(request: dict, text: str) -> None:
    send(id=request["id"], result={"content": [{"type": "text", "text": text}]})


def call(request: dict) -> None:
    name, args = request["params"]["name"], request["params"].get("arguments") or {}
    if name == "die":
        if FILE is not None:
            FILE.write_text("acted", encoding="utf-8")
        os._exit(1)
    if name == "broken":
        send(id=request["id"], result={"content": "this is no list"})
    elif name == "pid":
        result(request, str(os.getpid()))
    else:
        result(request, args.get("text", ""))


def main() -> None:
    if HABIT == "quits":
        return
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if HABIT == "silent" or "id" not in request:
            continue
        if HABIT == "holds" and method == "tools/call":
            continue
        if method == "initialize":
            version = request["params"]["protocolVersion"]
            server = {"name": "raw", "version": "1"}
            capabilities = {"tools": {}}
            answer = {"protocolVersion": version, "serverInfo": server}
            send(id=request["id"], result={**answer, "capabilities": capabilities})
        elif method == "tools/list":
            tools = [{"name": n, "inputSchema": s} for n, s in LISTED.items()]
            send(id=request["id"], result={"tools": tools})
        elif method == "tools/call":
            call(request)
        else:
            send(id=request["id"], error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
    if HABIT == "stays":
        signal.pause()
