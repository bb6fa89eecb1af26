"""Compare-and-set: a change is decided again on what another writer left, and a refusal counts only on the newest value."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from anchorwatch.core.errors import Fenced, Refused, Unavailable
from anchorwatch.journal.register import ATTEMPTS_MAX, Register


@dataclass
class Counter:
    """A counter; other writers add to it ``others`` times, each between a load and the store that follows."""

    count: int = 0
    others: int = 0
    stale: list[int] = field(default_factory=list)

    async def load(self) -> int:
        return self.stale.pop(0) if self.stale else self.count

    async def store(self, value: int, change: int) -> int:
        if self.others:
            self.others -= 1
            self.count += 100
        if value != self.count:
            raise Fenced
        self.count = change
        return self.count

    async def is_newest(self, value: int) -> bool:
        return value == self.count

    def register(self) -> Register[int, int]:
        return Register("the counter", self.load, self.store, self.is_newest)


def add_one(value: int) -> int:
    return value + 1


async def test_change_is_decided_on_the_winner_s_value() -> None:
    counter = Counter(count=1, others=2)
    assert await counter.register().change(add_one) == 202
    assert counter.count == 202


async def test_no_change_returns_the_value_and_stores_nothing() -> None:
    counter = Counter(count=5, others=1)
    assert await counter.register().change(lambda _: None) == 5
    assert counter.others == 1


async def test_register_that_others_keep_writing_is_unavailable() -> None:
    counter = Counter(others=ATTEMPTS_MAX)
    with pytest.raises(Unavailable, match="the counter is being changed"):
        await counter.register().change(add_one)
    assert counter.count == 100 * ATTEMPTS_MAX


def only_from_seven(value: int) -> int:
    if value < 7:
        raise Refused(f"{value} is below 7")
    return value + 1


async def test_refusal_on_an_old_value_does_not_count() -> None:
    counter = Counter(count=7, stale=[1, 2])
    assert await counter.register().change(only_from_seven) == 8


async def test_refusal_on_the_newest_value_counts() -> None:
    with pytest.raises(Refused, match="3 is below 7"):
        await Counter(count=3, stale=[1]).register().change(only_from_seven)


async def test_lost_fence_of_the_decision_itself_is_not_retried() -> None:
    def held_by_another(value: int) -> int:
        raise Fenced(f"decided on {value}")

    with pytest.raises(Fenced, match="decided on 1"):
        await Counter(count=1).register().change(held_by_another)
