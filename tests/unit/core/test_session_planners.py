"""Several planners and people at one session, each with its own idea of it: whoever is stale is refused, and what is decided
always leaves a state that can be."""

from __future__ import annotations

import json
from typing import NamedTuple

from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.emergency import Emergency, Sighting
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState, apply, replay
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.commands import (
    Acquire,
    ClearWakes,
    Command,
    CommitStep,
    Control,
    Direct,
    EndEmergency,
    EndTurn,
    NoteEmergency,
    PlannedCall,
    Reset,
    Steer,
    TakeOver,
    UndoReset,
)
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import Event, InputAccepted, OutcomeRecorded, SnapshotTaken, StepHead
from anchorwatch.core.session.joining import joining
from anchorwatch.core.session.state import Input
from anchorwatch.journal.snapshots import read_state, state_body
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.core.test_session_machine import created
from tests.unit.core.well_formed import faults_of

PLANNERS = ("planner-1:a", "planner-2:a", "planner-3:a")
HOLDER = "whoever holds the turn"


class Planner(NamedTuple):
    """Who acts; ``stale``: on what it has read before."""

    name: str
    stale: bool


STALE = st.sampled_from([False, False, False, True])
ANYBODY = st.builds(Planner, st.sampled_from(PLANNERS), STALE)
MOSTLY_HOLDER = st.builds(Planner, st.sampled_from([*PLANNERS, HOLDER, HOLDER, HOLDER, HOLDER]), STALE)
ORDERS: list[Command] = [
    Control(Kind.CANCELLED, "person", 6),
    Control(Kind.PAUSED, "person", 6),
    Control(Kind.RESUMED, "person", 6),
    Direct("person", 6, "objectives", "set", ("more",)),
    UndoReset("person", 6),
    EndEmergency("person", 6, "it is over"),
]


def whole(state: SessionState) -> SessionState:
    """What two folds of the same records must agree on."""
    return state._replace(read_through=0)


