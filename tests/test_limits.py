"""What a run tree may use: counting, wrap-up, and the end."""

import json

import pytest
from anthropic.types import model as anthropic_models
from hypothesis import given
from hypothesis import strategies as st

from deep_agent_mcp.harness.errors import HarnessError
from deep_agent_mcp.harness.limits.carried_limits import ChildMeter
from deep_agent_mcp.harness.limits.limits import LimitReached, Limits, Meter, UnknownUsage, Used
from deep_agent_mcp.harness.limits.prices import Price, UnknownPrice, price_of
from deep_agent_mcp.harness.messages.message import Usage

SONNET = "anthropic:claude-sonnet-5"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def meter(used: Used | None = None, **limits) -> Meter:
    return Meter(Limits(**limits), used)


def ended(one: Meter, depth: int = 0) -> LimitReached:
    with pytest.raises(LimitReached) as caught:
        one.before_model_call(depth=depth)
    assert str(caught.value).startswith("limit: ")
    return caught.value


@pytest.mark.parametrize(
    "name",
    ["model_calls", "tool_calls", "fan_out", "parallel_tool_calls", "tokens", "cost", "seconds"],
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_bound_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})


def test_calls_are_bounded_unless_a_run_says_otherwise():
    assert (Limits().model_calls, Limits().tool_calls) == (200, 1_000)
    one = meter()
    for _ in range(200):
        one.before_model_call()
    assert ended(one).limit == "model_calls"


def test_depth_0_forbids_subagents_and_less_is_refused():
    with pytest.raises(ValueError, match="depth"):
        Limits(depth=-1)
    with pytest.raises(LimitReached, match="nested 0 deep") as caught:
        meter(depth=0).before_subagents(1, depth=1)
    assert caught.value.limit == "depth"


def test_a_met_limit_says_what_was_used_and_what_to_do():
    one = meter(model_calls=2, tool_calls=1)
    one.before_model_call()
    one.before_model_call()
    error = ended(one)
    assert error.limit == "model_calls"
    assert str(error).startswith("limit: 2 model calls allowed, 2 used")
    assert "higher limit model_calls" in str(error)
    one.before_tool_call()
    with pytest.raises(LimitReached, match="limit: 1 tool calls allowed, 1 used") as caught:
        one.before_tool_call()
    assert caught.value.limit == "tool_calls"
    assert (one.model_calls, one.tool_calls) == (2, 1)


def test_a_model_call_that_asked_nobody_is_taken_back_for_the_subagent_and_the_whole_tree():
    tree = meter(model_calls=3)
    child = ChildMeter(Limits(model_calls=1), tree, "task:1", 1)
    for _ in range(5):
        child.before_model_call(depth=1)
        child.take_back_model_call()
    assert (child.model_calls, tree.model_calls) == (0, 0)


def test_one_answer_starts_a_bounded_number_of_subagents():
    one = meter(fan_out=2)
    one.before_subagents(1)
    one.before_subagents(2, depth=3)
    with pytest.raises(LimitReached, match="2 subagents") as caught:
        one.before_subagents(3)
    assert caught.value.limit == "fan_out"


