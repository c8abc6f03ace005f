"""Settings: everything an operator can choose, in one typed object.

`server.settings.sources` reads it from flags, the environment and a file.
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
    """A setting is wrong; the text names it, its source and what is accepted."""


class Settings(AgendaSettings):
    """Everything an operator can choose. The field descriptions say what is accepted.

    Those of schedules and webhooks are in `AgendaSettings`.

    Attributes:
        transport: How clients connect; `http` and `sse` are the same app.
        host: Address to bind (`http`, `sse`).
        port: Port to bind; 0 lets the system choose.
        root: Directory the file tools work in; None keeps files inside the thread. With
            `{principal}` in it each principal has one, and the next three may have it as well.
        skills: Directories of skills, added to the bundled ones; a later one wins.
        agents: Directory of subagent files.
        memory: Files (`AGENTS.md`) that every run reads; they need not exist yet.
        profiles: Directories of model profiles, added to the built-in ones; a later one wins.
        model: Name for the model registry, or `sampling` for that of the client; None means the
            registry's default or, while there is no key for it, that of the client.
        task_models: Globs of the models that callers of `task` may choose; none by default.
        model_patience: Seconds for which a model call that fails for what may pass is repeated.
        state_dir: Where the journal and the locks live.
        log_level: Least severe level that is logged to stderr.
        allow_hosts: Host names clients may use besides the loopback ones.
        auth: What HTTP clients show: `token` of `deep-agent-mcp token`, `oauth` of an
            authorization server, or one of both; `none` says that there shall be nothing.
        public_url: Where clients reach this server; what OAuth tokens must be issued for.
        oauth_issuer: The authorization server.
        oauth_jwks_url: Where its keys are; by default what its metadata say.
        tls_cert: Certificate chain in PEM, if this server itself shall speak HTTPS.
        tls_key: Its private key.
        trusted_proxies: Addresses whose forwarded headers are believed.
        max_body_bytes: Bytes of one request.
        max_requests_per_minute: Requests of one caller.
        max_sessions: Connections of one caller that stay open, of the handshake era.
        journal_patience: Seconds for which runs wait for a journal that cannot be reached.
        max_runs: Runs of one caller that work at the same time. With the local engine, each
            replica counts its own.
        max_runs_per_minute: Runs of one caller that may begin within a minute; None for any number.
        workers: Runs that this server works on at the same time; None for what the engine takes.
        queue_size: Runs of one caller that may wait in line.
        priorities: Of principals whose runs go before, or after, those of others.
        engine: What says when a run begins, and on which server.
        drain_seconds: Seconds that runs may take to finish their step when an HTTP server is
            stopped; then they are cut short.
        principal_agents: Agents that some principals are bound to, by principal; `main` is the
            main agent.
        wait_budget: Seconds `task` and `wait` block before they answer `running`.
        thread_per: What has a thread of its own if its calls name none.
        wait_budgets: The same for clients whose names begin so, before what is known of them.
        toolsets: Sets of tools that clients are offered; empty for all.
        exclude_tools: Tools that they are not offered.
        read_only: Whether they are offered only tools that change nothing.
        experimental: Drafts of the protocol that clients are offered; they may change or vanish.
        approve: Globs over tool names whose calls need a person's approval.
        beyond_allowed_tools: What follows when a skill in use states `allowed-tools` and an agent
            calls another tool.
        policy: Files of rules in front of every tool call, the first one's first.
        protect: What follows when an agent or a client's model writes where programs take settings
            or code from when they start: a person is asked, it is refused, or nothing.
        protect_paths: Globs of more such places, from the root; with `!` in front, of what is none.
        execute: In what commands run that agents and clients start; `host` gives them all rights
            of this process.
        allow_network: Whether commands in a sandbox may reach the network.
        commands: Bounds of commands.
        agent_file: The file that describes the agent; see `docs/agent-file.md`.
        trust_root: Whether a `deep-agent.toml` in the root is that file while none is named.
        definition: What the agent file says about the agent: a `ServedDefinition`.
        config_file: The file some of these were read from, if there was one.
        journal_key_file: Where `journal_key` was read from, if it was a file.
        journal_key: Keys that seal the journal, the first of them what is written, as
            `harness.checkpoint.keyring.Keyring.parse` reads them; None leaves it readable. Read
            from the file that `journal_key_file` names, or from the environment.
        limits: Bounds of one run tree.
        background_subagents: Whether delegated runs may start subagents in the background.
        journal: URL of the journal; None keeps it in a file of the state directory.
        journal_url_file: Where `journal` was read from, if it was a file.
        replicas: Whether several servers may use the journal, which is in Postgres then.
        shared_root: Whether all of them see the same files in the root.
        store: URL of the agents' long-term store; None gives them none.
        store_url_file: Where `store` was read from, if it was a file.
        telemetry: Where OpenTelemetry spans and metrics go; `otlp` is a collector, over HTTP.
        telemetry_content: Whether spans hold what models and tools are given and say.
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
        """Directories that agents can write, so links in them are not an operator's; all names."""
        if self.root is None:
            return ()
        root = parent_of_all(self.root) if is_template(self.root) else self.root
        return tuple(dict.fromkeys((root, Path(os.path.realpath(root)))))

    @property
    def needs_token(self) -> bool:
        """Whether HTTP clients must show who they are."""
        return bool({"token", "oauth"} & {*self.auth})

    @property
    def serves_several(self) -> bool:
        """Whether several users, each with their own token, share the server."""
        return self.needs_token and self.transport != "stdio"

    @property
    def per_principal(self) -> bool:
        """Whether each principal has a root of its own."""
        return self.root is not None and is_template(self.root)

    def of(self, principal: str) -> Settings:
        """Return the settings of one principal: with its own paths where each has one."""
        if self.root is None or not self.per_principal:
            return self
        paths = {
            "root": of_principal(self.root, principal),
            "skills": tuple(of_principal(one, principal) for one in self.skills),
            "agents": self.agents and of_principal(self.agents, principal),
            "memory": tuple(of_principal(one, principal) for one in self.memory),
        }
        return self.model_copy(update=paths)

    def of_nobody(self) -> Settings:
        """Return the settings without what only a principal has: its root and what is in it."""
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
