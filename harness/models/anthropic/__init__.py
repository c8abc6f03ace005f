"""Claude through Anthropic's own SDK: requests, the event stream of an answer, errors."""

from .errors import MISSING_KEY
from .model import AnthropicModel

__all__ = ["MISSING_KEY", "AnthropicModel"]
