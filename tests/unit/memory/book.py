"""A journal written by hand: the records of a stream, without a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode_anchor, encode, encode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect.state import EffectEvent, Outcome
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.apply import Recorded, apply
from anchorwatch.core.session.commands import Acquire, Command, CommitStep, Create, EndTurn, PlannedCall
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import AnchorChanged, CommandDecided, PlannerEvent, StepHead
from anchorwatch.core.session.state import SeenObservation
from anchorwatch.journal.artifacts import Kept, Provenance, artifact_id
from anchorwatch.journal.effect_mapping import effect_body
from anchorwatch.journal.mapping import event_body, input_body, read_session_record
from anchorwatch.topology.subjects import SessionSubjects, matches

START_MS = 1_770_000_000_000
STEP_MS = 1_000
WRITER = "planner-1:p"
AGENT = "keeper@1"


class Book:
    """The records of some sessions, in one order. The real machine folds each session's state."""

    def __init__(self) -> None:
        self.messages: list[Stored] = []
        self._states: dict[SessionRef, SessionState] = {}

    @property
    def now_ms(self) -> int:
        return START_MS + len(self.messages) * STEP_MS

    @property
    def sequence(self) -> int:
        return len(self.messages)

    def put(self, subject: str, payload: bytes) -> Stored:
        """Any bytes on any subject."""
        stored = Stored(subject, self.sequence + 1, self.now_ms + STEP_MS, payload)
        self.messages.append(stored)
        return stored

    def record(self, subject: str, kind: str, body: dict[str, Any], writer: str = "test") -> Stored:
        return self.put(subject, encode(Record(kind, self.now_ms, writer, body))[0])

    def state(self, ref: SessionRef) -> SessionState:
        return self._states.get(ref, SessionState())

    def say(self, ref: SessionRef, id_: str, text: str = "hello", **more: Any) -> Stored:
        """An input."""
        body = input_body(more.pop("kind", "message"), more.pop("priority", 0), text=text, **more)
        stored = self.record(SessionSubjects(ref).input(id_), Kind.INPUT, body)
        self._fold(ref, stored)
        return stored

    def do(self, ref: SessionRef, command: Command) -> Stored:
        """The records that the session machine decides; returns the last one."""
        for event in decide(self.state(ref), command):
            stored = self._planner(ref, event)
        return stored

    def create(self, ref: SessionRef) -> Stored:
        return self.do(ref, Create(ref, AGENT, ("objective",), ("constraint",), self.now_ms, "test"))

    def acquire(self, ref: SessionRef, turn_id: str) -> Stored:
        return self.do(ref, Acquire(turn_id, AGENT, WRITER, self.sequence, self.sequence, self.now_ms))

    def step(self, ref: SessionRef, *tools: str, text: str = "", pool: str = "default") -> list[CallId]:
        """A step with a command for each tool."""
        turn = self.state(ref).turn
        assert turn is not None
        number = len(turn.steps) + 1
        seen = SeenObservation("d1", self.now_ms, "all is well")
        head = StepHead(number, text, seen, None, calls=len(tools), usage={"prompt": 100})
        calls = tuple(PlannedCall(n, tool, {"n": n}, f"l{n}", pool, tool) for n, tool in enumerate(tools, 1))
        self.do(ref, CommitStep(WRITER, head, calls))
        return [CallId(turn.run_id, number, n) for n in range(1, len(tools) + 1)]

    def effect(self, ref: SessionRef, call: CallId, event: EffectEvent, pool: str = "default") -> Stored:
        """A record of a command's family."""
        register, kind, body = effect_body(event)
        stored = self.record(SessionSubjects(ref).effect(pool, call, register), kind, body, "executor-1:e")
        self._fold(ref, stored)
        return stored

    def done(
        self, ref: SessionRef, call: CallId, tool: str = "set", pool: str = "default", **more: Any
    ) -> Stored:
        fields: dict[str, Any] = {"state": "succeeded", "text": "done", "data": {}, **more}
        return self.effect(ref, call, Outcome(call, tool, **fields), pool)

    def end(self, ref: SessionRef, outcome: Any = "success", text: str = "") -> Stored:
        turn = self.state(ref).turn
        head = StepHead(len(turn.steps) + 1 if turn else 1, text, None, None) if text else None
        next_ms = self.now_ms + 300_000
        return self.do(ref, EndTurn(WRITER, outcome, "because", {"a": 1}, next_ms, head, None, self.now_ms))

    def artifact(self, ref: SessionRef, name: str) -> Stored:
        kept = Kept(
            artifact_id("maker", name, "0" * 64),
            name,
            "text/plain",
            5,
            "0" * 64,
            Provenance("maker", "keeper", 1, "1.1.1"),
        )
        return self.record(SessionSubjects(ref).artifact(kept.artifact_id), Kind.ARTIFACT, kept.to_body())

    def damage(self, sequence: int) -> None:
        """Change one byte in the middle of a record."""
        stored = self.messages[sequence - 1]
        middle = len(stored.payload) // 2
        altered = bytearray(stored.payload)
        altered[middle] ^= 1
        self.messages[sequence - 1] = replace(stored, payload=bytes(altered))

    def anchor(self, ref: SessionRef) -> Anchor:
        anchors = SessionSubjects(ref).anchors
        return decode_anchor([each for each in self.messages if matches(anchors, each.subject)][-1].payload)[
            0
        ]

    def _planner(self, ref: SessionRef, event: PlannerEvent) -> Stored:
        subjects, state = SessionSubjects(ref), self.state(ref)
        kind, body = event_body(event)
        record = Record(kind, self.now_ms, WRITER, body, state.head_digest)
        if isinstance(event, AnchorChanged):
            stored = self.put(subjects.anchor(event.kind), encode_anchor(event.anchor, record)[0])
        else:
            subject = subjects.command(event.pool) if isinstance(event, CommandDecided) else subjects.log
            stored = self.put(subject, encode(record)[0])
        self._fold(ref, stored)
        return stored

    def _fold(self, ref: SessionRef, stored: Stored) -> None:
        recorded = read_session_record(stored)
        if recorded is not None:
            folded = apply(self.state(ref), Recorded(*_fields(recorded)))
            self._states[ref] = folded.reading_through(stored.sequence)


def _fields(recorded: Recorded) -> tuple[Any, ...]:
    return recorded.sequence, recorded.event, recorded.digest, recorded.previous
