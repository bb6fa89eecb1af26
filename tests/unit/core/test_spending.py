"""What model calls used, and the bounds that it may not pass."""

from __future__ import annotations

import pytest
from anchorwatch.core.session.spending import DAY_MS, Budget, Prices, Spent, Tokens, together, used
from hypothesis import given
from hypothesis import strategies as st

PRICES = Prices(prompt=2.0, completion=10.0)
CALLS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 1_000), st.integers(0, 5 * DAY_MS)))


def spent(*calls: tuple[int, int, int]) -> Spent:
    total = Spent()
    for prompt, completion, at_ms in calls:
        usage = PRICES.priced({"prompt": prompt, "completion": completion})
        total = total.with_call(used(usage), at_ms)
    return total


@given(CALLS)
def test_usage_is_counted_once_whatever_the_clock_does(calls: list[tuple[int, int, int]]) -> None:
    total = spent(*calls)
    assert total.ever.all == total.turn.all == sum(prompt + completion for prompt, completion, _ in calls)
    assert total.today.all <= total.ever.all


def test_new_day_starts_at_zero_and_a_clock_set_back_keeps_it() -> None:
    total = spent((100, 10, DAY_MS + 5), (50, 5, 5))
    assert (total.day, total.today) == (1, Tokens(150, 15, 450))
    assert total.on(2 * DAY_MS).today == Tokens()
    assert total.on(3).today == Tokens(150, 15, 450)


def test_estimated_tokens_count_and_are_named_in_the_reason() -> None:
    usage = {"prompt": 1_234, "completion": 6, "estimated": 1_234}
    assert used(usage) == Tokens(1_234, 6, estimated=1_234)
    reason = Budget(day_tokens=1_000).exhausted(Spent().with_call(used(usage), 0))
    assert reason == "the day's budget is spent: 1240 of 1000 tokens, 1234 of them estimated"


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.integers(0, 1_000))
def test_settlement_replaces_the_reservation(counted: int, prompt: int, completion: int) -> None:
    reserves = PRICES.priced({"prompt": counted, "completion": 0, "estimated": counted})
    reserved = Spent().with_call(used(reserves), 0)
    assert (reserved.today.all, reserved.today.estimated) == (counted, counted)
    answer = PRICES.priced({"prompt": prompt, "completion": completion})
    settled = together([answer, {"reserved": counted, "reserved_micros": reserves["cost_micros"]}])
    assert reserved.with_call(used(settled), 0) == Spent().with_call(used(answer), 0)


def test_reservation_of_yesterday_does_not_lower_todays_usage() -> None:
    reserved = Spent().with_call(Tokens(100, 0, estimated=100), DAY_MS - 1)
    settled = reserved.with_call(used({"prompt": 30, "reserved": 100}), DAY_MS)
    assert settled.today == Tokens()
    assert settled.ever == Tokens(30)


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (Budget(turn_tokens=110), "the turn used 110 tokens of its budget of 110"),
        (Budget(day_tokens=100), "the day's budget is spent: 110 of 100 tokens"),
        (Budget(day_cost=0.0003), "the day's budget is spent"),
        (Budget(turn_tokens=111, day_tokens=111, day_cost=0.00031), ""),
        (Budget(), ""),
    ],
)
def test_reached_limit_is_named(budget: Budget, says: str) -> None:
    said = budget.exhausted(spent((100, 10, 0)))
    assert said.startswith(says)
    assert bool(said) == bool(says)


def test_money_limit_without_prices_limits_nothing() -> None:
    usage = Prices().priced({"prompt": 10**9})
    assert usage == {"prompt": 10**9}
    assert Budget(day_cost=0.01).exhausted(Spent().with_call(used(usage), 0)) == ""


def test_daily_limit_warning_comes_only_in_the_turn_nearing_it() -> None:
    budget = Budget(day_tokens=1_000)
    near = spent((500, 0, 0)).turn_begun().with_call(Tokens(400, 0), 1)
    assert budget.warning(near) == "the day's budget is nearly spent: 900 of 1000 tokens"
    assert budget.warning(near.turn_begun().with_call(Tokens(50, 0), 2)) == ""
    assert budget.warning(spent((500, 0, 0))) == ""
