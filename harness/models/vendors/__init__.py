"""Table of vendors: their names, API keys, addresses and protocols.

Nothing here imports an SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from ..._internal.records import record

__all__ = ["ALIASES", "VENDORS", "Api", "Options", "Vendor", "vendor_of"]


Api: TypeAlias = Literal[
    "chat", "responses", "google", "google-cloud", "bedrock", "mistral", "groq"
]
"""A vendor's protocol; `chat` is OpenAI's Chat Completions, which most servers support."""


@record
class Vendor:
    """One vendor of models, or one kind of server.

    Attributes:
        name: The part of a model's name before the colon.
        api: Its protocol.
        title: Its name for people.
        extra: The extra of this distribution that installs its SDK.
        sdk: Module of the SDK; it can be imported if the extra is installed.
        keys: Environment variables with the API key; the first one that is set is used.
        key_required: Whether every call needs a key.
        base_url: Its address, if the SDK has no default.
        url_variable: Environment variable that overrides the address.
        library_provider: Module and class in `pydantic_ai.providers` that know its models; None
            for vendors without a class there.
        library_model: Module and class in `pydantic_ai.models`, for protocols with dialects.
        native_output: Prefixes of ids of models for which the API enforces output schemas.
        id_length: Maximum length of a tool call's id.
    """

    name: str
    api: Api
    title: str
    extra: str = "openai"
    sdk: str = "openai"
    keys: tuple[str, ...] = ()
    key_required: bool = True
    base_url: str | None = None
    url_variable: str | None = None
    library_provider: tuple[str, str] | None = None
    library_model: tuple[str, str] = ("openai", "OpenAIChatModel")
    native_output: tuple[str, ...] = ()
    id_length: int = 40


_OPENAI_NATIVE = ("gpt-4o", "gpt-4.1", "gpt-5", "gpt-6", "o1", "o3", "o4")

_ALL = (
    Vendor(
        "openai",
        "chat",
        "OpenAI, and any server with a Chat Completions API (base_url)",
        keys=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
        library_provider=("openai", "OpenAIProvider"),
        native_output=_OPENAI_NATIVE,
    ),
    Vendor(
        "openai-responses",
        "responses",
        "OpenAI's Responses API, which keeps the model's reasoning",
        keys=("OPENAI_API_KEY",),
        url_variable="OPENAI_BASE_URL",
        library_provider=("openai", "OpenAIProvider"),
        library_model=("openai", "OpenAIResponsesModel"),
        native_output=_OPENAI_NATIVE,
    ),
    Vendor(
        "google",
        "google",
        "Google Gemini",
        extra="google",
        sdk="google.genai",
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        url_variable="GOOGLE_GEMINI_BASE_URL",
        library_provider=("google", "GoogleProvider"),
        library_model=("google", "GoogleModel"),
        native_output=("gemini-3",),
    ),
    Vendor(
        "google-cloud",
        "google-cloud",
        "Gemini on Google Cloud (Vertex AI)",
        extra="google",
        sdk="google.genai",
        keys=("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_API_KEY"),
        key_required=False,
        library_provider=("google_cloud", "GoogleCloudProvider"),
        library_model=("google", "GoogleModel"),
        native_output=("gemini-3",),
    ),
    Vendor(
        "bedrock",
        "bedrock",
        "Amazon Bedrock (Converse)",
        extra="bedrock",
        sdk="boto3",
        keys=("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
        key_required=False,
        url_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        library_provider=("bedrock", "BedrockProvider"),
        library_model=("bedrock", "BedrockConverseModel"),
    ),
    Vendor(
        "mistral",
        "mistral",
        "Mistral",
        extra="mistral",
        sdk="mistralai",
        keys=("MISTRAL_API_KEY",),
        library_provider=("mistral", "MistralProvider"),
        library_model=("mistral", "MistralModel"),
        id_length=9,
    ),
    Vendor(
        "groq",
        "groq",
        "Groq",
        extra="groq",
        sdk="groq",
        keys=("GROQ_API_KEY",),
        url_variable="GROQ_BASE_URL",
        library_provider=("groq", "GroqProvider"),
        library_model=("groq", "GroqModel"),
    ),
    Vendor(
        "xai",
        "chat",
        "xAI",
        keys=("XAI_API_KEY",),
        base_url="https://api.x.ai/v1",
    ),
    Vendor(
        "deepseek",
        "chat",
        "DeepSeek",
        keys=("DEEPSEEK_API_KEY",),
        base_url="https://api.deepseek.com",
        library_provider=("deepseek", "DeepSeekProvider"),
    ),
    Vendor(
        "openrouter",
        "chat",
        "OpenRouter: models of most vendors behind one key",
        keys=("OPENROUTER_API_KEY",),
        base_url="https://openrouter.ai/api/v1",
        library_provider=("openrouter", "OpenRouterProvider"),
        library_model=("openrouter", "OpenRouterModel"),
    ),
    Vendor(
        "azure",
        "chat",
        "Azure OpenAI: base_url is https://<resource>.openai.azure.com/openai/v1/",
        keys=("AZURE_OPENAI_API_KEY",),
        url_variable="AZURE_OPENAI_BASE_URL",
    ),
    Vendor(
        "together",
        "chat",
        "Together AI",
        keys=("TOGETHER_API_KEY",),
        base_url="https://api.together.xyz/v1",
        library_provider=("together", "TogetherProvider"),
    ),
    Vendor(
        "fireworks",
        "chat",
        "Fireworks AI",
        keys=("FIREWORKS_API_KEY",),
        base_url="https://api.fireworks.ai/inference/v1",
        library_provider=("fireworks", "FireworksProvider"),
    ),
    Vendor(
        "cerebras",
        "chat",
        "Cerebras",
        keys=("CEREBRAS_API_KEY",),
        base_url="https://api.cerebras.ai/v1",
        library_provider=("cerebras", "CerebrasProvider"),
        library_model=("cerebras", "CerebrasModel"),
    ),
    Vendor(
        "moonshotai",
        "chat",
        "Moonshot AI (Kimi)",
        keys=("MOONSHOTAI_API_KEY", "MOONSHOT_API_KEY"),
        base_url="https://api.moonshot.ai/v1",
        library_provider=("moonshotai", "MoonshotAIProvider"),
        id_length=64,
    ),
    Vendor(
        "zai",
        "chat",
        "Z.ai (GLM)",
        keys=("ZAI_API_KEY",),
        base_url="https://api.z.ai/api/paas/v4",
        library_provider=("zai", "ZaiProvider"),
        library_model=("zai", "ZaiModel"),
    ),
    Vendor(
        "cohere",
        "chat",
        "Cohere, by its OpenAI-compatible API",
        keys=("CO_API_KEY", "COHERE_API_KEY"),
        base_url="https://api.cohere.ai/compatibility/v1",
    ),
    Vendor(
        "huggingface",
        "chat",
        "Hugging Face, by its OpenAI-compatible router",
        keys=("HF_TOKEN",),
        base_url="https://router.huggingface.co/v1",
    ),
    Vendor(
        "ollama",
        "chat",
        "Ollama",
        keys=("OLLAMA_API_KEY",),
        key_required=False,
        base_url="http://localhost:11434/v1",
        url_variable="OLLAMA_BASE_URL",
        library_provider=("ollama", "OllamaProvider"),
        library_model=("ollama", "OllamaModel"),
    ),
    Vendor(
        "vllm",
        "chat",
        "vLLM",
        keys=("VLLM_API_KEY",),
        key_required=False,
        base_url="http://localhost:8000/v1",
        url_variable="VLLM_BASE_URL",
    ),
    Vendor(
        "lmstudio",
        "chat",
        "LM Studio",
        keys=("LMSTUDIO_API_KEY",),
        key_required=False,
        base_url="http://localhost:1234/v1",
        url_variable="LMSTUDIO_BASE_URL",
    ),
)

VENDORS: Mapping[str, Vendor] = MappingProxyType({vendor.name: vendor for vendor in _ALL})
"""Every vendor by its name."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "openai-chat": "openai",
        "gemini": "google",
        "google-genai": "google",
        "google-gla": "google",
        "vertex": "google-cloud",
        "vertexai": "google-cloud",
        "google-vertex": "google-cloud",
        "google-vertexai": "google-cloud",
        "aws": "bedrock",
        "aws-bedrock": "bedrock",
        "bedrock-converse": "bedrock",
        "mistralai": "mistral",
        "grok": "xai",
        "x-ai": "xai",
        "azure-openai": "azure",
        "moonshot": "moonshotai",
        "kimi": "moonshotai",
        "hugging-face": "huggingface",
        "lm-studio": "lmstudio",
    }
)
"""Alternative vendor names, with the name they stand for; `_` counts as `-`."""


def vendor_of(provider: str) -> Vendor | None:
    """Return the vendor with this name or alias, in any case, or None."""
    name = provider.strip().lower().replace("_", "-")
    return VENDORS.get(ALIASES.get(name, name))


@record
class Options:
    """Credentials and address of a connection.

    Attributes:
        api_key: None if the vendor needs none, or if its SDK finds credentials itself.
        base_url: Address; None for the SDK's default.
        elsewhere: Whether the user set the address, so that it may be any server with this
            protocol.
        region: Region, for vendors with regions.
        timeout: Seconds without data from the server until a call fails.
    """

    api_key: str | None
    base_url: str | None
    elsewhere: bool
    region: str | None
    timeout: float
