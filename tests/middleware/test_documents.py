"""Documents, recordings and films, to a model that takes them or does not."""

import base64
from pathlib import Path

import pytest

from deep_agent_mcp.harness.agent import create_agent
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.checkpoint.sqlite import SqliteCheckpointer
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.messages.message import (
    AIMessage,
    AudioBlock,
    DocumentBlock,
    HumanMessage,
    ImageBlock,
    TextBlock,
    ToolCall,
    ToolMessage,
    VideoBlock,
)
from deep_agent_mcp.harness.messages.transcript import transcript_text
from deep_agent_mcp.harness.middleware.context.context_editing import (
    MediaSupport,
    UnsupportedContentMiddleware,
)
from deep_agent_mcp.harness.middleware.filesystem import FilesystemMiddleware
from deep_agent_mcp.harness.middleware.pii import PIIMiddleware
from deep_agent_mcp.harness.models.base import messages_tokens
from deep_agent_mcp.harness.tools.tool import tool
from tests.loop.models import Turns, call, says
from tests.middleware.test_unsupported_content import CLAUDE, Named, seen
from tests.models.test_anthropic_requests import sent

pytestmark = pytest.mark.anyio

PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + b"\0" * 200
DOCUMENT = DocumentBlock("application/pdf", base64.b64encode(PDF).decode(), name="plan.pdf")
AUDIO = AudioBlock("audio/wav", "aGk=")
VIDEO = VideoBlock("video/mp4", "aGk=")


async def test_a_pdf_that_is_read_reaches_the_model_after_a_restart_too(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "plan.pdf").write_bytes(PDF)
    model = Turns(says("", call("1", "read_file", path="/plan.pdf")), says("read"), says("again"))
    for text in ("read it", "and again"):
        async with SqliteCheckpointer(tmp_path / "journal.db") as journal:
            files = FilesystemMiddleware(DirectoryBackend(root))
            agent = create_agent(model, middleware=[files], checkpointer=journal)
            await agent.ainvoke(text, thread_id="t")
    for request in model.requests[1:]:
        result = request.messages[2]
        assert isinstance(result, ToolMessage)
        notice = f"[/plan.pdf: application/pdf, {len(PDF)} bytes]"
        assert result.content == (TextBlock(notice), DOCUMENT)


async def test_a_pdf_that_is_too_large_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "big.pdf").write_bytes(PDF + b"\0" * 8_000_000)
    model = Turns(says("", call("1", "read_file", path="/big.pdf")), says("no"))
    files = FilesystemMiddleware(DirectoryBackend(tmp_path))
    await create_agent(model, middleware=[files]).ainvoke("go")
    assert (
        "is a document (application/pdf) of 7.6 MiB, too large"
        in model.requests[1].messages[2].text
    )


async def test_anthropic_gets_documents_and_notices_of_what_it_does_not_take() -> None:
    sheet = DocumentBlock("text/csv", "YSxi")
    body = await sent(HumanMessage((TextBlock("look"), DOCUMENT, AUDIO, VIDEO, sheet)))
    text, document, audio, video, other = body["messages"][0]["content"]
    assert text["text"] == "look"
    source = {"type": "base64", "media_type": "application/pdf", "data": DOCUMENT.data}
    assert {key: document[key] for key in ("type", "source", "title")} == {
        "type": "document",
        "source": source,
        "title": "plan.pdf",
    }
    assert audio["text"] == "[audio, audio/wav: left out, as this model does not take it]"
    assert video["text"] == "[video, video/mp4: left out, as this model does not take it]"
    assert other["text"] == "[document, text/csv: left out, as this model does not take it]"


