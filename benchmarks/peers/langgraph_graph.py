"""The graph for LangGraph Server: LangChain's agent; it runs in the server's environment."""
# pyright: basic

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from langchain.agents import create_agent
from langchain_model import ScriptModel, noop

agent = create_agent(ScriptModel(), [noop])
