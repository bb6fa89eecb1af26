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
        (DEAD, "event fleet.instance.dead"),
        (SAID, "message"),
        (an_input(3, "trigger"), "manual"),
        (an_input(3, "resolution"), "resolution of an unknown outcome"),
        (an_input(3, "canary"), "canary after a reset"),
        (an_input(3, "tick", source="schedule", type="nightly"), "schedule nightly"),
        (WAITED, "debounce window ended"),
        (CHECK, "scheduled check"),
    ],
)
def test_trigger_names_each_kind_of_input_and_its_sequence(wake: Input, name: str) -> None:
    assert woken([wake], wake.sequence) == f"trigger: {name} (seq {wake.sequence})"


@pytest.mark.parametrize(
    ("in_hand", "found"),
    [(17, 17), (19, 19), (21, 21), pytest.param(20, 17, id="a tick"), pytest.param(18, 19, id="an order")],
)
def test_trigger_is_the_held_the_debounced_or_the_urgent_input(in_hand: int, found: int) -> None:
    trigger = woken([DEAD, SAID, WAITED, CHECK], in_hand)
    assert f"(seq {found}), 3 more" in trigger


def test_turn_without_inputs_has_no_trigger_text() -> None:
    assert not woken([], 2)


def test_trigger_bounds_the_name_of_an_event() -> None:
    trigger = woken([an_input(3, source="s", type="t" * 500)], 3)
    assert len(trigger) < NAME_CHARS_MAX + 50
    assert "… (seq 3)" in trigger


@pytest.mark.parametrize(
    ("input_id", "sequence"), [("tick-14", 14), ("check-14", None), ("tick-x", None), ("tick-", None)]
)
def test_tick_id_names_the_debounced_input(input_id: str, sequence: int | None) -> None:
    assert waited_for(input_id) == sequence