@given(st.lists(st.integers(0, 400), max_size=40), st.integers(1, 2_000))
def test_a_token_budget_is_exceeded_by_at_most_one_call(calls, budget):
    one, last = meter(tokens=budget, model_calls=1_000), 0
    for tokens in calls:
        if one.reached() is not None:
            break
        one.before_model_call()
        one.add(Usage(tokens // 2, tokens - tokens // 2), SONNET)
        last = tokens
    assert one.tokens < budget + max(last, 1)
    assert (one.tokens >= budget) == (one.reached() is not None)


def test_cached_tokens_count_as_tokens():
    one = meter(tokens=100)
    one.add(Usage(1, 2, 30, 67), SONNET)
    assert ended(one).limit == "tokens"
    assert one.used().tokens == 100


def test_cost_is_counted_by_list_prices_and_ends_the_run():
    one = meter(cost=0.012)
    one.before_model_call(SONNET)
    one.add(Usage(1_000, 1_000), SONNET)
    assert one.cost == pytest.approx(0.002 + 0.01)
    error = ended(one)
    assert error.limit == "cost"
    assert str(error).startswith("limit: 0.012 US dollars allowed, 0.012 used")


def test_a_model_without_a_price_is_refused_before_it_costs_anything():
    one = meter(cost=1)
    with pytest.raises(UnknownPrice, match=r"local:x.*Limits\(prices=") as caught:
        one.before_model_call("local:x")
    assert isinstance(caught.value, HarnessError)
    assert one.model_calls == 0
    priced = meter(cost=1, prices={"local:": Price(2, 2)})
    priced.before_model_call("local:x")
    priced.add(Usage(500_000, 0), "local:x")
    assert ended(priced).limit == "cost"


def test_without_a_cost_limit_unpriced_calls_are_only_noted():
    one = meter()
    one.before_model_call("local:x")
    one.add(Usage(10, 10), "local:x")
    assert (one.cost, one.unpriced_calls, one.tokens) == (0, 1, 20)
    resumed = meter(one.used(), cost=1)
    with pytest.raises(UnknownPrice, match="1 earlier model call"):
        resumed.before_model_call(SONNET)


def test_a_script_is_free_and_needs_no_usage():
    one = meter(cost=1, tokens=1)
    for _ in range(2):
        one.before_model_call("scripted:x")
        one.add(None, "scripted:x")
    assert (one.cost, one.unpriced_calls) == (0, 0)


def test_an_answer_by_an_unknown_name_costs_what_was_asked_for():
    one = meter(cost=1)
    one.add(Usage(1_000_000, 0), "gateway/x", SONNET)
    assert one.cost == 2


def test_a_budget_is_refused_when_a_model_does_not_report_its_tokens():
    one = meter(tokens=100)
    one.before_model_call()
    one.add(None, "sampling:client")
    with pytest.raises(UnknownUsage, match="sampling:client"):
        one.before_model_call()
    free = meter()
    free.add(None, "sampling:client")
    free.before_model_call()


def test_seconds_are_those_of_the_run_without_its_pauses():
    clock = Clock()
    first = Meter(Limits(seconds=60), clock=clock)
    clock.now += 40
    used = first.used()
    clock.now += 1_000_000
    second = Meter(Limits(seconds=60), used, clock=clock)
    clock.now += 10
    assert second.seconds == 50
    second.before_model_call()
    second.before_tool_call()
    clock.now += 10
    assert ended(second).limit == "seconds"
    with pytest.raises(LimitReached):
        second.before_tool_call()


def test_a_resumed_run_goes_on_counting_through_json():
    one = meter(model_calls=3)
    one.before_model_call(SONNET)
    one.before_tool_call()
    one.add(Usage(1, 2, 3, 4), SONNET)
    used = Used.from_json(json.loads(json.dumps(one.used().to_json())))
    assert used == Used(1, 1, Usage(1, 2, 3, 4), one.cost, used.seconds, ledger=one.used().ledger)
    other = meter(used, model_calls=3)
    other.before_model_call()
    other.before_model_call()
    assert ended(other).limit == "model_calls"
    assert Used.from_json({}) == Used()
    with pytest.raises(ValueError):
        Used.from_json({"usage": "much"})


def test_what_remains_is_never_negative():
    one = meter(tokens=10, cost=1.0)
    one.add(Usage(0, 1_000_000), SONNET)
    left = one.remaining()
    assert (left.model_calls, left.tool_calls) == (200, 1_000)
    assert (left.tokens, left.cost, left.seconds) == (0, 0, None)


def test_the_last_model_call_is_for_the_final_answer():
    one = meter(model_calls=2)
    assert one.wrap_up() is None
    one.before_model_call()
    text = one.wrap_up()
    assert text is not None
    assert "final answer now" in text
    one.before_model_call()
    assert ended(one).limit == "model_calls"


def test_a_subagent_leaves_a_call_for_each_agent_above_it():
    one = meter(model_calls=4)
    assert one.wrap_up(depth=2) is None
    one.before_model_call(depth=2)
    assert one.wrap_up(depth=2) is not None
    one.before_model_call(depth=2)
    assert "kept for the agents above" in str(ended(one, depth=2))
    assert one.reached(depth=1) is None
    one.before_model_call(depth=1)
    assert one.wrap_up() is not None
    one.before_model_call()
    assert ended(one).limit == "model_calls"


def test_at_90_percent_of_a_budget_the_model_is_asked_to_finish():
    clock = Clock()
    one = Meter(Limits(tokens=1_000, cost=1, seconds=10), clock=clock)
    one.add(Usage(899), SONNET)
    assert one.wrap_up() is None
    assert one.wrap_up(depth=1) is not None  # its parent needs a turn too
    one.add(Usage(1), SONNET)
    assert "90 % of this run's 1,000 tokens" in (one.wrap_up() or "")
    one.before_model_call()
    two = Meter(Limits(seconds=10), clock=clock)
    clock.now += 9.5
    assert "95 % of this run's 10 seconds" in (two.wrap_up() or "")
    three = meter(cost=1)
    three.add(Usage(0, 95_000), SONNET)
    assert "95 % of this run's 1 US dollars" in (three.wrap_up() or "")


def test_used_up_tool_calls_ask_for_the_final_answer():
    one = meter(tool_calls=1)
    assert one.wrap_up() is None
    one.before_tool_call()
    assert "All 1 tool calls" in (one.wrap_up() or "")


def test_at_75_percent_an_agent_is_told_what_is_left():
    clock = Clock()
    one = Meter(Limits(tokens=1_000, cost=1, seconds=100), clock=clock)
    one.add(Usage(749), SONNET)
    assert one.warning() is None
    one.add(Usage(1), SONNET)
    assert (one.warning() or "").startswith("This run has used 75 % of 1,000 tokens. Plan")
    clock.now += 80
    assert "75 % of 1,000 tokens and 80 % of 100 seconds" in (one.warning() or "")


def test_a_subagent_is_told_earlier_as_it_must_end_earlier():
    one = meter(tokens=1_000)
    one.add(Usage(700), SONNET)
    assert one.warning() is None
    assert one.wrap_up(depth=1) is None
    assert "70 % of 1,000 tokens" in (one.warning(depth=1) or "")


def test_counts_of_calls_are_warned_of_too():
    one = meter(model_calls=8, tool_calls=4)
    for _ in range(6):
        one.before_model_call()
    for _ in range(3):
        one.before_tool_call()
    assert "75 % of 8 model calls and 75 % of 4 tool calls" in (one.warning() or "")


@pytest.mark.parametrize("limits", [{"tokens": 1_000}, {"model_calls": 8}, {"tool_calls": 8}])
def test_a_warning_comes_before_the_wrap_up_and_not_with_it(limits):
    one, told = meter(**limits), []
    for _ in range(8):
        told.append("end" if one.wrap_up() else "warn" if one.warning() else "")
        one.before_model_call()
        one.before_tool_call()
        one.add(Usage(120), SONNET)
    told.append("end" if one.wrap_up() else "warn" if one.warning() else "")
    assert told == sorted(told, key=["", "warn", "end"].index)
    assert set(told) == {"", "warn", "end"}


# --- prices -------------------------------------------------------------------------------------


def test_a_price_covers_snapshots_of_a_version_but_no_other_version():
    opus = price_of("claude-opus-5")
    assert opus == price_of("anthropic:claude-opus-5-20260724") == Price(5, 25, 0.5, 6.25)
    assert price_of("claude-opus-5-5") == Price(4, 20, 0.2, 5)
    assert price_of("claude-opus-5-5-20260922") == Price(4, 20, 0.2, 5)
    assert price_of("claude-opus-5-9") is None
    assert price_of("claude-opus-5.9") is None
    assert price_of("claude-opus-55") is None
    assert price_of("local:claude-opus-5") is None
    assert price_of("scripted:claude-opus-5") == Price(0, 0), "a script is free"
    assert price_of("") is None


def test_own_prices_go_before_the_table_and_the_longest_beginning_wins():
    own = {"claude-": Price(1, 1), "anthropic:claude-opus": Price(2, 2), "local": Price(0, 0)}
    assert price_of("claude-sonnet-5", own) == Price(1, 1)
    assert price_of("anthropic:claude-opus-5-5", own) == Price(2, 2)
    assert price_of("local-model", own) == Price(0, 0)
    assert price_of("other", own) is None


def test_cached_tokens_and_long_prompts_have_their_own_price():
    assert Price(1, 10, 0.1, 2).cost(Usage(100, 10, 1_000, 50)) == pytest.approx(400e-6)
    assert Price(1, 0).cost(Usage(0, 0, 500, 500)) == pytest.approx(1_000e-6)
    haiku = price_of("claude-haiku-5-5")
    assert haiku is not None
    assert haiku.cost(Usage(100_000)) == pytest.approx(0.01)
    assert haiku.cost(Usage(1, 0, 100_000)) == pytest.approx((0.5 + 5_000) / 1e6)
    sonnet = price_of("claude-sonnet-4-5-20250929")
    assert sonnet is not None
    assert sonnet.cost(Usage(200_000)) == pytest.approx(0.6)
    assert sonnet.cost(Usage(200_001, 1_000)) == pytest.approx(1.2225, rel=1e-4)
    with pytest.raises(ValueError, match="not negative"):
        Price(-1, 1)


def test_every_model_the_sdk_names_has_a_price_or_is_known_to_have_none():
    literal = anthropic_models.Model.__args__[0]  # type: ignore[attr-defined]
    unpriced = {name for name in literal.__args__ if price_of(name) is None}
    assert unpriced == {"claude-mythos-preview"}, "it was retired"


def test_a_bound_on_the_cost_of_a_thread_alone_needs_known_prices_too():
    meter = Meter(Limits(thread_cost=1.0))
    with pytest.raises(UnknownPrice, match="price of nobody:model is not known"):
        meter.before_model_call("nobody:model")
    assert meter.model_calls == 0
    meter.before_model_call("anthropic:claude-sonnet-5-5")


def test_a_bound_on_the_tokens_of_a_thread_alone_needs_models_that_report_them():
    meter = Meter(Limits(thread_tokens=1_000))
    meter.before_model_call("nobody:model")
    meter.add(None, "nobody:model")
    with pytest.raises(UnknownUsage, match="does not report its tokens"):
        meter.before_model_call("nobody:model")
