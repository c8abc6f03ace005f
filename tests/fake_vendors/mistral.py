"""Fake of Mistral's API: similar to Chat Completions, with additional rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.fake_vendors.chat import FakeChat
from tests.fake_vendors.server import Refused, Reply, pieces

_ID = re.compile(r"[a-zA-Z0-9]{9}")
_MORE = (
    "max_tokens", "safe_prompt", "n", "random_seed", "prompt_mode", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip


class FakeMistral(FakeChat):
    """Mistral's chat completions, which require call ids of nine letters and digits."""

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies, extras=_MORE)
        for reply in replies:
            for place, call in enumerate(reply.calls):
                call.id = f"abcd1234{place}"

    def check(self, body: Mapping[str, Any]) -> None:
        messages = [dict(one) for one in body["messages"]]
        for message in messages:
            message.pop("prefix", None)
            if message["role"] == "tool":
                message.pop("name", None)
            ids = [call["id"] for call in message.get("tool_calls") or ()]
            for one in [*ids, *([message["tool_call_id"]] if message["role"] == "tool" else [])]:
                if not _ID.fullmatch(one):
                    raise Refused(
                        f"Tool call id was {one} but must be a-z, A-Z, 0-9, with a length of 9."
                    )
            for call in message.get("tool_calls") or ():
                if isinstance(call["function"]["arguments"], dict):
                    arguments = json.dumps(call["function"]["arguments"])
                    call["function"] = {**call["function"], "arguments": arguments}
            if message["role"] == "assistant" and "content" not in message:
                message["content"] = None
        super().check({**body, "messages": messages})

    def frames(self, reply: Reply, body: Mapping[str, Any]) -> Iterable[bytes]:
        def chunk(delta: Any, stop: str | None = None, **more: Any) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": stop}
            data = {"id": "m1", "object": "chat.completion.chunk", "created": 1,
                    "model": body["model"], "choices": [choice], **more}  # fmt: skip
            return f"data: {json.dumps(data)}\n\n".encode()

        yield chunk({"role": "assistant", "content": ""})
        for piece in pieces(reply.thinking):
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": piece}]}
            yield chunk({"content": [thought]})
        for piece in pieces(reply.text):
            yield chunk({"content": piece})
        calls = [
            {
                "id": call.id,
                "index": place,
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(reply.calls)
        ]
        usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
        stop = reply.stop or ("tool_calls" if calls else "stop")
        yield chunk({"content": "", "tool_calls": calls or None}, stop, usage=usage | reply.usage)
        yield b"data: [DONE]\n\n"
