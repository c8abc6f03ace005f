"""Schema of the agent file: one frozen model for each of its tables.

Keys have the names of the parameters they stand for, of `create_deep_agent`, `SubAgent` or a
middleware. `docs/agent-file.md` explains each; `deep-agent.schema.json` there is made from these
models, so that editors complete them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, StrictFloat, StrictInt

__all__ = [
    "AgentFile",
    "AgentTable",
    "AnswerTable",
    "CacheTable",
    "FileReference",
    "FilesTable",
    "Imported",
    "JournalTable",
    "LimitsTable",
    "MiddlewareTable",
    "ModelTable",
    "StoreTable",
    "SubAgentTable",
    "VectorsTable",
]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class FileReference(_Table):
    """Text in a file of its own, such as `{ file = "reviewer.md" }`."""

    file: str = Field(min_length=1, description="a path, relative to the agent file")


class Imported(_Table):
    """A Python object, such as `{ import = "our_tools.models:local" }`."""

    path: str = Field(alias="import", min_length=3, description="such as 'package.module:object'")


class ModelTable(BaseModel):
    """A model with settings, such as `{ name = "anthropic:claude-opus-5-5", effort = "high" }`.

    Every key but `name` is a keyword of `init_chat_model` for that vendor.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(min_length=1, description="such as 'anthropic:<model id>'")

    @property
    def settings(self) -> Mapping[str, Any]:
        """The keywords besides the name."""
        return self.model_extra or {}


class AnswerTable(_Table):
    """Format of an answer: a JSON Schema, in a file or in place."""

    json_schema: str | dict[str, JsonValue] = Field(
        alias="schema", description="a path of a JSON file, or a JSON Schema as a table"
    )


Text: TypeAlias = str | FileReference
Model: TypeAlias = str | ModelTable | Imported
Names: TypeAlias = tuple[Annotated[str, Field(min_length=1)], ...]

_SECONDS = "seconds, more than 0"
_WHOLE = "a whole number, at least 1"


class LimitsTable(_Table):
    """Limits of one run and all of its subagents; of a subagent, of one of its tasks."""

    model_calls: StrictInt | None = Field(default=None, ge=1, description=_WHOLE)
    tool_calls: StrictInt | None = Field(default=None, ge=1, description=_WHOLE)
    depth: StrictInt | None = Field(default=None, ge=0, description="a whole number, at least 0")
    parallel_tool_calls: StrictInt | None = Field(default=None, ge=1, description=_WHOLE)
    fan_out: StrictInt | None = Field(default=None, ge=1, description=_WHOLE)
    tokens: StrictInt | None = Field(default=None, ge=1, description=_WHOLE)
    cost: StrictFloat | None = Field(default=None, gt=0, description="US dollars, more than 0")
    seconds: StrictFloat | None = Field(default=None, gt=0, description=_SECONDS)

    @property
    def given(self) -> Mapping[str, Any]:
        """Those that are set."""
        return self.model_dump(exclude_none=True)


class MiddlewareTable(BaseModel):
    """One middleware of the stack: a new one, or a built-in one with other options.

    Its options are further keys of the table, or of `options` where a name is taken.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    use: str = Field(
        min_length=1,
        description="a name such as 'summarization', of an installed plugin, or 'module:Class'",
    )
    enabled: StrictBool = Field(default=True, description="false leaves a built-in one out")
    before: str | None = Field(default=None, description="name of the one it surrounds")
    after: str | None = Field(default=None, description="name of the one that surrounds it")
    options: dict[str, Any] = Field(default_factory=dict, description="a table of options")

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All options by name."""
        return {**self.options, **(self.model_extra or {})}


class _AgentKeys(_Table):
    """Keys that the main agent and subagents share."""

    description: str = Field(default="", description="what it is good for")
    capabilities: Names = Field(default=(), description="labels that hosts choose it by")
    model_role: Literal["big", "medium", "small"] | None = Field(
        default=None, description="'big', 'medium' or 'small', for hosts with models of their own"
    )
    vision: StrictBool = Field(default=False, description="whether that model must see images")
    model: Model | None = Field(
        default=None, description="a name such as 'anthropic:<model id>', or a table"
    )
    instructions: Text = Field(default="", description="text, or { file = PATH }")
    answer: AnswerTable | None = Field(default=None, description="{ schema = PATH or table }")
    limits: LimitsTable = Field(
        default_factory=LimitsTable,
        description="a table with " + ", ".join(LimitsTable.model_fields),
    )


