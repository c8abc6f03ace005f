"""The plugin by itself, and as an agent uses it."""

import logging
from zipfile import ZipFile

from word_tools.backend import archive
from word_tools.middleware import CallLog
from word_tools.model import EchoModel
from word_tools.tools import count_words

from deep_agent_mcp import ScriptedModel, create_agent, create_deep_agent, init_chat_model
from deep_agent_mcp.harness.agent_file.reading import read_agent_file
from deep_agent_mcp.harness.plugins import resolve

CALL = {"tool_calls": [{"name": "count_words", "args": {"text": "one two three"}}]}


def test_an_agent_counts_words_and_the_call_is_logged(caplog):
    caplog.set_level(logging.INFO)
    agent = create_agent(
        ScriptedModel([CALL, {"text": "3"}]), [count_words], middleware=[CallLog()]
    )
    assert agent.invoke("How many words?").run.answer == "3"
    assert "count_words: success" in caplog.text


def test_the_model_answers_with_the_question():
    assert create_agent(EchoModel("you said")).invoke("Hello").run.answer == "you said: Hello"


def test_an_agent_reads_the_archive_that_its_file_names(tmp_path):
    with ZipFile(tmp_path / "handbook.zip", "w") as packed:
        packed.writestr("rules/first.md", "Be kind.")
    options = f'options = {{ path = "{(tmp_path / "handbook.zip").as_posix()}" }}'
    file = tmp_path / "deep-agent.toml"
    file.write_text(f'[files]\n"/" = {{ backend = "archive", {options} }}\n')
    _, parts = read_agent_file(file, {})
    calls = [
        {"name": "read_file", "args": {"path": "/rules/first.md"}},
        {"name": "write_file", "args": {"path": "/rules/second.md", "content": "Be quick."}},
    ]
    model = ScriptedModel([{"tool_calls": calls}, {"text": "Done."}])
    result = create_deep_agent(model, backend=parts.routes["/"]).invoke("Read the rules.")
    read, refused = [one.text for one in result.state["messages"] if one.type == "tool"]
    assert "Be kind." in read
    assert "read-only" in refused


def test_the_installed_package_is_found_by_its_names():
    assert resolve("count_words", "tools") is count_words
    assert resolve("call_log", "middleware") is CallLog
    assert resolve("archive", "backends") is archive
    assert init_chat_model("echo:x", shout=True).name == "echo:x"
