"""A body is declared once: what is written is read back, and what is missing or odd is damage with its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.codec import encode, read_body, unpack, write_body
from anchorwatch.codec.records import pack
from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import Damaged, NewerSchema
from anchorwatch.core.letters import Action, Address, DeadLetter, Fault
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.late import LateOutcome
from anchorwatch.journal.reading import read
from hypothesis import given
from hypothesis import strategies as st

LATE = LateOutcome(
    CallId(3, 1, 2), "fire", "failed", "text", Owner("executor-1", "ab"), "key", "turn_1", "x", 7
)
LETTER = DeadLetter(
    Address("default", "planner", "s", "session", "JOURNAL_0", 9, "aw.journal.0.default.s.in.k", 5, "s"),
    "failing",
    tries=2,
    first_at_ms=1,
    last_at_ms=2,
    due_at_ms=3,
    fault=Fault("fault", "it failed"),
    actions=(Action("retry", "ada", 4, "k"),),
)
SUBJECT = "aw.journal.0.default.s.late.3.1.2"


def stored(body: dict[str, Any]) -> Stored:
    return Stored(SUBJECT, 12, 5, encode(Record(Kind.LATE, 5, "executor-1", body))[0])


@pytest.mark.parametrize("value", [LATE, LETTER])
def test_body_is_read_back_from_its_bytes(value: object) -> None:
    assert read_body(unpack(pack(write_body(value))), type(value)) == value


@given(st.builds(LateOutcome))
def test_any_late_outcome_is_read_back(late: LateOutcome) -> None:
    assert read_body(write_body(late), LateOutcome) == late


def test_commands_and_owners_are_stored_as_lists() -> None:
    body = write_body(LATE)
    assert (body["call"], body["owner"]) == ([3, 1, 2], ["executor-1", "ab"])
    assert (body["turn"], body["claim"]) == ("turn_1", 7)


def test_reading_a_body_names_sequence_and_register() -> None:
    assert read(stored(write_body(LATE)), LateOutcome)[1] == LATE
    body = write_body(LATE)
    del body["tool"]
    with pytest.raises(Damaged, match=r"sequence 12 \(late\.3\.1\.2\): .*tool") as damage:
        read(stored(body), LateOutcome)
    assert (damage.value.sequence, damage.value.register) == (12, "late.3.1.2")


def test_altered_bytes_name_sequence_and_register() -> None:
    whole = stored(write_body(LATE))
    with pytest.raises(Damaged, match="sequence 12") as damage:
        read(replace(whole, payload=whole.payload[:-1]), LateOutcome)
    assert not isinstance(damage.value, NewerSchema)
    assert damage.value.sequence == 12


@pytest.mark.parametrize(
    ("field", "value"),
    [("call", [1, 2]), ("call", 3), ("call", ["a", 1, 1]), ("owner", [[], []]), ("text", 5), ("claim", "x")],
)
def test_field_of_another_type_is_damage(field: str, value: object) -> None:
    with pytest.raises(Damaged):
        read_body({**write_body(LATE), field: value}, LateOutcome)


def test_field_that_a_body_does_not_declare_is_ignored() -> None:
    assert read_body({**write_body(LATE), "of_tomorrow": 1}, LateOutcome) == LATE
