"""Context schema: converts a run's context to its declared type."""

from __future__ import annotations

from types import GenericAlias
from typing import Any

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from ..errors import AgentBuildError, InvalidUpdate
from ..structured_output.schemas import as_pydantic_knows

__all__ = ["ContextSchema"]


class ContextSchema:
    """Checks contexts of one agent.

    Args:
        schema: A dataclass, a pydantic model, a TypedDict or another type. Its fields may be of
            any class, because a context can contain live objects, such as connections.

    Raises:
        AgentBuildError: It is not a type, or names a type that is unknown at run time.
    """

    def __init__(self, schema: Any) -> None:
        config = ConfigDict(arbitrary_types_allowed=True)
        try:
            # A dataclass takes no configuration, but the items of a tuple inherit the tuple's.
            alone: Any = GenericAlias(tuple, (as_pydantic_knows(schema),))
            self._adapter: TypeAdapter[tuple[Any]] = TypeAdapter(alone, config=config)
            self._adapter.rebuild(raise_errors=True)
        except (PydanticUserError, NameError, TypeError) as error:
            raise AgentBuildError(
                f"context_schema={schema!r} cannot be checked: {str(error).splitlines()[0]} Give a "
                "type whose annotations are known at run time, outside of TYPE_CHECKING."
            ) from error

    def check(self, context: Any) -> Any:
        """Convert a context to the declared type; None, for no context, stays None.

        Raises:
            InvalidUpdate: It does not match the type.
        """
        if context is None:
            return None
        try:
            return self._adapter.validate_python((context,))[0]
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc'][1:])) or 'the context'}: {item['msg']}"
                for item in error.errors(include_url=False, include_context=False)
            )
            raise InvalidUpdate(
                f"the context does not fit its schema; nothing was run: {problems}"
            ) from error
