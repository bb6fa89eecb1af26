from __future__ import annotations

import pytest
from anchorwatch.core.errors import BadInput
from anchorwatch_fleet.yard.faults import Faults


def modes(faults: Faults, *verbs: str) -> list[str]:
    return [fault.mode if (fault := faults.take(verb)) else "" for verb in verbs]


def test_fault_applies_to_the_given_number_of_requests() -> None:
    faults = Faults()
    faults.set("silent", "launch", times=2)

    assert modes(faults, "stop", "launch", "launch", "launch") == ["", "silent", "silent", ""]


def test_fault_for_any_verb_applies_to_each_after_a_specific_one() -> None:
    faults = Faults()
    faults.set("error", times=2)
    faults.set("silent", "launch")

    assert modes(faults, "launch", "launch", "stop", "stop") == ["silent", "error", "error", ""]


def test_none_behaves_again() -> None:
    faults = Faults()
    faults.set("error", "launch", times=9)
    faults.set("none")

    assert modes(faults, "launch") == [""]


def test_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="timeout_after"):
        Faults().set("rude")
