"""Changes to the built-in stack of a deep agent: other options, less of it, more at a place."""

import pytest

from deep_agent_mcp.harness.deep_agent import create_deep_agent
from deep_agent_mcp.harness.errors import AgentBuildError
from deep_agent_mcp.harness.loop.hooks.middleware import AgentMiddleware
from deep_agent_mcp.harness.middleware import (
    ModelRetryMiddleware,
    Placed,
    RepeatGuardMiddleware,
    SummarizationMiddleware,
)
from deep_agent_mcp.harness.subagents.definitions import SubAgent
from tests.loop.models import Turns, says


class Audit(AgentMiddleware):
    """Nothing but a name."""


class Other(AgentMiddleware):
    """Another name."""


def stack(**options):
    return create_deep_agent(Turns(says("hi")), **options).definition.middleware


def names(middleware):
    return [one.name for one in middleware]


def one_of(middleware, kind):
    (found,) = [one for one in middleware if isinstance(one, kind)]
    return found


def test_options_are_laid_over_those_of_the_stack_and_its_place_stays():
    plain = stack()
    changed = stack(middleware_options={"SummarizationMiddleware": {"trigger": ("tokens", 9)}})
    assert names(changed) == names(plain)
    before = one_of(plain, SummarizationMiddleware).made_with[1]
    after = one_of(changed, SummarizationMiddleware).made_with[1]
    assert after == {**before, "trigger": ("tokens", 9)}


def test_none_leaves_a_middleware_out():
    left = stack(middleware_options={"RepeatGuardMiddleware": None})
    assert "RepeatGuardMiddleware" not in names(left)
    assert len(left) == len(stack()) - 1


def test_what_is_not_there_may_be_left_out_and_not_changed():
    options = {"ModelRetryMiddleware": None}
    assert names(stack(middleware_options=options, model_patience=0)) == names(
        stack(model_patience=0)
    )
    with pytest.raises(AgentBuildError, match=r"no middleware 'ModelRetryMiddleware'"):
        stack(middleware_options={"ModelRetryMiddleware": {"patience": 1}}, model_patience=0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"FilesystemMiddleware": None}, "FilesystemMiddleware cannot be left out; what can: Budg"),
        ({"RepeatGuard": {}}, "no middleware 'RepeatGuard'. Did you mean 'RepeatGuardMiddleware'"),
        (
            {"RepeatGuardMiddleware": {"stop": 3}},
            "no option of RepeatGuardMiddleware 'stop'. Did you mean 'stop_after'",
        ),
        (
            {"SummarizationMiddleware": {"keep": ("bytes", 3)}},
            "SummarizationMiddleware cannot be made with",
        ),
    ],
)
def test_what_cannot_be_done_to_the_stack_is_said_when_it_is_built(options, text):
    with pytest.raises(AgentBuildError) as refused:
        stack(middleware_options=options)
    assert text in str(refused.value)


def test_options_hold_for_subagents_too():
    agent = create_deep_agent(
        Turns(says("hi")),
        subagents=[SubAgent("helper", "Helps.", "Help.")],
        middleware_options={"RepeatGuardMiddleware": {"nudge_after": 2}, "MemoryMiddleware": None},
        middleware=[Placed(Audit(), before="TodoListMiddleware")],
    )
    tasks = next(one for one in agent.definition.middleware if one.name == "SubAgentMiddleware")
    helper = tasks.subagent("helper").definition.middleware
    assert one_of(helper, RepeatGuardMiddleware).made_with[1] == {"nudge_after": 2}
    assert names(helper).index("Audit") + 1 == names(helper).index("TodoListMiddleware")


def test_further_middleware_goes_where_it_is_placed_in_the_order_given():
    found = names(
        stack(
            middleware=[
                Placed(Audit(), after="RepeatGuardMiddleware"),
                Placed(Other(), after="RepeatGuardMiddleware"),
                Placed(ModelRetryMiddleware(), before="FilesystemMiddleware"),
            ]
        )
    )
    at = found.index("RepeatGuardMiddleware")
    assert found[at : at + 3] == ["RepeatGuardMiddleware", "Audit", "Other"]
    assert found[0] == "ModelRetryMiddleware"
    assert found.count("ModelRetryMiddleware") == 1  # the given one stands for the built-in one


def test_a_place_that_is_not_there_and_a_place_that_is_none_are_refused():
    with pytest.raises(AgentBuildError, match=r"Audit cannot be placed.*'Summarization'"):
        stack(middleware=[Placed(Audit(), before="Summarization")])
    with pytest.raises(AgentBuildError, match="one name, before= or after="):
        Placed(Audit())
