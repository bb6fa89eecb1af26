from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.woken import NAME_CHARS_MAX, waited_for, woken


def an_input(sequence: int, kind: Any = "event", priority: Any = 1, **more: Any) -> Input:
    return Input(sequence, more.pop("input_id", f"k-{sequence}"), kind, priority, 0, **more)


DEAD = an_input(17, source="fleet", type="instance.dead")
SAID = an_input(19, "message", 0)
WAITED = an_input(20, "tick", type="tick", input_id="tick-17")
CHECK = an_input(21, "tick", 2, type="check", input_id="check-3-1-2")


@pytest.mark.parametrize(
    ("wake", "name"),
    [
        (DEAD, "the event fleet.instance.dead"),
        (SAID, "what a person said"),
        (an_input(3, "trigger"), "a person's wish for a turn"),
        (an_input(3, "resolution"), "a person's word on an effect"),
        (an_input(3, "canary"), "the canary behind a reset"),
        (an_input(3, "tick", source="schedule", type="nightly"), "the schedule nightly"),
        (WAITED, "an input that waited"),
        (CHECK, "the time for a check"),
    ],
)
def test_each_kind_of_wake_has_its_name_and_its_place(wake: Input, name: str) -> None:
    assert woken([wake], wake.sequence) == f"woken by {name} (seq {wake.sequence})"


@pytest.mark.parametrize(
    ("in_hand", "found"),
    [(17, 17), (19, 19), (21, 21), pytest.param(20, 17, id="a tick"), pytest.param(18, 19, id="an order")],
)
def test_what_is_named_is_the_input_in_hand_or_the_one_that_its_tick_was_for_or_the_most_urgent(
    in_hand: int, found: int
) -> None:
    told = woken([DEAD, SAID, WAITED, CHECK], in_hand)
    assert f"(seq {found}) and 3 more" in told


def test_nothing_that_waited_woke_nobody() -> None:
    assert not woken([], 2)


def test_what_the_world_calls_an_event_has_a_bound() -> None:
    told = woken([an_input(3, source="s", type="t" * 500)], 3)
    assert len(told) < NAME_CHARS_MAX + 50
    assert "… (seq 3)" in told


@pytest.mark.parametrize(
    ("input_id", "sequence"), [("tick-14", 14), ("check-14", None), ("tick-x", None), ("tick-", None)]
)
def test_a_tick_names_the_input_that_waited(input_id: str, sequence: int | None) -> None:
    assert waited_for(input_id) == sequence