async def test_an_error_with_an_image_and_an_image_of_another_type_end_no_thread() -> None:
    image, drawing = ImageBlock("image/png", "aGk="), ImageBlock("image/svg+xml", "aGk=")
    asked = AIMessage((ToolCall("1", "look"), ToolCall("2", "look")))
    failed = ToolMessage("1", (TextBlock("broken"), image, DOCUMENT), "look", "error")
    plain = ToolMessage("2", (TextBlock("broken"), drawing), "look", "error")
    body = await sent(HumanMessage("go"), asked, failed, plain)
    first, second = body["messages"][2]["content"]
    assert [one["type"] for one in first["content"]] == ["text", "text", "image", "document"]
    assert first["content"][0]["text"] == "(This call failed.)"
    assert "is_error" not in first
    assert second["is_error"] is True
    assert "image/svg+xml: left out" in second["content"][1]["text"]


async def test_a_tool_may_return_any_of_them() -> None:
    @tool
    def record() -> list[object]:
        """Record."""
        return ["here", AUDIO, VIDEO, DOCUMENT]

    model = Turns(says("", call("1", "record")), says("ok"))
    result = await create_agent(model, [record]).ainvoke("go")
    assert result.state["messages"][2].content == (TextBlock("here"), AUDIO, VIDEO, DOCUMENT)


async def test_a_name_that_no_journal_takes_is_mended() -> None:
    @tool
    def fetch() -> DocumentBlock:
        """Fetch."""
        return DocumentBlock("application/pdf", "aGk=", name="b\udcffd.pdf")

    model = Turns(says("", call("1", "fetch")), says("ok"))
    result = await create_agent(model, [fetch]).ainvoke("go")
    (document,) = result.state["messages"][2].content
    assert document.name == "b?d.pdf"


async def test_what_a_model_does_not_take_becomes_a_notice() -> None:
    message = HumanMessage((DOCUMENT, AUDIO, VIDEO))
    (shown,) = await seen(UnsupportedContentMiddleware(), [message])
    document, *notices = shown.content  # type: ignore[union-attr]
    assert document == DOCUMENT
    assert [one.text for one in notices] == [  # type: ignore[union-attr]
        "[A recording (audio/wav, 3 bytes) was left out here: this model cannot hear recordings.]",
        "[A film (video/mp4, 3 bytes) was left out here: this model cannot see films.]",
    ]
    large = HumanMessage((DocumentBlock("application/pdf", "a" * (31 << 20)),))
    (shown,) = await seen(UnsupportedContentMiddleware(), [large])
    assert "this model takes documents of at most 22.5 MiB" in shown.text


async def test_what_models_take_can_be_described_by_kind() -> None:
    described = UnsupportedContentMiddleware(
        documents={CLAUDE.name: MediaSupport()}, audio={"other:": MediaSupport(["audio/wav"])}
    )
    message = HumanMessage((ImageBlock("image/png", "aGk="), DOCUMENT, AUDIO, VIDEO))
    (by_claude,) = await seen(described, [message])
    assert [one.type for one in by_claude.content] == ["image", "text", "text", "text"]  # type: ignore[union-attr]
    assert "cannot read documents" in by_claude.text
    assert (await seen(described, [message], Named("other:x")))[0] is message
    with pytest.raises(AgentBuildError, match="video"):
        UnsupportedContentMiddleware(video={"x": "all"})  # type: ignore[dict-item]


async def test_the_name_of_a_document_is_redacted() -> None:
    model = Turns(says("ok"))
    named = DocumentBlock("application/pdf", "aGk=", name="ann@example.org.pdf")
    await create_agent(model, middleware=[PIIMiddleware("email")]).ainvoke([HumanMessage((named,))])
    (block,) = model.requests[0].messages[0].content
    assert block == DocumentBlock("application/pdf", "aGk=", name="[REDACTED_EMAIL]")


def test_they_count_by_their_size_and_are_named_in_transcripts() -> None:
    small, large = (
        HumanMessage((DocumentBlock("application/pdf", "a" * n),)) for n in (9, 400_000)
    )
    assert 1_000 < messages_tokens([small]) < 2_000
    assert 8_000 < messages_tokens([large]) < 20_000
    text = transcript_text([HumanMessage((DOCUMENT, AUDIO, VIDEO))])
    assert text == "[user]\n\n(a document)\n(a recording)\n(a film)"
