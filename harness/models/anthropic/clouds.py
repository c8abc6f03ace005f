"""Claude on Amazon Bedrock and Google Cloud's Vertex AI, through the SDK's own clients for them.

Requests and answers are those of the Messages API; only the address and the signing of requests
differ. Credentials are found the same way as by each cloud's own tools.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue

from . import AnthropicModel, bound_retry_wait
from .request import auth_error

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["BedrockClaude", "VertexClaude"]

_PLACE = re.compile(r"^(?:[a-z]+\.)?anthropic\.")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_Credentials = tuple[str | None, str | None, str | None]


class _CloudClaude(AnthropicModel):
    """Claude on a cloud; the cloud's own library signs requests."""

    def unset_variables(self) -> tuple[str, ...]:
        """Return an empty tuple: each cloud's library finds credentials itself."""
        return ()

    def _login_errors(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that mean credentials cannot sign a request."""
        return ()

    async def _events(
        self, sdk: AsyncAnthropic, body: Mapping[str, Any], betas: object
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        try:
            async with aclosing(super()._events(sdk, body, betas)) as events:
                async for event in events:
                    yield event
        except self._login_errors() as error:
            raise auth_error(f"The credentials cannot be used: {error}.") from error


class BedrockClaude(_CloudClaude):
    """Claude on Amazon Bedrock.

    Args:
        model: The model's id there, such as `anthropic.claude-sonnet-5-5`.
        region: A region, such as `us-east-1`. Default: `AWS_REGION`, else `AWS_DEFAULT_REGION`.
        aws_region: Another name of `region`.
        aws_profile: A profile of the AWS configuration. Default: the profile that boto3 finds.
        base_url: Address of a proxy. Default: `ANTHROPIC_BEDROCK_MANTLE_BASE_URL`, else the
            region's address.
        settings: Settings of `AnthropicModel`. `api_key` is a Bedrock API key; default:
            `AWS_BEARER_TOKEN_BEDROCK`.
    """

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        aws_region: str | None = None,
        aws_profile: str | None = None,
        base_url: str | None = None,
        **settings: JsonValue,
    ) -> None:
        region = region or aws_region
        known = cast("dict[str, Any]", settings)
        super().__init__(model, base_url=base_url, region=region, **known)
        self._profile = aws_profile

    @property
    def name(self) -> str:
        """`anthropic-bedrock:<model id>`."""
        return f"anthropic-bedrock:{self.model}"

    @property
    def family(self) -> str:
        """The model's id in Anthropic's own API."""
        return _PLACE.sub("", self.model)

    def _credentials(self) -> _Credentials:
        environment = os.environ.get
        region = self._region or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION")
        base_url = self._base_url or environment("ANTHROPIC_BEDROCK_MANTLE_BASE_URL")
        return self._api_key or environment("AWS_BEARER_TOKEN_BEDROCK"), region, base_url

    def _make_client(self, credentials: _Credentials) -> AsyncAnthropic:
        import anthropic
        from anthropic.lib.bedrock import AsyncAnthropicBedrockMantle

        key, region, base_url = credentials
        try:
            import boto3  # pyright: ignore[reportMissingTypeStubs]

            if key is None and boto3.Session(profile_name=self._profile).get_credentials() is None:
                raise auth_error(_NO_AWS)
            sdk = AsyncAnthropicBedrockMantle(
                api_key=key,
                aws_region=region,
                aws_profile=None if key else self._profile,
                base_url=base_url,
                timeout=self._timeout,
                max_retries=self._max_retries,
                middleware=[bound_retry_wait],
            )
        except ImportError as error:
            raise _missing("bedrock", error) from error
        except (anthropic.AnthropicError, ValueError, *_aws_errors()) as error:
            raise auth_error(f"Amazon Bedrock cannot be asked: {error}.") from error
        return cast("AsyncAnthropic", sdk)

    def _login_errors(self) -> tuple[type[Exception], ...]:
        return _aws_errors()


class VertexClaude(_CloudClaude):
    """Claude on Google Cloud's Vertex AI.

    Args:
        model: The model's id there, such as `claude-sonnet-5-5`.
        project: Default: `ANTHROPIC_VERTEX_PROJECT_ID`, else `GOOGLE_CLOUD_PROJECT`, else the
            credentials' project.
        region: A region, such as `us-east5` or `global`. Default: `CLOUD_ML_REGION`, else `global`.
        base_url: Address of a proxy. Default: `ANTHROPIC_VERTEX_BASE_URL`, else the region's
            address.
        settings: Settings of `AnthropicModel`. `api_key` is an access token; default: a token from
            Google's application default credentials.
    """

    def __init__(
        self,
        model: str,
        *,
        project: str | None = None,
        region: str | None = None,
        base_url: str | None = None,
        **settings: JsonValue,
    ) -> None:
        known = cast("dict[str, Any]", settings)
        super().__init__(model, base_url=base_url, region=region, **known)
        self._project = project

    @property
    def name(self) -> str:
        """`anthropic-vertex:<model id>`."""
        return f"anthropic-vertex:{self.model}"

    def _credentials(self) -> _Credentials:
        environment = os.environ.get
        project = self._project or environment("ANTHROPIC_VERTEX_PROJECT_ID")
        base_url = self._base_url or environment("ANTHROPIC_VERTEX_BASE_URL")
        region = self._region or environment("CLOUD_ML_REGION") or "global"
        return project or environment("GOOGLE_CLOUD_PROJECT"), region, base_url

    def _make_client(self, credentials: _Credentials) -> AsyncAnthropic:
        import anthropic
        from anthropic.lib.vertex import AsyncAnthropicVertex

        project, region, base_url = credentials
        try:
            import google.auth

            found: Any = None
            if self._api_key is None:
                found, own = cast(Any, google.auth).default(scopes=[_SCOPE])
                project = project or own
            if not project:
                raise auth_error("Set GOOGLE_CLOUD_PROJECT to the project that has Claude.")
            sdk = AsyncAnthropicVertex(
                region=region or "global",
                project_id=project,
                access_token=self._api_key,
                credentials=found,
                base_url=base_url,
                timeout=self._timeout,
                max_retries=self._max_retries,
                middleware=[bound_retry_wait],
            )
        except ImportError as error:
            raise _missing("google", error) from error
        except (anthropic.AnthropicError, ValueError, *_google_errors()) as error:
            raise auth_error(f"Vertex AI cannot be asked: {error}.") from error
        return cast("AsyncAnthropic", sdk)

    def _login_errors(self) -> tuple[type[Exception], ...]:
        return _google_errors()


_NO_AWS = (
    "There are no AWS credentials. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE."
)


def _aws_errors() -> tuple[type[Exception], ...]:
    try:
        from botocore.exceptions import BotoCoreError  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        return ()
    return (cast("type[Exception]", BotoCoreError),)


def _google_errors() -> tuple[type[Exception], ...]:
    try:
        from google.auth.exceptions import GoogleAuthError
    except ImportError:
        return ()
    return (cast("type[Exception]", GoogleAuthError),)


def _missing(extra: str, error: ImportError) -> Exception:
    return auth_error(
        f"The extra {extra!r} is not installed ({error}). Run: pip install "
        f"'deep-agent-mcp[{extra}]'."
    )
