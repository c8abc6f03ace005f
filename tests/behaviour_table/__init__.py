"""Table of behaviours of comparable libraries, and how this project handles each of them.

The ids number the behaviours of LangChain, LangGraph and DeepAgents that the project compares
itself with: A1 factory, A2 deep agents, A3 nodes and edges, A4 jumps, A5 hooks, A6 requests, A7
state, A8 structured output, B middleware, C1 file tools, C2 backends, C3 summaries, C4 repair and
rubric, C5 permissions, C6 subagents, C7 subagents in the background, C8 skills, C9 memory, C10
planning, C11 prompts, C12 profiles, D1 the step loop, D3 interrupts and durability, D4 time
travel, D8 streams, E complaints of users. Each row names the tests of our behaviour, or explains
the difference. `test_behaviours.py` checks that the table is complete and the tests exist.
"""

from tests.behaviour_table import (
    approvals_and_limits,
    durability,
    factory,
    files,
    knowledge,
    loop,
    repair_and_permissions,
    state,
    subagents,
    tools_and_todos,
    views,
    wishes,
)
from tests.behaviour_table.row import Row

__all__ = ["ROWS", "Row"]

ROWS: dict[str, Row] = {}
for part in (
    factory,
    loop,
    state,
    approvals_and_limits,
    views,
    tools_and_todos,
    files,
    repair_and_permissions,
    subagents,
    knowledge,
    durability,
    wishes,
):
    assert not ROWS.keys() & part.ROWS.keys(), f"{part.__name__} has a row of another part"
    ROWS.update(part.ROWS)
