"""The server's settings, in one typed object.

`server.settings.sources` reads them from flags, the environment and a file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from .combinations import (
    require_complete_auth,
    require_fitting_engine,
    require_fitting_roots,
    require_shareable,
)
from .hosts import is_loopback
from .setting_groups import AgendaSettings, CommandSettings, LimitSettings, require_complete_agenda
from .setting_types import (
    Action,
    AnyPath,
    Auth,
    BindHost,
    Budgets,
    Directories,
    Engine,
    Execute,
    ExistingDirectory,
    ExistingFile,
    HostName,
    JournalUrl,
    Keys,
    LogLevel,
    Lowered,
    ModelGlob,
    ModelName,
    Network,
    Place,
    PolicyFile,
    PrincipalAgents,
    Priorities,
    Protect,
    StateDirectory,
    StoreUrl,
    Telemetry,
    Transport,
    Url,
    is_template,
    of_principal,
    parent_of_all,
)
from .toolsets import TOOLSETS, Toolset, comma_list, known_tool, require_a_tool

__all__ = ["APP_NAME", "CommandSettings", "LimitSettings", "Settings", "SettingsError"]

APP_NAME = "deep-agent-mcp"


class SettingsError(Exception):
    """A setting is invalid; the message names the setting, its source and the accepted values."""


class Settings(AgendaSettings):
    """All settings of a server. The field descriptions list the accepted values.

    The settings of schedules and webhooks are in `AgendaSettings`.

    Attributes:
        transport: How clients connect; `http` and `sse` are the same app.
        host: Address to bind (`http`, `sse`).
        port: Port to bind; 0 lets the system choose.
        root: Directory of the file tools; None stores files in the thread. A path with
            `{principal}` gives each principal its own root. `skills`, `agents` and `memory` may
            then contain `{principal}` as well.
        skills: Directories of skills, added to the bundled ones; later ones take precedence.
        agents: Directory of subagent files.
        memory: Files (`AGENTS.md`) that every run reads; they may be missing.
        profiles: Directories of model profiles, added to the built-in ones; later ones take
            precedence.
        model: Name of a model, or `sampling` for the client's model. None means the default model
            or, if there is no API key for it, the client's model.
        task_models: Globs of the models that callers of `task` may choose; none by default.
        model_patience: Seconds during which a model call is retried after temporary failures.
        state_dir: Directory of the journal and the locks.
        log_level: Minimum level of messages logged to stderr.
        allow_hosts: Host names clients may use, in addition to the loopback ones.
        auth: Credentials of HTTP clients: `token` from `deep-agent-mcp token`, `oauth` from an
            authorization server, or either of them; `none` turns authentication off.
        public_url: This server's URL for clients, and the audience of OAuth tokens.
        oauth_issuer: The authorization server.
        oauth_jwks_url: URL of its keys. Default: the URL in its metadata.
        tls_cert: Certificate chain in PEM, if this server itself uses HTTPS.
        tls_key: Private key of the certificate.
        trusted_proxies: Addresses of proxies whose forwarded headers are trusted.
        max_body_bytes: Maximum size of one request.
        max_requests_per_minute: Maximum requests of one caller per minute.
        max_sessions: Maximum open connections of one caller, for clients that use sessions.
        journal_patience: Seconds that runs wait for an unreachable journal.
        max_runs: Maximum active runs of one caller. With the local engine, each replica counts its
            own runs.
        max_runs_per_minute: Maximum runs that one caller may start per minute; None for no limit.
        workers: Maximum active runs on this server; None for the engine's default.
        queue_size: Maximum queued runs of one caller.
        priorities: Priorities by principal; their runs start before, or after, those of others.
        engine: The engine, which decides when a run starts, and on which server.
        drain_seconds: Seconds that runs have to finish their step when an HTTP server is stopped;
            then they are interrupted.
        principal_agents: Allowed agents by principal; others may use all agents. `main` is the main
            agent.
        wait_budget: Seconds that `task` and `wait` block before they answer `running`.
        thread_per: Scope of the default thread for calls that name no thread.
        wait_budgets: `wait_budget` by prefix of a client's name. They take precedence over
            `wait_budget` and over built-in values.
        toolsets: Sets of tools offered to clients; empty for all.
        exclude_tools: Tools that are not offered to clients.
        read_only: Whether only tools that change nothing are offered.
        experimental: Drafts of the protocol that are turned on; they may change or be removed.
        approve: Globs of tool names; their calls need a person's approval.
        beyond_allowed_tools: What happens if a skill in use has `allowed-tools`, and an agent calls
            another tool.
        policy: Files with policy rules for every tool call, in order of precedence.
        protect: What happens if an agent or a client's model writes to a file from which programs
            load settings or code when they start: a person is asked, the write is refused, or it is
            allowed.
        protect_paths: Globs of more protected files, relative to the root; `!` in front excludes
            files.
        execute: Environment for commands of agents and clients; `host` gives them all rights of
            this process.
        allow_network: Whether commands in a sandbox may access the network.
        commands: Limits for commands.
        agent_file: The file that describes the agent; see `docs/agent-file.md`.
        trust_root: Whether a `deep-agent.toml` in the root is used if no agent file is set.
        definition: The agent from the agent file: a `ServedDefinition`.
        config_file: The configuration file, if settings were read from one.
        journal_key_file: File that contains `journal_key`, if one is used.
        journal_key: Keys that encrypt the journal, in the format of
            `harness.checkpoint.keyring.Keyring.parse`. The first one encrypts new data. None stores
            plain text. Read from `journal_key_file`, or from the environment.
        limits: Limits of one run tree.
        background_subagents: Whether delegated runs may start subagents in the background.
        journal: URL of the journal; None stores it in a file of the state directory.
        journal_url_file: File that contains `journal`, if one is used.
        replicas: Whether several servers may share the journal, which is then in Postgres.
        shared_root: Whether all replicas see the same files in the root.
        store: URL of the agents' long-term store; None for no store.
        store_url_file: File that contains `store`, if one is used.
        telemetry: Destination of OpenTelemetry spans and metrics; `otlp` is a collector, over HTTP.
        telemetry_content: Whether spans contain the input and output of models and tools.
    """

    transport: Annotated[Transport, Lowered] = Field(
        default="stdio", description="'stdio', 'http' or 'sse'"
    )
    host: BindHost = Field(default="127.0.0.1", description="a host name or address to bind")
    port: int = Field(
        default=8000, ge=0, le=65_535, description="a whole number from 0 (any free port) to 65535"
    )
    root: Directories | None = Field(
        default=None, description="an existing directory, or a path with {principal}"
    )
    skills: tuple[Directories, ...] = Field(default=(), description="existing directories")
    agents: Directories | None = Field(default=None, description="an existing directory")
    memory: tuple[AnyPath, ...] = Field(default=(), description="paths of files")
    profiles: tuple[ExistingDirectory, ...] = Field(default=(), description="existing directories")
    model: ModelName | None = Field(
        default=None,
        description="'anthropic:<model id>', another vendor's such as 'openai:<model id>', "
        "'scripted:<path>' or 'sampling'",
    )
    task_models: tuple[ModelGlob, ...] = Field(
        default=(), description="globs of model names, such as 'anthropic:*' or 'openai:gpt-5*'"
    )
    model_patience: float = Field(
        default=600, ge=0, le=86_400, description="seconds from 0 to 86400"
    )
    state_dir: StateDirectory = Field(
        default_factory=lambda: Path(platformdirs.user_state_dir(APP_NAME, appauthor=False)),
        description="a directory, made if missing",
    )
    log_level: Annotated[LogLevel, Lowered] = Field(
        default="warning", description="'debug', 'info', 'warning' or 'error'"
    )
    allow_hosts: tuple[HostName, ...] = Field(
        default=(), description="host names without scheme, port or path"
    )
    auth: tuple[Annotated[Auth, Lowered], ...] = Field(
        default=(), description="'token', 'oauth' or both; or 'none'"
    )
    public_url: Url | None = Field(
        default=None, description="a URL such as https://agent.example.com/mcp"
    )
    oauth_issuer: Url | None = Field(default=None, description="the URL of an authorization server")
    oauth_jwks_url: Url | None = Field(default=None, description="the URL of a JSON Web Key Set")
    tls_cert: ExistingFile | None = Field(default=None, description="a PEM file")
    tls_key: ExistingFile | None = Field(default=None, description="a PEM file")
    trusted_proxies: tuple[Network, ...] = Field(
        default=(), description="addresses or networks, such as 10.0.0.0/8"
    )
    max_body_bytes: int = Field(
        default=4 << 20, ge=1_024, description="a whole number, at least 1024"
    )
    max_requests_per_minute: int = Field(
        default=1_200, ge=1, description="a whole number, at least 1"
    )
    max_sessions: int = Field(default=100, ge=1, description="a whole number, at least 1")
    journal_patience: float = Field(default=300.0, ge=0, description="seconds, at least 0")
    max_runs: int = Field(default=32, ge=1, description="a whole number, at least 1")
    max_runs_per_minute: int | None = Field(
        default=None, ge=1, description="a whole number, at least 1"
    )
    workers: int | None = Field(default=None, ge=0, description="a whole number, at least 0")
    queue_size: int = Field(default=1_000, ge=0, description="a whole number, at least 0")
    priorities: Priorities = Field(
        default_factory=dict[str, int],
        description="a table of principals and whole numbers from 1 (first) to 9, such as "
        "'alice' = 1",
    )
    engine: Engine = Field(default="local", description="'local' or 'dbos'")
    drain_seconds: float = Field(default=30, ge=0, le=3_600, description="seconds from 0 to 3600")
    principal_agents: PrincipalAgents = Field(
        default_factory=dict[str, tuple[str, ...]],
        description="a table of principals and lists of agents, such as 'alice' = ['main']",
    )
    wait_budget: float = Field(default=45.0, ge=0, le=3_600, description="seconds from 0 to 3600")
    thread_per: Annotated[Literal["conversation", "call"], Lowered] = Field(
        default="conversation", description="'conversation' or 'call'"
    )
    wait_budgets: Budgets = Field(
        default_factory=dict[str, float],
        description="a table of clients and seconds from 0 to 3600, such as 'claude-code' = 110",
    )
    toolsets: Annotated[tuple[Toolset, ...], BeforeValidator(comma_list)] = Field(
        default=(), description="some of " + ", ".join(TOOLSETS)
    )
    exclude_tools: Annotated[
        tuple[Annotated[str, AfterValidator(known_tool)], ...], BeforeValidator(comma_list)
    ] = Field(default=(), description="names of tools, such as 'rewind'")
    read_only: bool = Field(default=False, description="true or false")
    experimental: Annotated[tuple[Literal["agents"], ...], BeforeValidator(comma_list)] = Field(
        default=(), description="drafts of the protocol: agents"
    )
    approve: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="globs over tool names, such as 'write_*'"
    )
    beyond_allowed_tools: Annotated[Action, Lowered] = Field(
        default="allow", description="'allow', 'ask' or 'deny'"
    )
    policy: tuple[PolicyFile, ...] = Field(
        default=(), description="policy files that `deep-agent-mcp policy check` accepts"
    )
    protect: Annotated[Protect, Lowered] = Field(
        default="ask", description="'ask', 'deny' or 'off'"
    )
    protect_paths: tuple[Place, ...] = Field(
        default=(),
        description="globs of paths from the root, such as 'deploy/**', or '!.idea/**' for none",
    )
    execute: Annotated[Execute, Lowered] = Field(
        default="off", description="'off', 'bubblewrap', 'docker' or 'host'"
    )
    allow_network: bool = Field(default=False, description="true or false")
    background_subagents: bool = Field(default=False, description="true or false")
    telemetry: Telemetry = Field(default="off", description="'off', 'otlp' or 'console'")
    telemetry_content: bool = Field(default=False, description="true or false")
    journal_key: Keys | None = Field(
        default=None,
        description="keys that `deep-agent-mcp threads new-key` prints, the newest first, with "
        "commas or line feeds between them",
    )
    agent_file: AnyPath | None = Field(default=None, description="a TOML file")
    trust_root: bool = Field(default=False, description="true or false")
    definition: object | None = Field(default=None, description="made from the agent file")
    config_file: AnyPath | None = Field(default=None, description="a TOML file")
    journal_key_file: AnyPath | None = Field(
        default=None, description="a file that only its owner can read"
    )
    journal: JournalUrl | None = Field(
        default=None,
        description="postgresql://user@host/database, redis://host:6379/0, sqlite:///file or "
        "memory:",
    )
    journal_url_file: AnyPath | None = Field(
        default=None, description="a file that only its owner can read"
    )
    replicas: bool = Field(default=False, description="true or false")
    shared_root: bool = Field(default=False, description="true or false")
    store: StoreUrl | None = Field(
        default=None,
        description="postgresql://user@host/database, redis://host:6379/0, sqlite:///file or "
        "memory:",
    )
    store_url_file: AnyPath | None = Field(
        default=None, description="a file that only its owner can read"
    )
    commands: CommandSettings = Field(
        default_factory=CommandSettings,
        description="a table with " + ", ".join(CommandSettings.model_fields),
    )
    limits: LimitSettings = Field(
        default_factory=LimitSettings,
        description="a table with " + ", ".join(LimitSettings.model_fields),
    )

    @model_validator(mode="after")
    def _bound_for_this_machine(self) -> Settings:
        if self.transport == "stdio" or is_loopback(self.host):
            return self
        if not self.auth:
            raise ValueError(
                f"binding {self.host} lets other machines reach this server, where anyone could "
                "run tools and read every thread. Bind 127.0.0.1, or ask for "
                "tokens with --auth token (`deep-agent-mcp token create` makes them) or --auth "
                "oauth. Use --auth none only if something else keeps strangers out."
            )
        if not self.allow_hosts:
            raise ValueError(
                f"binding {self.host} needs the host names that clients will use, with "
                "--allow-host NAME (repeatable): requests for other hosts are refused, so that no "
                "web page can reach this server."
            )
        return self

    @model_validator(mode="after")
    def _bounds_of_commands_fit(self) -> Settings:
        usual, most = self.commands.seconds, self.commands.max_seconds
        if usual > most:
            raise ValueError(
                f"commands.seconds is {usual:g}, which is more than commands.max_seconds, "
                f"{most:g}, the most that a call may ask for."
            )
        return self

    @model_validator(mode="after")
    def _settings_go_together(self) -> Settings:
        require_complete_auth(self)
        require_fitting_roots(self)
        require_shareable(self)
        require_complete_agenda(self)
        require_fitting_engine(self)
        require_a_tool(self)
        return self

    @property
    def untrusted(self) -> tuple[Path, ...]:
        """Directories that agents can write to, by all names; links in them are not trusted."""
        if self.root is None:
            return ()
        root = parent_of_all(self.root) if is_template(self.root) else self.root
        return tuple(dict.fromkeys((root, Path(os.path.realpath(root)))))

    @property
    def needs_token(self) -> bool:
        """Whether HTTP clients must authenticate."""
        return bool({"token", "oauth"} & {*self.auth})

    @property
    def serves_several(self) -> bool:
        """Whether several users share the server, each with their own token."""
        return self.needs_token and self.transport != "stdio"

    @property
    def per_principal(self) -> bool:
        """Whether each principal has its own root."""
        return self.root is not None and is_template(self.root)

    def of(self, principal: str) -> Settings:
        """Return the settings of one principal, with its own paths if principals have them."""
        if self.root is None or not self.per_principal:
            return self
        paths = {
            "root": of_principal(self.root, principal),
            "skills": tuple(of_principal(one, principal) for one in self.skills),
            "agents": self.agents and of_principal(self.agents, principal),
            "memory": tuple(of_principal(one, principal) for one in self.memory),
        }
        return self.model_copy(update=paths)

    def without_principal(self) -> Settings:
        """Return the settings without paths that depend on the principal; commands are off."""
        if not self.per_principal:
            return self
        paths = {
            "root": None,
            "execute": "off",
            "skills": tuple(one for one in self.skills if not is_template(one)),
            "agents": None if self.agents and is_template(self.agents) else self.agents,
            "memory": tuple(one for one in self.memory if not is_template(one)),
        }
        return self.model_copy(update=paths)
