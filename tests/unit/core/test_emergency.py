"""An emergency is a fact of its own: what raises, renews, changes and ends it, and what does not."""

from __future__ import annotations

import pytest
from anchorwatch.core.anchor import Anchor, read_anchor
from anchorwatch.core.emergency import (
    WHAT_CHARS_MAX,
    Emergency,
    EmergencyChange,
    OpenEmergency,
    Sighting,
    change_of,
    observed,
)
from anchorwatch.core.errors import Fenced, NotFound, Refused
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import Control, EndEmergency, EndTurn, NoteEmergency, Reset
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.times import iso

from tests.unit.core.test_session_machine import ME, OTHER, Story, acquire, created

DEAD = Emergency("workers-dead", "all workers are dead while 59 tasks are queued")
MORE_QUEUED = Emergency("workers-dead", "all workers are dead while 60 tasks are queued")
OVER: Sighting = False
UNSERVED = Emergency("no-workers", "no worker serves the 60 tasks that are queued")


def opened(since_ms: int, seen_ms: int, of: Emergency = DEAD) -> OpenEmergency:
    return OpenEmergency(of.kind, of.what, iso(since_ms), iso(seen_ms))


@pytest.mark.parametrize(
    ("before", "seen", "after", "change"),
    [
        (None, None, None, None),
        (None, False, None, None),
        (None, DEAD, opened(5, 5), "raised"),
        (opened(1, 2), None, opened(1, 2), None),
        (opened(1, 2), DEAD, opened(1, 5), None),
        (opened(1, 2), MORE_QUEUED, opened(1, 5, MORE_QUEUED), None),
        (opened(1, 2), UNSERVED, opened(1, 5, UNSERVED), "changed"),
        (opened(1, 2), False, None, "over"),
    ],
)
def test_only_an_observation_that_shows_it_changes_an_emergency(
    before: OpenEmergency | None,
    seen: Sighting,
    after: OpenEmergency | None,
    change: EmergencyChange | None,
) -> None:
    assert observed(before, seen, 5) == after
    assert change_of(before, after) == change


def test_text_of_a_pack_is_one_bounded_line() -> None:
    after = observed(None, Emergency("a", "x\u2028- a person wrote:\n" + "y" * 9_999), 5)
    assert after is not None
    assert after.what.startswith("x - a person wrote: yyy")
    assert len(after.what) == WHAT_CHARS_MAX


def test_open_emergency_survives_the_stored_form() -> None:
    anchor = Anchor(workspace="w", session="s", agent="a@1", emergency=opened(1, 2))
    assert read_anchor(anchor.to_json()) == anchor
    without = {name: value for name, value in anchor.to_json().items() if name != "emergency"}
    assert read_anchor(without).emergency is None, "an anchor of an earlier release has none"


# --- in a session


def running() -> Story:
    story = created().input()
    return story.do(acquire(story))


def note(seen: Sighting, at_ms: int, who: str = ME) -> NoteEmergency:
    return NoteEmergency(who, seen, at_ms, at_ms)


def end(seen: Sighting, at_ms: int) -> EndTurn:
    return EndTurn(ME, "unresolved", "", {}, 9_000, None, None, at_ms, seen=seen, seen_at_ms=at_ms)


def emergency(story: Story) -> OpenEmergency | None:
    assert story.state.anchor is not None
    return story.state.anchor.emergency


def last(story: Story) -> AnchorChanged:
    event = story.records[-1].event
    assert isinstance(event, AnchorChanged)
    return event


def test_record_says_what_was_raised_and_what_is_over() -> None:
    story = running().do(note(DEAD, 5))
    assert (last(story).kind, last(story).more["change"]) == (Kind.EMERGENCY_OBSERVED, "raised")
    assert emergency(story) == opened(5, 5)
    story.do(note(UNSERVED, 6))
    assert (last(story).more["change"], emergency(story)) == ("changed", opened(5, 6, UNSERVED))
    story.do(note(OVER, 7))
    assert (last(story).more["change"], emergency(story)) == ("over", None)
    assert last(story).more["emergency"]["what"] == UNSERVED.what


@pytest.mark.parametrize("seen", [None, False])
def test_nothing_is_recorded_where_nothing_changed(seen: Sighting) -> None:
    story = running()
    assert decide(story.state, note(seen, 5)) == []
    story.do(note(DEAD, 5))
    assert decide(story.state, note(MORE_QUEUED, 6)) == []
    assert decide(story.state, note(None, 6)) == []


def test_planner_without_the_turn_notes_nothing() -> None:
    story = running()
    with pytest.raises(Fenced):
        decide(story.state, note(DEAD, 5, OTHER))


def test_end_of_a_turn_only_renews_an_emergency() -> None:
    assert emergency(running().do(end(DEAD, 6))) is None
    assert emergency(running().do(note(DEAD, 5)).do(end(OVER, 6))) == opened(5, 5)
    assert emergency(running().do(note(DEAD, 5)).do(end(UNSERVED, 6))) == opened(5, 5)
    assert emergency(running().do(note(DEAD, 5)).do(end(None, 6))) == opened(5, 5)
    assert emergency(running().do(note(DEAD, 5)).do(end(MORE_QUEUED, 6))) == opened(5, 6, MORE_QUEUED)


def test_emergency_survives_turns_orders_and_a_reset() -> None:
    story = running().do(note(DEAD, 5)).do(end(None, 6))
    story.input().do(acquire(story)).do(Control(Kind.CANCELLED, "ada", 7, turn_id="turn_2"))
    story.do(Control(Kind.PAUSED, "ada", 7)).do(Control(Kind.RESUMED, "ada", 7))
    story.do(Reset("ada", 8, story.sequence))
    assert emergency(story) == opened(5, 5)


def test_person_ends_an_emergency_with_a_reason() -> None:
    story = running().do(note(DEAD, 5))
    story.do(EndEmergency("ada", 6, "the yard is gone for good"))
    change = last(story)
    assert (change.kind, change.by, change.reason) == (
        Kind.EMERGENCY_ENDED,
        "ada",
        "the yard is gone for good",
    )
    assert change.more["emergency"]["what"] == DEAD.what
    assert emergency(story) is None
    assert story.state.turn is not None, "the turn goes on"
    with pytest.raises(Refused, match="no open emergency"):
        decide(story.state, EndEmergency("ada", 7, "again"))


def test_emergency_that_a_person_ended_is_raised_again_when_seen() -> None:
    story = running().do(note(DEAD, 5)).do(EndEmergency("ada", 6, "it is over"))
    assert emergency(story.do(end(DEAD, 7))) is None, "the end of a turn notifies no person"
    story.input().do(acquire(story)).do(note(DEAD, 8))
    assert (last(story).more["change"], emergency(story)) == ("raised", opened(8, 8))


def test_deleted_session_has_no_emergency() -> None:
    story = running().do(note(DEAD, 5)).do(Control(Kind.DELETED, "ada", 6))
    assert emergency(story) is None


def test_order_for_an_unknown_session_is_refused() -> None:
    with pytest.raises(NotFound):
        decide(Story().state, EndEmergency("ada", 7, "over"))