class AgentTable(_AgentKeys):
    """The main agent: `[agent]`."""

    name: str = Field(default="main", pattern=r"^[\w.-]{1,100}$", description="letters and digits")
    tools: Names = Field(default=(), description="Python tools: 'module:function', or plugins")
    skills: Names = Field(default=(), description="directories of skills")
    agents: str | None = Field(default=None, description="a directory of subagent files")
    memory: Names = Field(default=(), description="files that every run reads")
    profiles: Names = Field(default=(), description="directories of model profiles")
    approve: Names = Field(default=(), description="globs over tool names")
    policy: Names = Field(default=(), description="policy files")
    beyond_allowed_tools: str | None = Field(default=None, description="'allow', 'ask' or 'deny'")
    model_patience: StrictFloat | None = Field(
        default=None, ge=0, description="seconds, at least 0"
    )
    background_subagents: StrictBool | None = Field(default=None, description="true or false")
    models: Names = Field(default=(), description="globs over models that callers may choose")
    state_schema: Imported | None = Field(default=None, description="{ import = 'module:Class' }")
    interrupt_before: Names = Field(default=(), description="nodes, such as 'tools'")
    interrupt_after: Names = Field(default=(), description="nodes, such as 'model'")


class SubAgentTable(_AgentKeys):
    """A subagent: `[agents.NAME]`."""

    description: str = Field(min_length=1, description="what the caller chooses it by")
    public: StrictBool | None = Field(
        default=None, description="whether callers may name it in `task`"
    )
    mode: Literal["fresh", "fork"] = Field(default="fresh", description="'fresh' or 'fork'")
    tools: Names | None = Field(
        default=None,
        description="names of its caller's tools or of mounted servers', 'module:function', or "
        "plugins",
    )
    skills: Names | None = Field(default=None, description="names of skills")
    mcp_servers: Names | None = Field(default=None, description="names of mounted servers")
    middleware: tuple[MiddlewareTable, ...] = Field(default=(), description="tables with `use`")
    approve: Names = Field(default=(), description="names of tools")
    permissions: tuple[dict[str, JsonValue], ...] = Field(
        default=(), description="rules as a policy file has them"
    )


class FilesTable(BaseModel):
    """One route of the file system: `[files]`, `"/memories" = { store = true }`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str | None = Field(default=None, description="an existing directory")
    store: StrictBool = Field(default=False, description="true keeps the files in the store")
    thread: StrictBool = Field(default=False, description="true keeps the files in the thread")
    backend: str | Imported | None = Field(
        default=None, description="{ import = 'module:object' }, or the name of a plugin"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keywords of the backend")
    read_only: StrictBool = Field(default=False, description="true or false")


class JournalTable(_Table):
    """Where threads are stored: `[journal]`."""

    url: str = Field(
        min_length=1, description="such as 'postgresql://…', or 'plugin:…'; SQLite by default"
    )


class VectorsTable(_Table):
    """Search by meaning in the store: `[store.vectors]`."""

    embed: str = Field(description="'module:function' that returns a vector for each text")
    dims: StrictInt = Field(ge=1, description=_WHOLE)
    fields: Names = Field(default=("$",), description="which fields are embedded; '$' for all")


class StoreTable(_Table):
    """Long-term memory beyond threads: `[store]`."""

    url: str = Field(
        min_length=1, description="'memory:', 'sqlite:///PATH', 'postgresql://…', 'redis://…'"
    )
    vectors: VectorsTable | None = Field(default=None, description="a table with embed, dims")


class CacheTable(_Table):
    """Cached answers of models and tools: `[cache]`."""

    url: str = Field(
        min_length=1, description="'memory:', 'sqlite:///PATH', 'postgresql://…', 'redis://…'"
    )


class AgentFile(_Table):
    """A whole agent file, except for `[server]`, the settings of the server."""

    agent: AgentTable = Field(default_factory=AgentTable, description="a table")
    middleware: tuple[MiddlewareTable, ...] = Field(default=(), description="tables with `use`")
    mcp_servers: str | dict[str, dict[str, Any]] = Field(
        default_factory=dict[str, dict[str, Any]],
        description="a table for each server, or the path of a file such as '.mcp.json'",
    )
    files: dict[str, FilesTable] = Field(
        default_factory=dict[str, FilesTable], description='a table such as "/" = { root = "." }'
    )
    journal: JournalTable | None = Field(default=None, description="a table with url")
    store: StoreTable | None = Field(default=None, description="a table with url")
    cache: CacheTable | None = Field(default=None, description="a table with url")
    agents: dict[Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")], SubAgentTable] = Field(
        default_factory=dict[str, SubAgentTable], description="a table for each subagent"
    )
    principals: dict[str, dict[Literal["agents"], Names]] = Field(
        default_factory=dict[str, dict[Literal["agents"], Names]],
        description='a table for each, such as "alice" = { agents = ["reviewer"] }',
    )
