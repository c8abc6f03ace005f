"""The plugin by itself, and as an agent uses it."""

import logging

from word_tools.middleware import CallLog
from word_tools.model import EchoModel
from word_tools.tools import count_words

from deep_agent_mcp import ScriptedModel, create_agent, init_chat_model
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


def test_the_installed_package_is_found_by_its_names():
    assert resolve("count_words", "tools") is count_words
    assert resolve("call_log", "middleware") is CallLog
    assert init_chat_model("echo:x", shout=True).name == "echo:x"
