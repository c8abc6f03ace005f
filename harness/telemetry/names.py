"""Names of attributes and metrics: those of OpenTelemetry's GenAI conventions, then our own.

The conventions are in development; https://github.com/open-telemetry/semantic-conventions-genai
is where they change.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOKEN_TYPE: Final = "gen_ai.token.type"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
TOOL: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
SYSTEM: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ERROR: Final = "error.type"

TOKEN_USAGE: Final = "gen_ai.client.token.usage"
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK_DURATION: Final = "gen_ai.client.operation.time_to_first_chunk"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"

RUN: Final = "deep_agent.run.id"
RUN_KIND: Final = "deep_agent.run.kind"
RUN_STATUS: Final = "deep_agent.run.status"
RUN_ATTEMPT: Final = "deep_agent.run.attempt"
NAMESPACE: Final = "deep_agent.namespace"
AGENT_PATH: Final = "deep_agent.agent.path"
CHECKPOINT: Final = "deep_agent.checkpoint.id"
CHECKPOINT_STEP: Final = "deep_agent.checkpoint.step"
CHECKPOINT_AUTHOR: Final = "deep_agent.checkpoint.author"
COMMIT_SYNCED: Final = "deep_agent.commit.synced"
INTERNAL: Final = "deep_agent.internal"
CACHED: Final = "deep_agent.cached"
TOOL_OUTCOME: Final = "deep_agent.tool.outcome"
CANCELLED: Final = "deep_agent.cancelled"
DECISION: Final = "deep_agent.approval.decision"
APPROVAL_SECONDS: Final = "deep_agent.approval.wait"

RUNS_STARTED: Final = "deep_agent.runs.started"
RUNS_ENDED: Final = "deep_agent.runs.ended"
RUNS_ACTIVE: Final = "deep_agent.runs.active"
TOOL_CALLS: Final = "deep_agent.tool.calls"
COMMIT_DURATION: Final = "deep_agent.commit.duration"
APPROVAL_DURATION: Final = "deep_agent.approval.duration"
