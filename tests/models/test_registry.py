import os
import subprocess
import sys
from pathlib import Path

import pytest

from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.registry import (
    DEFAULT_MODEL,
    PROVIDERS,
    UnknownModel,
    init_chat_model,
    unset_variables,
)
from deep_agent_mcp.harness.models.scripted import ScriptedModel


def test_a_full_name_gives_the_providers_model() -> None:
    model = init_chat_model("anthropic:claude-opus-5-5", max_tokens=100)
    assert isinstance(model, AnthropicModel)
    assert model.name == "anthropic:claude-opus-5-5"


def test_a_bare_claude_id_is_anthropics() -> None:
    assert init_chat_model("claude-haiku-5-5").name == "anthropic:claude-haiku-5-5"


def test_a_path_with_a_colon_names_a_script(tmp_path: Path) -> None:
    folder = tmp_path / "C:"
    folder.mkdir()
    (folder / "demo.yaml").write_text("- text: hi\n", encoding="utf-8")
    model = init_chat_model(f"scripted:{folder / 'demo.yaml'}")
    assert isinstance(model, ScriptedModel)
    assert model.name == "scripted:demo"


def test_the_default_model_is_the_newest_sonnet_the_sdk_knows() -> None:
    from typing import get_args

    from anthropic.types.model import Model

    sonnets = [name for name in get_args(get_args(Model)[0]) if "-sonnet-" in name]
    newest = max(sonnets, key=lambda n: [int(part) for part in n.split("-")[2:4]])
    # A dated id, such as 4-5-20250929, would compare wrongly; there is none of the newest.
    assert f"anthropic:{newest}" == DEFAULT_MODEL
    assert init_chat_model(DEFAULT_MODEL).context_window == 1_000_000


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("claude-opus-5-5", {}, ("ANTHROPIC_API_KEY",)),
        ("claude-opus-5-5", {"ANTHROPIC_AUTH_TOKEN": "t"}, ()),
        ("claude-opus-5-5", {"ANTHROPIC_PROFILE": "work"}, ()),
        ("openai:gpt-5", {}, ("OPENAI_API_KEY",)),
        ("openai:gpt-5", {"OPENAI_API_KEY": "k"}, ()),
        ("openai:qwen", {"OPENAI_BASE_URL": "http://localhost:8080/v1"}, ()),
        ("azure:gpt-5", {"AZURE_OPENAI_API_KEY": "k"}, ("AZURE_OPENAI_BASE_URL",)),
        ("ollama:qwen", {}, ()),
        ("bedrock:nova", {}, ()),
        ("anthropic-bedrock:claude-opus-5-5", {}, ()),
        ("anthropic-vertex:claude-opus-5-5", {}, ()),
    ],
)
def test_a_model_names_the_variable_without_which_it_cannot_be_asked(
    name: str,
    given: dict[str, str],
    missing: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for one in [*os.environ]:
        monkeypatch.delenv(one)
    for variable, value in {"HOME": str(tmp_path), **given}.items():
        monkeypatch.setenv(variable, value)
    assert unset_variables(init_chat_model(name)) == missing


def test_a_login_of_the_sdk_may_stand_for_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in [*os.environ]:
        monkeypatch.delenv(one)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config/anthropic").mkdir(parents=True)
    assert not unset_variables(init_chat_model(DEFAULT_MODEL))


@pytest.mark.parametrize("name", ["nobody:gpt", "gpt-5", "", "anthropic:", "scripted:"])
def test_an_unknown_name_is_told_what_is_accepted(name: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        init_chat_model(name)
    for provider in PROVIDERS:
        assert f"{provider}:" in str(raised.value)
    assert DEFAULT_MODEL in str(raised.value)


@pytest.mark.parametrize(
    ("name", "setting", "meant"),
    [
        ("anthropic:claude-x", "max_tokenz", "max_tokens"),
        ("anthropic:claude-x", "temprature", "temperature"),
        ("openai:gpt-5", "base_ulr", "base_url"),
    ],
)
def test_a_setting_that_is_misspelt_is_refused(name: str, setting: str, meant: str) -> None:
    with pytest.raises(UnknownModel, match=f"no setting '{setting}'. Did you mean '{meant}'"):
        init_chat_model(name, **{setting: 1})


def test_a_setting_that_nobody_knows_here_goes_on_to_the_provider() -> None:
    init_chat_model("anthropic:claude-x", container="c", top_logits=3)
    init_chat_model("openai:gpt-5", top_logprobs=3, parallel_tool_calls=False)


def test_a_setting_the_provider_does_not_take_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("- text: hi\n", encoding="utf-8")
    with pytest.raises(UnknownModel, match="scripted models have no setting 'max_tokens'"):
        init_chat_model(f"scripted:{tmp_path / 's.yaml'}", max_tokens=5)


def test_a_setting_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(UnknownModel, match="invalid max_tokens for anthropic models"):
        init_chat_model("claude-haiku-5-5", max_tokens="5")


def test_making_a_model_does_not_import_the_sdk() -> None:
    code = (
        "import sys\n"
        "from deep_agent_mcp.harness.models.registry import init_chat_model\n"
        "from deep_agent_mcp.harness.models.registry import DEFAULT_MODEL\n"
        "m = init_chat_model(DEFAULT_MODEL); m.name; m.context_window;"
        "print([n for n in sys.modules if n.split('.')[0] in ('anthropic', 'httpx2')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-sonnet-4-5-20250929", 200_000),
        ("claude-sonnet-4-6", 1_000_000),
        ("claude-sonnet-5-5", 1_000_000),
        ("qwen-3", None),
    ],
)
def test_the_context_window_is_known_per_family(model: str, window: int | None) -> None:
    assert AnthropicModel(model).context_window == window


def test_concurrent_first_calls_import_the_sdk_off_the_event_loop() -> None:
    code = """
import sys, threading, anyio
from deep_agent_mcp.harness.errors import ModelError
from deep_agent_mcp.harness.messages.message import HumanMessage
from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.base import ChatRequest

threads = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "anthropic":
            threads.append(threading.current_thread() is threading.main_thread())
sys.meta_path.insert(0, Watch())
kinds = []

async def call():
    try:
        async for _ in AnthropicModel("claude-sonnet-5-5").stream(ChatRequest([HumanMessage("x")])):
            pass
    except ModelError as error:
        kinds.append(error.kind)

async def main():
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)

anyio.run(main)
print(threads, kinds)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[False] {['auth'] * 5}"
