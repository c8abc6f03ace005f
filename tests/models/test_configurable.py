"""Models whose id and settings a run chooses."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.models.anthropic import AnthropicModel
from deep_agent_mcp.harness.models.registry import (
    DEFAULT_MODEL,
    PROVIDERS,
    ConfigurableModel,
    UnknownModel,
    configured,
    init_chat_model,
)
from deep_agent_mcp.harness.models.scripted import ScriptedModel
from tests.models.calls import ask

pytestmark = pytest.mark.anyio

OPUS = "anthropic:claude-opus-5-5"


def configurable(
    fields: Sequence[str] | Literal["any"] = ("model",), prefix: str = "", **settings: object
) -> ConfigurableModel:
    made = init_chat_model(
        "claude-haiku-5-5", configurable_fields=fields, config_prefix=prefix, **settings
    )
    assert isinstance(made, ConfigurableModel)
    return made


def script(folder: Path, name: str, says: str) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps([{"text": says}]), encoding="utf-8")
    return f"scripted:{path}"


def test_without_a_name_the_default_model_is_used_and_a_run_may_choose_another() -> None:
    model = init_chat_model()
    assert model.name == DEFAULT_MODEL
    assert configured(model, {}).name == DEFAULT_MODEL
    assert configured(model, {"model": "claude-opus-5-5"}).name == OPUS


def test_without_a_name_only_the_fields_that_are_listed_can_be_chosen() -> None:
    model = init_chat_model(configurable_fields=("max_tokens",))
    assert configured(model, {"max_tokens": 5}).name == DEFAULT_MODEL
    with pytest.raises(UnknownModel, match="'model' cannot be set by a run"):
        configured(model, {"model": OPUS})


def test_a_fixed_model_stays_what_it_is() -> None:
    model = init_chat_model("claude-haiku-5-5")
    assert isinstance(model, AnthropicModel)
    assert configured(model, {"model": OPUS}) is model


def test_it_looks_like_its_default() -> None:
    model, plain = configurable(), init_chat_model("claude-haiku-5-5")
    assert (model.name, model.context_window) == (plain.name, plain.context_window)
    assert model.native_output == plain.native_output


async def test_unconfigured_it_answers_as_its_default(tmp_path: Path) -> None:
    one, two = script(tmp_path, "one", "first"), script(tmp_path, "two", "second")
    model = init_chat_model(one, configurable_fields=["model"])
    assert (await ask(model, "hi")).text == "first"
    assert (await ask(configured(model, {"model": two}), "hi")).text == "second"
    assert (await ask(model, "hi")).text == "first"


def test_a_prefix_tells_the_models_of_a_run_apart() -> None:
    values = {"fast_model": "claude-sonnet-5-5", "deep_model": OPUS, "model": "nonsense"}
    assert configurable(prefix="fast").configured(values).name == "anthropic:claude-sonnet-5-5"
    assert configurable(prefix="deep_").configured(values).name == OPUS


def test_keys_of_others_are_ignored() -> None:
    model = configurable()
    assert model.configured({"fast_model": OPUS, "thread_id": "t1"}).name == model.name
    prefixed = configurable(prefix="fast")
    assert prefixed.configured({"model": OPUS, "temperature": 2}).name == prefixed.name


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (configurable(), "api_key"),
        (configurable(), "base_url"),
        (configurable(temperature=0), "temperature"),
        (configurable(("max_tokens",)), "model"),
        (configurable(prefix="fast"), "fast_base_url"),
        (configurable(prefix="fast"), "fast_temperature"),
    ],
)
def test_a_field_that_is_not_configurable_is_refused(model: ConfigurableModel, key: str) -> None:
    with pytest.raises(UnknownModel) as raised:
        model.configured({key: "x"})
    text = str(raised.value)
    assert f"'{key}' cannot be set by a run. Configurable: " in text
    assert "configurable_fields" in text


def test_any_lets_a_run_set_everything() -> None:
    model = configurable("any", temperature=0)
    values = {"model": OPUS, "base_url": "http://localhost:1", "api_key": "k", "temperature": 1}
    assert model.configured(values).name == OPUS


@pytest.mark.parametrize(
    "name", ["nobody:gpt", "os:system", "deep_agent_mcp.harness.models.base:X", "", 7, None]
)
def test_a_run_chooses_among_known_providers_only(name: object) -> None:
    with pytest.raises(UnknownModel) as raised:
        configurable("any").configured({"model": name})
    assert "claude-" in str(raised.value)


@given(st.text())
def test_whatever_text_is_chosen_it_is_a_known_provider_or_refused(name: str) -> None:
    try:
        model = configurable().configured({"model": f"anthropic:{name}"})
    except UnknownModel:
        assert not name.strip()
    else:
        assert model.name.partition(":")[0] in PROVIDERS


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", "many"), ("max_tokens", True), ("base_url", 5), ("timeout", [])],
)
def test_a_value_of_the_wrong_type_is_refused_without_being_shown(
    field: str, value: object
) -> None:
    with pytest.raises(UnknownModel, match=f"invalid {field} for .*: Input should be") as raised:
        configurable("any").configured({field: value})
    assert repr(value) not in str(raised.value)


def test_a_value_cannot_take_the_place_of_the_providers_own_arguments() -> None:
    with pytest.raises(UnknownModel, match="anthropic models have no setting 'self'"):
        configurable("any").configured({"self": "x"})


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x"])
def test_a_value_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(UnknownModel, match="not JSON data"):
        configurable("any").configured({"thinking": value})


def test_a_setting_that_the_chosen_provider_does_not_take_is_refused(tmp_path: Path) -> None:
    model = configurable(("model",), max_tokens=5)
    with pytest.raises(UnknownModel, match="scripted models have no setting 'max_tokens'"):
        model.configured({"model": script(tmp_path, "s", "x")})


def test_equal_choices_share_one_model() -> None:
    model = configurable(("model", "max_tokens", "thinking"))
    one = model.configured({"max_tokens": 5, "thinking": {"a": 1, "b": 2}})
    assert model.configured({"thinking": {"b": 2, "a": 1}, "max_tokens": 5}) is one
    assert model.configured({"max_tokens": 6}) is not one
    # A bare id and the full one are the same model, and the default is not made twice.
    assert model.configured({"model": "claude-opus-5-5"}) is model.configured({"model": OPUS})
    assert model.configured({"model": "claude-haiku-5-5"}) is model.configured({})


def test_choices_do_not_leak_into_the_next_run() -> None:
    model = configurable(("model", "max_tokens"))
    before = model.configured({})
    model.configured({"model": OPUS, "max_tokens": 5})
    assert model.configured({}) is before


def test_only_the_choices_used_last_are_kept() -> None:
    model = configurable(("max_tokens",))
    first, second = (model.configured({"max_tokens": tokens}) for tokens in (1, 2))
    for tokens in range(3, 33):
        model.configured({"max_tokens": tokens})
    assert model.configured({"max_tokens": 1}) is first
    model.configured({"max_tokens": 33})
    assert model.configured({"max_tokens": 1}) is first
    assert model.configured({"max_tokens": 2}) is not second


async def test_closing_it_closes_every_model_it_made_even_when_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    async def aclose(self: ScriptedModel) -> None:
        closed.append(self.name)
        if self.name == "scripted:two":
            raise OSError("cannot close")

    monkeypatch.setattr(ScriptedModel, "aclose", aclose)
    one, two, three = (script(tmp_path, name, "x") for name in ("one", "two", "three"))
    model = init_chat_model(one, configurable_fields=["model"])
    configured(model, {"model": two})
    configured(model, {"model": three})
    with pytest.raises(OSError, match="cannot close"):
        await model.aclose()
    assert sorted(closed) == ["scripted:one", "scripted:three", "scripted:two"]


def test_a_default_that_cannot_be_made_is_an_error_at_once() -> None:
    with pytest.raises(UnknownModel, match="Accepted: "):
        init_chat_model("nobody:gpt", configurable_fields=["model"])


@pytest.mark.parametrize("fields", ["model", ["model", ""]])
def test_fields_that_make_no_sense_are_an_error_at_once(fields: str | list[str]) -> None:
    with pytest.raises(UnknownModel, match="configurable_fields"):
        init_chat_model(DEFAULT_MODEL, configurable_fields=fields)  # type: ignore[arg-type]


def test_a_prefix_without_fields_is_an_error_at_once() -> None:
    with pytest.raises(UnknownModel, match="config_prefix='fast' has nothing to apply to"):
        init_chat_model(DEFAULT_MODEL, config_prefix="fast")


def test_no_fields_at_all_give_a_fixed_model() -> None:
    assert isinstance(init_chat_model(configurable_fields=()), AnthropicModel)
