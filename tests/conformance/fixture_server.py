"""Our server with the suite's fixtures, over HTTP.

Arguments: an empty directory and, for replicas, the URL of their journal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
from mcp.server.lowlevel import Server
from mcp.types import (
    CallToolRequestParams,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SetLevelRequestParams,
    TextResourceContents,
    ToolExecution,
)
from mcp.types import Tool as ToolDefinition

import deep_agent_mcp.server.app
import deep_agent_mcp.server.face
from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.tools.tool import ToolRuntime, tool
from deep_agent_mcp.server.app import create_app
from deep_agent_mcp.server.face import Face
from deep_agent_mcp.server.mcp.prompts import Prompts
from deep_agent_mcp.server.mcp.requests import Context, require_tasks, takes_tasks
from deep_agent_mcp.server.mcp.resources import Resources
from deep_agent_mcp.server.settings.sources import load_settings
from deep_agent_mcp.server.tools import FaceTool, TaskStarted, ToolReply, define
from deep_agent_mcp.server.tools.driven import DRIVEN
from deep_agent_mcp.server.transports.signals import stop_on_signals
from deep_agent_mcp.server.transports.transports import bind, serve_http
from tests.conformance.fixture_tools import (
    binary,
    escalating,
    fixture_tools,
    form,
    image,
    resource,
    text,
)

# --- work that goes on as a task --------------------------------------------------------------


@tool(open_world=True)
def greet(name: str = "you") -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@tool(open_world=True)
async def slow_compute(seconds: float = 1, label: str = "") -> str:
    """Take some time."""
    await anyio.sleep(seconds)
    return f"computed {label}"


@tool(open_world=True)
async def failing_job() -> str:
    """Fail after a second."""
    await anyio.sleep(1)
    raise ValueError("the job failed")


@tool(open_world=True, strict=True)
async def protocol_error_job() -> str:
    """End the run after a second."""
    await anyio.sleep(1)
    raise ValueError("the job broke down")


@tool(open_world=True)
async def confirm_delete(runtime: ToolRuntime, filename: str = "a file") -> str:
    """Ask before it goes on."""
    schema: dict[str, Any] = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}
    answer = runtime.interrupt(f"Delete {filename}?", answer_schema=schema)
    return f"deleted: {answer}"


@tool(open_world=True)
async def ask_one(runtime: ToolRuntime, wanted: str) -> str:
    """Ask for one thing."""
    schema: dict[str, Any] = {"type": "object", "properties": {wanted: {"type": "string"}}}
    return str(runtime.interrupt(f"Your {wanted}?", answer_schema=schema))


JOBS = (greet, slow_compute, failing_job, protocol_error_job, confirm_delete, ask_one)


SCRIPT = {
    "name": "conformance",
    "runs": [
        {
            "match": "ask for two things",
            "agents": {
                "main": [
                    {
                        "tool_calls": [
                            {"name": "ask_one", "args": {"wanted": "name"}},
                            {"name": "ask_one", "args": {"wanted": "color"}},
                        ]
                    },
                    {"text": "Both are known."},
                ]
            },
        }
    ],
}
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


class FixtureFace(Face):
    """Our server's face with additional tools."""

    @property
    def tools(self) -> Mapping[str, FaceTool]:
        if self._made:
            return self._made
        found = dict(super().tools)
        found |= {one.definition.name: one for one in fixture_tools()}
        found["failing_job"] = _required(found["failing_job"])
        found["test_tool_with_task"] = self._escalating()
        found["multi_input"] = self._asking_twice()
        self._made = found
        return found

    def _escalating(self) -> FaceTool:
        async def drive(name: str) -> str:
            snapshot = await self._services.runs.drive("greet", {"name": name}, None, 10)
            return snapshot.run.id

        definition = define("test_tool_with_task", "Asks", "Ask first.", _NOTHING)
        return _required(FaceTool(definition, escalating(drive)))

    def _asking_twice(self) -> FaceTool:
        async def work(
            ctx: Context, params: CallToolRequestParams, args: dict[str, Any]
        ) -> ToolReply:
            return TaskStarted(await self._services.runs.start("ask for two things"))

        definition = define("multi_input", "Asks twice", "Ask for two things.", _NOTHING)
        return _required(FaceTool(definition, work))

    def _build(self) -> Server[Any]:
        made = super()._build()
        made.add_request_handler("logging/setLevel", SetLevelRequestParams, _set_level)
        return made


