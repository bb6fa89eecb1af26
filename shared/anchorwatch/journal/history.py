"""The records of a session, sorted by kind, for checks. Pure: from the records alone.

It does not use the session machine's fold: the checks compare what the machine has written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.anchor import Anchor, PromptProof
from anchorwatch.core.effect.state import Claimed, EffectEvent, Outcome
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    InputAccepted,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.transitions import HOLDS_TURN
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.late import LateOutcome
from anchorwatch.journal.mapping import read_session_record
from anchorwatch.journal.reading import read
from anchorwatch.topology.subjects import parse_register


@dataclass(frozen=True, slots=True)
class AnchorRecord:
    """One record of the anchor register. ``text``: the model's last text, at the end of a turn."""

    sequence: int
    kind: Kind
    anchor: Anchor
    digest: str
    reason: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The anchor that a step was shown, if recorded. ``joined``: sequences of the messages that joined the turn."""

    sequence: int
    run: int
    step: int
    proof: PromptProof | None
    joined: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A committed tool call."""

    sequence: int
    decided: CommandDecided

    @property
    def call(self) -> CallId:
        return self.decided.call


@dataclass(frozen=True, slots=True)
class Claim:
    """An executor's claim on a command."""

    sequence: int
    call: CallId
    claimed: Claimed


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """A command's outcome."""

    sequence: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class LateRecord:
    """A result that came after the outcome of its command."""

    sequence: int
    outcome: LateOutcome


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """A record of a delivery."""

    sequence: int
    at_ms: int
    delivery_id: str
    state: str


@dataclass(frozen=True, slots=True)
class History:
    """All records, each list in journal order.

    ``chain``: the planner's records with their digests. ``families``: the records of each command's effect, as
    (sequence, event).
    """

    anchors: tuple[AnchorRecord, ...] = ()
    inputs: tuple[Input, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    commands: tuple[Command, ...] = ()
    claims: tuple[Claim, ...] = ()
    outcomes: tuple[OutcomeRecord, ...] = ()
    late: tuple[LateRecord, ...] = ()
    sent: tuple[DeliveryRecord, ...] = ()
    chain: tuple[Recorded, ...] = ()
    families: Mapping[CallId, tuple[tuple[int, EffectEvent], ...]] = field(default_factory=dict)
    last_sequence: int = 0

    def of_kind(self, kind: str) -> tuple[AnchorRecord, ...]:
        """The anchor records of one kind, such as ``turn_ended``."""
        return tuple(each for each in self.anchors if each.kind == kind)

    def acquired(self, run: int) -> AnchorRecord | None:
        """The record that started a run."""
        return next((each for each in self.of_kind(Kind.ACQUIRED) if each.anchor.run_id == run), None)

    def ended(self, run: int) -> AnchorRecord | None:
        """The record that ended a run."""
        return next((each for each in self.of_kind(Kind.TURN_ENDED) if each.anchor.run_id == run), None)

    def taken(self, run: int) -> tuple[Input, ...]:
        """The inputs of a run: up to the sequence that its acquire pinned, and those that joined it at a step."""
        start = self.acquired(run)
        if start is None or start.anchor.turn is None:
            return ()
        after, through = start.anchor.inputs_through, start.anchor.turn.inputs_through
        joined = {sequence for prompt in self.prompts if prompt.run == run for sequence in prompt.joined}
        # An input that joined an earlier turn is not taken again.
        before = set(start.anchor.inputs_joined)
        return tuple(
            each
            for each in self.inputs
            if each.sequence in joined
            or (after < each.sequence <= through and each.sequence not in before and not each.settled)
        )

    def claims_of(self, call: CallId) -> tuple[Claim, ...]:
        return tuple(each for each in self.claims if each.call == call)

    def outcome_of(self, call: CallId) -> OutcomeRecord | None:
        return next((each for each in self.outcomes if each.outcome.call == call), None)

    def shown(self, before: int) -> AnchorRecord | None:
        """The newest anchor before a sequence that a prompt shows: an acquire or a takeover is not shown."""
        shown = [each for each in self.anchors if each.kind not in HOLDS_TURN and each.sequence < before]
        return shown[-1] if shown else None


def read_history(records: Sequence[Stored]) -> History:
    """The history of one session from its journal records, in order.

    Raises:
        Damaged: a record cannot be trusted.
    """
    builder = _Builder()
    for stored in records:
        register = parse_register(stored.subject)
        if register.kind == "sent":
            record = decode(stored.payload)
            state = str(record.body.get("state", ""))
            builder.sent.append(DeliveryRecord(stored.sequence, record.at_ms, register.path[1], state))
        elif register.kind == "late":
            builder.late.append(LateRecord(stored.sequence, read(stored, LateOutcome)[1]))
        elif register.kind.startswith("fx."):
            builder.take_effect(stored, register.call)
        elif (recorded := read_session_record(stored)) is not None:
            builder.take(recorded)
            if register.path[0] == "p":
                builder.chain.append(recorded)
    return builder.history(records[-1].sequence if records else 0)


@dataclass
class _Builder:
    anchors: list[AnchorRecord] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    outcomes: list[OutcomeRecord] = field(default_factory=list)
    late: list[LateRecord] = field(default_factory=list)
    sent: list[DeliveryRecord] = field(default_factory=list)
    chain: list[Recorded] = field(default_factory=list)
    families: dict[CallId, list[tuple[int, EffectEvent]]] = field(default_factory=dict)

    def take_effect(self, stored: Stored, call: CallId) -> None:
        event = read_effect(stored)
        self.families.setdefault(call, []).append((stored.sequence, event))
        match event:
            case Claimed() as claimed:
                self.claims.append(Claim(stored.sequence, call, claimed))
            case Outcome() as outcome:
                self.outcomes.append(OutcomeRecord(stored.sequence, outcome))
            case _:
                # Gates and released claims are in the family only.
                pass

    def take(self, recorded: Recorded) -> None:
        match recorded.event:
            case AnchorChanged(kind=kind, anchor=anchor, reason=reason) as event:
                text = event.head.text if event.head else ""
                self.anchors.append(
                    AnchorRecord(recorded.sequence, kind, anchor, recorded.digest, reason, text)
                )
                self._take_head(recorded, anchor.run_id, event.head)
            case InputAccepted(input=accepted):
                self.inputs.append(accepted)
            case CommandDecided() as event:
                self.commands.append(Command(recorded.sequence, event))
                self._take_head(recorded, event.call.run, event.head)
            case StepDecided() as event:
                self._take_head(recorded, event.run, event.head)
            case _:
                # A snapshot or a model request adds nothing.
                pass

    def _take_head(self, recorded: Recorded, run: int, head: StepHead | None) -> None:
        if head is not None:
            self.prompts.append(Prompt(recorded.sequence, run, head.step, head.prompt, head.joined))

    def history(self, last_sequence: int) -> History:
        return History(
            anchors=tuple(self.anchors),
            inputs=tuple(self.inputs),
            prompts=tuple(self.prompts),
            commands=tuple(self.commands),
            claims=tuple(self.claims),
            outcomes=tuple(self.outcomes),
            late=tuple(self.late),
            sent=tuple(self.sent),
            chain=tuple(self.chain),
            families={call: tuple(family) for call, family in self.families.items()},
            last_sequence=last_sequence,
        )
