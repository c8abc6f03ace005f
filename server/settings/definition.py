"""Agent definition: the agent of an agent file, as part of the server's settings."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...harness._internal.records import record
from ...harness.errors import AgentBuildError

if TYPE_CHECKING:
    from ...harness.agent_file.parts import AgentParts
    from ...harness.agent_file.reading import AgentFileText
    from ...harness.agent_file.schema import AgentFile
    from .settings import Settings

__all__ = ["ServedDefinition", "definition_of"]


@record
class ServedDefinition:
    """Agent of an agent file.

    Attributes:
        path: The path of the file.
        file: Its content without the settings, with the texts of files that it refers to.
        parts: The arguments from it for `create_deep_agent`.
        named: The files that it refers to.
        modules: Files of the Python modules that it refers to.
        text: The text of the file, for messages.
    """

    path: Path
    file: AgentFile
    parts: AgentParts
    named: tuple[Path, ...]
    modules: tuple[Path, ...] = ()
    text: AgentFileText | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `create_deep_agent`, except middleware and those from settings."""
        agent, parts = self.file.agent, self.parts
        return {
            "tools": parts.tools,
            "system_prompt": agent.instructions,
            "middleware_options": parts.middleware_options,
            "response_format": parts.response_format,
            "state_schema": parts.state_schema,
            "interrupt_before": parts.interrupt_before,
            "interrupt_after": parts.interrupt_after,
            "name": agent.name,
        }

    def keys_of_agent(self, besides: Collection[str]) -> list[str]:
        """Return the keys of the file that describe its agent and are no settings of the server.

        Args:
            besides: Tables, and keys of `[agent]`, to leave out.
        """
        tables = {name: getattr(self.file, name) for name in ("middleware", "agents", "cache")}
        tables |= {"mcp_servers": self.parts.mcp_servers, "files": self.parts.routes}
        keys = [f"agent.{key}" for key in sorted(self.file.agent.model_fields_set)]
        keys += [name for name, table in tables.items() if table]
        return [one for one in keys if one.removeprefix("agent.") not in besides]

    @contextmanager
    def locating(self) -> Generator[None]:
        """Add the place in the file to errors of building the agent inside the block."""
        try:
            yield
        except AgentBuildError as error:
            keys = self._keys_of(*(error.about or ("", "")))
            if self.text is None or not keys:
                raise AgentBuildError(f"{self.path}: {error}") from error
            raise AgentBuildError(str(self.text.error(keys, str(error)))) from error

    def _keys_of(self, kind: str, name: str) -> tuple[str | int, ...]:
        from ...harness.agent_file.middlewares import class_names  # imported when it was read

        file = self.file
        match kind:
            case "subagent" if name in file.agents:
                return ("agents", name)
            case "node":
                stops = ("interrupt_before", "interrupt_after")
                found = [one for one in stops if name in getattr(file.agent, one)]
                return ("agent", *found[:1])
            case "tool" if file.agent.tools:
                return ("agent", "tools")
            case "middleware":
                uses = [class_names().get(one.use, one.use) for one in file.middleware]
                return ("middleware", uses.index(name)) if name in uses else ()
            case _:
                return ()

    def __eq__(self, other: object) -> bool:
        """Whether both have the same content and the same files, mounted servers included."""
        if not isinstance(other, ServedDefinition):
            return NotImplemented
        ours = (self.path, self.file, self.named, self.parts.mcp_servers)
        return ours == (other.path, other.file, other.named, other.parts.mcp_servers)

    def __hash__(self) -> int:
        """Return a hash."""
        return hash((self.path, self.named))


def definition_of(settings: Settings) -> ServedDefinition | None:
    """Return the definition from the agent file; None without one."""
    return cast("ServedDefinition | None", settings.definition)