async def _set_level(ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


def _required(one: FaceTool) -> FaceTool:
    """Return a tool that requires clients with tasks; the server itself has no such tool."""
    shown: ToolDefinition = one.definition
    execution = ToolExecution(task_support="required")

    async def work(ctx: Context, params: CallToolRequestParams, args: dict[str, Any]) -> ToolReply:
        if not takes_tasks(ctx, params):
            require_tasks(ctx)
        return await one.handler(ctx, params, args)

    return FaceTool(shown.model_copy(update={"execution": execution}), work)


# --- resources and prompts --------------------------------------------------------------------

STATIC = ("test://static-text", "test://static-binary", "test://watched-resource")


class FixtureResources(Resources):
    """Our server's resources with additional ones."""

    async def list(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        found = await super().list(ctx, params)
        if params is None or params.cursor is None:
            found.resources += [Resource(uri=uri, name=uri) for uri in STATIC]
        return found

    async def templates(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        found = await super().templates(ctx, params)
        template = ResourceTemplate(uri_template="test://template/{id}/data", name="template")
        found.resource_templates.append(template)
        return found

    async def read(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = str(params.uri)
        filled = re.fullmatch(r"test://template/([^/]+)/data", uri)
        if filled is not None:
            data = f'{{"id":"{filled[1]}","templateTest":true,"data":"Data for ID: {filled[1]}"}}'
            contents = TextResourceContents(uri=uri, mime_type="application/json", text=data)
            return ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")
        if uri == "test://static-binary":
            return ReadResourceResult(contents=[binary(uri)], ttl_ms=0, cache_scope="private")
        if uri in STATIC:
            said = "This is the content of the static text resource."
            contents = TextResourceContents(uri=uri, mime_type="text/plain", text=said)
            return ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")
        return await super().read(ctx, params)


class FixturePrompts(Prompts):
    """Our server's prompts with additional ones."""

    async def list(self, ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        found = await super().list(ctx, params)
        arguments = {
            "test_simple_prompt": (),
            "test_prompt_with_arguments": ("arg1", "arg2"),
            "test_prompt_with_embedded_resource": ("resourceUri",),
            "test_prompt_with_image": (),
            "test_input_required_result_prompt": (),
        }
        for name, needed in arguments.items():
            given = [PromptArgument(name=one, required=True) for one in needed]
            found.prompts.append(Prompt(name=name, description="A fixture.", arguments=given))
        return found

    async def get(
        self, ctx: Context, params: GetPromptRequestParams
    ) -> GetPromptResult | InputRequiredResult:
        given = params.arguments or {}
        match params.name:
            case "test_simple_prompt":
                return _prompt(text("This is a simple prompt for testing."))
            case "test_prompt_with_arguments":
                said = f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'"
                return _prompt(text(said))
            case "test_prompt_with_embedded_resource":
                content = "Embedded resource content for testing."
                embedded = resource(given["resourceUri"], "text/plain", content)
                return _prompt(embedded, text("Please process the embedded resource above."))
            case "test_prompt_with_image":
                return _prompt(image(), text("Please analyze the image above."))
            case "test_input_required_result_prompt":
                if not params.input_responses:
                    asked = form("What context should the prompt use?", context="string")
                    return InputRequiredResult(input_requests={"user_context": asked})
                return _prompt(text(f"Use {params.input_responses['user_context']}."))
            case _:
                return await super().get(ctx, params)


def _prompt(*blocks: Any) -> GetPromptResult:
    return GetPromptResult(messages=[PromptMessage(role="user", content=block) for block in blocks])


# --- the server -------------------------------------------------------------------------------


def _with_jobs(*args: Any, **options: Any) -> Any:
    return create_deep_agent(*args, **{**options, "tools": JOBS})


def _skill_with_folder(place: Path) -> Path:
    """Create the skill that is listed first: the suite expects a folder in it."""
    folder = place / "skills" / "a-fixture"
    (folder / "references").mkdir(parents=True)
    (folder / "references" / "more.md").write_text("# More\n", encoding="utf-8")
    text = "---\nname: a-fixture\ndescription: Has a folder.\n---\n\nLook into the folder.\n"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder.parent


async def main(place: str, journal: str | None = None) -> None:
    """Print a free port and serve on it until a signal."""
    script = Path(place) / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    flags = {"transport": "http", "port": "0", "state_dir": f"{place}/state"}
    flags |= {"model": f"scripted:{script}"}
    if journal is not None:
        flags |= {"journal": journal, "replicas": "true", "drain_seconds": "0"}
    settings = load_settings({**flags, "skills": (str(_skill_with_folder(Path(place))),)}, {})
    listener = bind(settings.host, settings.port)
    driven = (*DRIVEN, *(one.name for one in JOBS))
    with (
        patch.object(deep_agent_mcp.server.app, "create_deep_agent", _with_jobs),
        patch.object(deep_agent_mcp.server.app, "Face", FixtureFace),
        patch.object(deep_agent_mcp.server.face, "DRIVEN", driven),
        patch.object(deep_agent_mcp.server.face, "drivable", lambda _: frozenset(driven)),
        patch.object(deep_agent_mcp.server.face, "Resources", FixtureResources),
        patch.object(deep_agent_mcp.server.face, "Prompts", FixturePrompts),
        stop_on_signals() as stop,
    ):
        async with create_app(settings) as app:
            await serve_http(
                app.server,
                settings,
                stop,
                listener=listener,
                health=app.health(),
                sessions_of=app.sessions_of,
            )


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:3])