class Planners(RuleBasedStateMachine):
    """The journal as the server keeps it, and what each planner has read of it."""

    @initialize()
    def begin(self) -> None:
        story = created()
        self.records = list(story.records)
        self.truth = story.state
        self.known = dict.fromkeys(PLANNERS, self.truth)

    # --- what the server does

    def store(self, event: Event) -> None:
        recorded = Recorded(len(self.records) + 1, event, f"d{len(self.records) + 1}")
        self.records.append(recorded)
        self.truth = apply(self.truth, recorded).reading_through(recorded.sequence)

    def commit(self, state: SessionState, command: Command) -> SessionState | None:
        """Compare-and-set on the planner family; the writer's state with what it wrote, or None."""
        try:
            events = decide(state, command)
        except AnchorWatchError:
            return None
        if state.head != self.truth.head:
            return None
        for event in events:
            self.store(event)
            state = apply(state, self.records[-1])
        return state

    def knows(self, planner: Planner) -> tuple[str, SessionState]:
        """Who acts, and what it knows: what there is to know, unless it is stale."""
        holder = self.truth.anchor.execution_id if self.truth.anchor else None
        who = (holder or PLANNERS[0]) if planner.name == HOLDER else planner.name
        if not planner.stale:
            known = self.known[who]
            tail = self.records[known.read_through :]
            self.known[who] = replay(known, tail).reading_through(len(self.records))
        return who, self.known[who]

    def plan(self, who: str, command: Command) -> None:
        self.known[who] = self.commit(self.known[who], command) or self.known[who]

    # --- what planners do

    @precondition(lambda self: self.truth.turn is None)
    @rule(planner=ANYBODY)
    def acquire(self, planner: Planner) -> None:
        who, known = self.knows(planner)
        run = known.anchor.run_id + 1 if known.anchor else 1
        woken_by = known.pending[-1].sequence if known.pending else 0
        self.plan(who, Acquire(f"turn_{run}", "keeper@1", who, woken_by, known.read_through, 2_000))

    @precondition(lambda self: self.truth.turn is not None)
    @rule(planner=ANYBODY)
    def take_over(self, planner: Planner) -> None:
        who, known = self.knows(planner)
        self.plan(who, TakeOver(who, known.read_through, 5, "gone"))

    @precondition(lambda self: self.truth.turn is not None)
    @rule(
        planner=MOSTLY_HOLDER,
        count=st.integers(0, 3),
        resource=st.sampled_from(["", "fleet"]),
        skew=st.sampled_from([0, 0, 0, 0, 1, -1]),
    )
    def step(self, planner: Planner, count: int, resource: str, skew: int) -> None:
        who, known = self.knows(planner)
        turn = known.turn
        joined = tuple(each.sequence for each in joining(known))
        number = len(turn.steps) + 1 + skew if turn else 1
        head = StepHead(number, "", None, None, calls=count, joined=joined)
        calls = tuple(PlannedCall(n, "launch", {}, "", "default", resource) for n in range(1, count + 1))
        self.plan(who, CommitStep(who, head, calls))

    @precondition(lambda self: self.truth.turn is not None)
    @rule(
        planner=MOSTLY_HOLDER,
        outcome=st.sampled_from(["success", "failed", "no_action"]),
        with_head=st.booleans(),
    )
    def end(self, planner: Planner, outcome: RunOutcome, *, with_head: bool) -> None:
        who, known = self.knows(planner)
        joined = tuple(each.sequence for each in joining(known))
        head = StepHead(9, "", None, None, joined=joined) if with_head else None
        self.plan(who, EndTurn(who, outcome, "because", {"queued": True}, 9_000, head, None, 3_000))

    @precondition(lambda self: self.truth.turn is not None)
    @rule(
        planner=MOSTLY_HOLDER, seen=st.sampled_from([Emergency("a", "a"), Emergency("b", "b"), False, None])
    )
    def note_emergency(self, planner: Planner, seen: Sighting) -> None:
        who, _ = self.knows(planner)
        self.plan(who, NoteEmergency(who, seen, 5, 6))

    @precondition(lambda self: self.truth.turn is None)
    @rule(planner=ANYBODY)
    def snapshot(self, planner: Planner) -> None:
        who, known = self.knows(planner)
        if known.turn is None and known.head == self.truth.head:
            self.store(SnapshotTaken(known))
            self.known[who] = apply(known, self.records[-1])

    # --- what the world does

    @rule(of=st.sampled_from([("message", 0), ("event", 1), ("event", 2), ("message", 1), ("trigger", 0)]))
    def accept(self, of: tuple[str, int]) -> None:
        kind, priority = of
        sequence = len(self.records) + 1
        given = Input(sequence, f"i{sequence}", kind, priority, 0, "CRITICAL: never more than 4")  # type: ignore[arg-type]
        self.store(InputAccepted(given))

    @rule(
        state=st.sampled_from(["succeeded", "failed", "refused", "unknown", "resolved"]),
        durable=st.booleans(),
    )
    def outcome(self, state: str, *, durable: bool) -> None:
        """Of the last command without one, also of a turn that is over."""
        for each in reversed(self.truth.unsettled):
            self.store(OutcomeRecorded(each.call, state, "", {}, durable))  # type: ignore[arg-type]
            return
        turn = self.truth.turn
        for call in turn.steps[-1].calls if turn and turn.steps else ():
            if turn and call.state == "pending":
                id_ = CallId(turn.run_id, turn.steps[-1].number, call.n)
                self.store(OutcomeRecorded(id_, state, "", {}, durable))  # type: ignore[arg-type]
                return

    @rule(order=st.sampled_from(ORDERS))
    def order(self, order: Command) -> None:
        self.commit(self.truth, order)

    @precondition(lambda self: self.truth.turn is not None)
    @rule()
    def steer(self) -> None:
        turn = self.truth.turn
        self.commit(self.truth, Steer("person", 6, turn.turn_id if turn else "", "to port"))

    @rule(behind=st.integers(0, 4), reset=st.booleans())
    def dispose(self, behind: int, *, reset: bool) -> None:
        through = max(0, len(self.records) - behind)
        order = Reset("person", 6, through) if reset else ClearWakes("person", 6, through)
        self.commit(self.truth, order)

    # --- what holds

    @invariant()
    def every_state_can_be(self) -> None:
        assert faults_of(self.truth) == []
        for known in self.known.values():
            assert faults_of(known) == []

    def teardown(self) -> None:
        self.a_fold_is_a_fold()
        self.a_snapshot_with_its_tail_is_the_whole()

    def a_fold_is_a_fold(self) -> None:
        assert whole(replay(SessionState(), self.records)) == whole(self.truth)
        assert whole(replay(self.truth, self.records)) == whole(self.truth), "again, it changes nothing"
        for known in self.known.values():
            assert whole(replay(known, self.records[known.read_through :])) == whole(self.truth)

    def a_snapshot_with_its_tail_is_the_whole(self) -> None:
        for taken in self.records:
            if isinstance(taken.event, SnapshotTaken):
                body = json.loads(json.dumps(state_body(taken.event.state)))
                state = read_state(body, taken.sequence)
                through = state.anchor.inputs_through if state.anchor else 0
                loaded = replay(state, self.records[min(through, state.read_through) :])
                expected = whole(self.truth)._replace(
                    snapshot_age=loaded.snapshot_age,
                    snapshot_sequence=loaded.snapshot_sequence,
                )
                assert whole(loaded) == expected


TestPlanners = Planners.TestCase
# What is found is at most 50 steps long; to make it shorter takes longer than a test may.
TestPlanners.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
