"""The records of each command's effect, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anchorwatch.core.effect.state import Claimed, EffectEvent, EffectState, Outcome, apply_effect
from anchorwatch.core.names import CallId
from anchorwatch.core.session.events import CommandDecided


@dataclass(slots=True)
class Family:
    """The records of one command. ``head``: the sequence of the last one that the server can read, valid or not.

    ``unread``: a record after the last outcome cannot be read. ``command``: the decision, if it is readable.
    """

    pool: str
    call: CallId
    head: int = 0
    state: EffectState = field(default_factory=EffectState)
    unread: bool = False
    claims: set[int] = field(default_factory=set)
    command: CommandDecided | None = None

    @property
    def may_have_run(self) -> bool:
        """Whether an executor may have started it: not if its register of claims was never written."""
        return bool(self.claims)

    @property
    def open(self) -> bool:
        """Whether its outcome is unclear although it has records."""
        return self.unread or (self.command is None and self.state.outcome is None)


@dataclass(slots=True)
class Families:
    """The families of a session."""

    by_call: dict[tuple[str, CallId], Family] = field(default_factory=dict)
    commands: dict[tuple[str, CallId], CommandDecided] = field(default_factory=dict)
    decided_at: dict[tuple[str, CallId], int] = field(default_factory=dict)

    def decide(self, command: CommandDecided, sequence: int) -> str:
        """Enter a decided command; returns the rule that it violates, or empty."""
        key = command.pool, command.call
        if key in self.commands:
            return f"the command {command.call} has an earlier decision"
        self.commands[key], self.decided_at[key] = command, sequence
        if key in self.by_call:
            self.by_call[key].command = command
        return ""

    def miss(self, pool: str, call: CallId, register: str, sequence: int) -> None:
        """Enter an unreadable record of a family."""
        family = self._of(pool, call)
        family.head, family.unread = sequence, True
        if register == "fx.claim":
            family.claims.add(sequence)

    def lose(self, pool: str, call: CallId, register: str, holes: Sequence[tuple[int, int]]) -> None:
        """Enter a record that the server counts and cannot read, in one of the ``holes`` (first, last) of its stream."""
        family = self._of(pool, call)
        # A readable outcome decides.
        family.unread |= family.state.outcome is None
        if register == "fx.claim":
            family.claims.add(_place(holes, self.decided_at.get((pool, call), 0)))

    def suspect(self, holes: Sequence[tuple[int, int]]) -> None:
        """Treat each hole after a command without a known claim as its lost claim (INV-906)."""
        for (pool, call), decided_at in self.decided_at.items():
            family = self.by_call.get((pool, call))
            if family is not None and (family.state.outcome is not None or family.may_have_run):
                continue
            if any(last > decided_at for _, last in holes):
                self.lose(pool, call, "fx.claim", holes)

    def take(self, pool: str, call: CallId, sequence: int, at_ms: int, event: EffectEvent) -> str:
        """Enter a record of a family; returns the rule that it violates, or empty."""
        family = self._of(pool, call)
        wrong = "" if family.unread else _wrong(family, call, event)
        family.head = sequence
        family.state = apply_effect(family.state, sequence, at_ms, event)
        if isinstance(event, Claimed):
            family.claims.add(sequence)
        if isinstance(event, Outcome):
            family.unread = False
        return wrong

    def open(self) -> list[Family]:
        """The families whose outcome is unclear, ordered by command."""
        found = [family for family in self.by_call.values() if family.open]
        return sorted(found, key=lambda family: (family.call, family.pool))

    def _of(self, pool: str, call: CallId) -> Family:
        key = pool, call
        if key not in self.by_call:
            self.by_call[key] = Family(pool, call, command=self.commands.get(key))
        return self.by_call[key]


def _place(holes: Sequence[tuple[int, int]], behind: int) -> int:
    return next((max(first, behind + 1) for first, last in holes if last > behind), behind + 1)


def _wrong(family: Family, call: CallId, event: EffectEvent) -> str:
    if not isinstance(event, Outcome):
        return ""
    before = family.state.outcome
    if event.call != call:
        return f"it is the outcome of {event.call}, but in the register of {call}"
    if before is not None and before.state != "unknown":
        return f"the command has an outcome already: {before.state}"
    if event.claim_sequence and event.claim_sequence not in family.claims:
        return f"it names a claim at {event.claim_sequence} that does not exist"
    return ""
