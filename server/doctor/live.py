"""One real, tiny call of the model, for those who ask for it."""

from __future__ import annotations

import time

import anyio

from ...harness.errors import HarnessError
from ...harness.messages.message import AIMessage, HumanMessage
from ...harness.models.base import ChatRequest
from ...harness.models.init_chat_model import init_chat_model
from ...harness.models.registry import DEFAULT_MODEL
from ..settings.accepted import is_sampling
from ..settings.settings import Settings
from .findings import Finding, broken, note, ok

__all__ = ["examine_live_model"]

CALL_SECONDS = 60.0
MOST_TOKENS = 16


async def examine_live_model(settings: Settings) -> Finding:
    """Ask the configured model for one word; this costs a few tokens."""
    name = settings.model or DEFAULT_MODEL
    about = "live model"
    if is_sampling(name):
        return note(about, f"{name} is the client's; only a client can ask it")
    question = HumanMessage("Answer with the word: ready")
    request = ChatRequest([question], settings={"max_tokens": MOST_TOKENS})
    began = time.monotonic()
    try:
        model = init_chat_model(name)
        try:
            with anyio.fail_after(CALL_SECONDS):
                stream = model.stream(request)
                answers = [one async for one in stream if isinstance(one, AIMessage)]
        finally:
            await model.aclose()
    except TimeoutError:
        fix = "Check the network, and ANTHROPIC_BASE_URL if it is set."
        return broken(about, f"{name} did not answer within {CALL_SECONDS:.0f} s", fix)
    except HarnessError as error:
        return broken(about, str(error), "Check key, model name and network, as the text says.")
    if not answers:
        return broken(about, f"{name} gave no answer", "Try again.")
    return ok(about, f"{name} answered in {time.monotonic() - began:.1f} s")
