"""The script file of a scripted model: its schema, and errors with the line of the problem."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, cast

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from ..definitions import no_such
from ..definitions.frontmatter import DefinitionError
from ..definitions.sources import read_regular
from ..errors import HarnessError

__all__ = ["ANY_AGENT", "Expect", "Script", "ScriptError", "ScriptedCall", "Turn", "load_script"]

ANY_AGENT = "*"
"""Key in `agents`: the turns of every agent without an entry of its own."""


_MAX_BYTES = 10_000_000


class ScriptError(HarnessError):
    """A script cannot be read, or is malformed."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Needles = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class Expect(_Part):
    """Expectations about a request. A needle is text that must occur; a list requires all of them.

    Attributes:
        agent: The agent's name.
        system: Needles in the system prompt.
        last_type: Type of the last message: `human`, `ai` or `tool`.
        last: Needles in the text of the last message.
        results: Per tool, needles in its results; each must occur in some result of that tool.
        tools: Names of tools that the request must offer.
    """

    agent: str | None = None
    system: _Needles = ()
    last_type: str | None = None
    last: _Needles = ()
    results: dict[str, _Needles] = Field(default_factory=dict[str, _Needles])
    tools: _Needles = ()


class ScriptedCall(_Part):
    """One tool call. `invalid` is raw text that replaces the JSON object of arguments."""

    name: str
    args: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    id: str | None = None
    invalid: str | None = None


class ScriptedUsage(_Part):
    """Tokens to report, with the fields of `Usage`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


class ScriptedFailure(_Part):
    """A failure instead of an answer, with the fields of `ModelError`."""

    message: str
    kind: str = "unknown"
    retryable: bool = False
    retry_after: float | None = None


class Turn(_Part):
    """One answer: expectations first, then thinking, text and tool calls, in this order.

    A string is shorthand for a turn with that text.

    Attributes:
        expect: Expectations about the request.
        think: Thinking.
        text: Text.
        tool_calls: Calls.
        delay: Seconds before the answer begins.
        usage: Tokens to report.
        error: Fail instead of answering.
    """

    expect: Expect = Expect()
    think: str = ""
    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    delay: float = Field(default=0.0, ge=0)
    usage: ScriptedUsage | None = None
    error: ScriptedFailure | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, data: Any) -> Any:
        return {"text": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.think or self.text or self.tool_calls or self.error):
            raise ValueError("a turn needs at least one of text, think, tool_calls, error")
        return self


Agents = dict[str, tuple[Turn, ...]]


class ScriptedRun(_Part):
    """Turns for one goal. They apply after a human message that contains `match`.

    The first agent receives the goal; the others are its subagents.
    """

    match: str
    agents: Agents


class Script(_Part):
    """A whole script.

    Attributes:
        name: The model name in answers, after `scripted:`. Default: the file's name.
        context_window: Input tokens that the model claims to accept.
        native_output: Whether the model claims to support output schemas. If so, the turns must
            fit the schema.
        agents: Turns by agent; `*` matches any other agent.
        runs: Turns for specific goals. They take precedence over `agents`.
    """

    name: str = "script"
    context_window: int | None = None
    native_output: bool = False
    agents: Agents = Field(default_factory=dict[str, tuple[Turn, ...]])
    runs: tuple[ScriptedRun, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        if isinstance(data, list | tuple):
            return {"agents": {ANY_AGENT: cast(Sequence[Any], data)}}
        return data


def load_script(source: str | Path | Sequence[Any] | Mapping[str, Any]) -> Script:
    """Load a script from a YAML or JSON file, from its parsed content, or from a list of turns.

    Raises:
        ScriptError: The file cannot be read or is malformed; the message gives the file, the line
            and the field.
    """
    if isinstance(source, Mapping):
        return _validated(dict(source), "the script", None)
    if not isinstance(source, str | Path):
        return _validated(list(source), "the list of turns", None)
    path = Path(source).expanduser()
    try:
        raw = read_regular(path, _MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ScriptError(
                f"cannot read the script {path}: it has more than {_MAX_BYTES:,} bytes"
            )
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, DefinitionError) as error:
        raise ScriptError(f"cannot read the script {path}: {error}") from error
    try:
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except json.JSONDecodeError as error:
        raise ScriptError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ScriptError(f"{path}{line}: not YAML: {problem}") from error
    script = _validated(data, str(path), text)
    if "name" in script.model_fields_set:
        return script
    return script.model_copy(update={"name": path.stem})


def _validated(data: Any, where: str, text: str | None) -> Script:
    if isinstance(data, list):
        # Errors then name positions in the list, as the author wrote it.
        places: tuple[str | int, ...] = ("agents", ANY_AGENT)
    else:
        places = ()
    try:
        return Script.model_validate(data)
    except ValidationError as error:
        problems = [
            _problem(item["loc"][len(places) :], _message(item), text)
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise ScriptError(f"{where}: malformed script: {'; '.join(problems)}") from error


_PARTS: Mapping[str, type[_Part]] = {
    "agents": Turn,
    "runs": ScriptedRun,
    "expect": Expect,
    "tool_calls": ScriptedCall,
    "usage": ScriptedUsage,
    "error": ScriptedFailure,
}
"""The kind of object below a key."""


def _message(error: ErrorDetails) -> str:
    """Return the text of an error; one about an unknown key names the keys that are accepted."""
    *above, key = error["loc"] or ("",)
    if error["type"] != "extra_forbidden":
        return error["msg"]
    part: type[_Part] = Script
    is_agent = False  # whether the next key is the name of an agent, which may be any word
    for one in above:
        if isinstance(one, str):
            part = part if is_agent else _PARTS.get(one, part)
            is_agent = one == "agents" and not is_agent
    return no_such("key", str(key), part.model_fields)


def _problem(loc: tuple[str | int, ...], message: str, text: str | None) -> str:
    line = None if text is None else _line_of(loc, text)
    place = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in loc)
    prefix = f"line {line}, " if line is not None else ""
    return f"{prefix}{place.lstrip('.') or 'top level'} (turns count from 1): {message}"


def _line_of(loc: tuple[str | int, ...], text: str) -> int | None:
    """Return the line of a field, or of its nearest ancestor in the file."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # JSON that is not YAML, such as one indented with tabs
        return None
    if node is None:
        return None
    line = node.start_mark.line + 1
    for part in loc:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part] if part < len(node.value) else None
        elif isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(part)]
            node = found[0][1] if found else None
            if found:
                line = found[0][0].start_mark.line + 1
                continue
        if node is None:
            break
        line = node.start_mark.line + 1
    return line
