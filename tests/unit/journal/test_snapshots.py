"""A snapshot leaves out nothing of what it is made of, whatever is added to that one day."""

from __future__ import annotations

from dataclasses import fields

from anchorwatch.codec import pack, unpack
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.state import Archive, Call, Input, PastTurn, SeenObservation, Step
from anchorwatch.journal.snapshots import read_state, state_body

INPUT = Input(7, "i", "event", 1, 5, "text", "source", "type", 9)
CALL = Call(
    1, "set", {"a": 1}, "label", "pool", "job", "succeeded", "done", {"b": 2}, durable=False, verb="v"
)
STEP = Step(1, "text", (CALL,), SeenObservation("d", 3, ""), (INPUT,))
PAST = PastTurn(1, "success", "why", (INPUT,), 2, (STEP,), (("event", 3),), 4)
STATE = SessionState(history=(PAST,), archives=(Archive(8, None, (PAST,)),))


def names(kind: type) -> set[str]:
    return {each.name for each in fields(kind)}


def test_each_field_has_its_place() -> None:
    body = state_body(STATE)
    # Inputs that wait are read anew, and at rest no turn runs; the other two are of the snapshot itself.
    left_out = {"pending", "turn", "snapshot_sequence", "snapshot_age"}
    assert body.keys() == set(SessionState._fields) - left_out
    [past] = body["history"]
    [step] = past["steps"]
    assert past.keys() == names(PastTurn)
    assert step.keys() == names(Step)
    assert step["calls"][0].keys() == names(Call)
    assert past["inputs"][0].keys() == names(Input) - {"settled", "why"}


def test_snapshot_read_back_equals_the_one_written() -> None:
    read = read_state(unpack(pack(state_body(STATE))), 12)
    assert read == STATE._replace(snapshot_sequence=12)
