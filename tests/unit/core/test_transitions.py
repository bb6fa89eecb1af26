"""The table of the session machine: complete, in the docs, and the only source of the sets derived from it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from anchorwatch.core.anchor import Anchor, Fence, Status
from anchorwatch.core.errors import Refused
from anchorwatch.core.records import Kind
from anchorwatch.core.session.transitions import (
    CONTROLS,
    ENDS_TURN,
    HOLDS_TURN,
    TRANSITIONS,
    as_markdown,
    changed,
)

DOCS = Path(__file__).parents[3] / "docs" / "wire-format.md"
ALL_STATUSES: tuple[Status, ...] = get_args(Status)
EXISTING = [kind for kind in TRANSITIONS if kind is not Kind.CREATED]


def anchor(status: Status) -> Anchor:
    return Anchor(
        workspace="w", session="s", agent="a@1", status=status, run_id=4, generation=7, fence=Fence(3)
    )


def test_docs_hold_the_generated_table() -> None:
    assert as_markdown() in DOCS.read_text(encoding="utf-8")


def test_derived_sets_match_the_protocol() -> None:
    assert {Kind.TURN_ENDED, Kind.CANCELLED, Kind.DELETED, Kind.RESET, Kind.REPAIRED} == ENDS_TURN
    assert {Kind.ACQUIRED, Kind.TAKEN_OVER} == HOLDS_TURN
    assert (
        TRANSITIONS.keys()
        - {
            Kind.ACQUIRED,
            Kind.TAKEN_OVER,
            Kind.TURN_ENDED,
            Kind.INPUTS_REFUSED,
            Kind.EMERGENCY_OBSERVED,
        }
        == CONTROLS
    )


@pytest.mark.parametrize("status", ALL_STATUSES)
@pytest.mark.parametrize("kind", EXISTING)
def test_change_happens_in_its_source_statuses_only(kind: Kind, status: Status) -> None:
    row = TRANSITIONS[kind]
    if status not in row.sources:
        with pytest.raises(Refused, match=f"the session is {status}"):
            changed(anchor(status), kind)
        return
    after = changed(anchor(status), kind)
    assert (after.run_id, after.generation) == (4 + row.run, 7 + row.generation)
    assert after.fence.run == (5 if row.fence else 3)
    assert after.status in ALL_STATUSES


@pytest.mark.parametrize("kind", EXISTING)
def test_deleted_state_is_final(kind: Kind) -> None:
    assert "deleted" not in TRANSITIONS[kind].sources


@pytest.mark.parametrize("kind", [kind for kind in TRANSITIONS if TRANSITIONS[kind].ends_turn])
def test_every_end_of_a_turn_raises_the_fence(kind: Kind) -> None:
    assert TRANSITIONS[kind].fence


def test_fence_never_falls() -> None:
    ahead = Anchor(workspace="w", session="s", agent="a@1", status="idle", run_id=1, fence=Fence(9))
    assert all(
        changed(ahead, kind).fence.run >= ahead.fence.run
        for kind in EXISTING
        if "idle" in TRANSITIONS[kind].sources
    )


@pytest.mark.parametrize("kind", sorted(HOLDS_TURN))
def test_taking_a_turn_changes_nothing_that_executors_check(kind: Kind) -> None:
    """They read the last anchor of another kind: its fence, and whether the session is paused, quarantined or deleted."""
    row = TRANSITIONS[kind]
    assert not row.fence
    assert row.to == "active"
    assert row.sources <= {"idle", "active"}
