"""The records of each command's effect, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anchorwatch.core.effect.state import Claimed, EffectEvent, EffectState, Outcome, apply_effect
from anchorwatch.core.names import CallId
from anchorwatch.core.session.events import CommandDecided


@dataclass(slots=True)
class Family:
    """One command's records. ``head``: sequence of the last that the server can read, whether or not it can be trusted.

    ``unread``: one behind the last outcome cannot be read. ``command``: what was decided, where that can be read.
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
        """Whether somebody may have taken it up: only a register of claims that was never written says no."""
        return bool(self.claims)

    @property
    def open(self) -> bool:
        """Whether nobody can tell what became of it, although something is recorded of it."""
        return self.unread or (self.command is None and self.state.outcome is None)


@dataclass(slots=True)
class Families:
    """Those of a session."""

    by_call: dict[tuple[str, CallId], Family] = field(default_factory=dict)
    commands: dict[tuple[str, CallId], CommandDecided] = field(default_factory=dict)
    decided_at: dict[tuple[str, CallId], int] = field(default_factory=dict)

    def decide(self, command: CommandDecided, sequence: int) -> str:
        """A command stands in the journal; what is wrong with that."""
        key = command.pool, command.call
        if key in self.commands:
            return f"the command {command.call} was decided before"
        self.commands[key], self.decided_at[key] = command, sequence
        if key in self.by_call:
            self.by_call[key].command = command
        return ""

    def miss(self, pool: str, call: CallId, register: str, sequence: int) -> None:
        """A record of a family cannot be read."""
        family = self._of(pool, call)
        family.head, family.unread = sequence, True
        if register == "fx.claim":
            family.claims.add(sequence)

    def lose(self, pool: str, call: CallId, register: str, holes: Sequence[tuple[int, int]]) -> None:
        """The server counts a record of a family that it cannot read, in one of the ``holes`` (first, last) of its stream."""
        family = self._of(pool, call)
        # Where an outcome can be read, it is all that counts.
        family.unread |= family.state.outcome is None
        if register == "fx.claim":
            family.claims.add(_place(holes, self.decided_at.get((pool, call), 0)))

    def suspect(self, holes: Sequence[tuple[int, int]]) -> None:
        """Of a command that nobody is known to have taken up, the claim may have stood where nobody can read any more."""
        for (pool, call), decided_at in self.decided_at.items():
            family = self.by_call.get((pool, call))
            if family is not None and (family.state.outcome is not None or family.may_have_run):
                continue
            if any(last > decided_at for _, last in holes):
                self.lose(pool, call, "fx.claim", holes)

    def take(self, pool: str, call: CallId, sequence: int, at_ms: int, event: EffectEvent) -> str:
        """A record of a family; what is wrong with it."""
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
        """Those of which nobody can tell what became of the command, in the order of its identity."""
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
        return f"it is the outcome of {event.call}, in the register of {call}"
    if before is not None and before.state != "unknown":
        return f"the command has an outcome already: {before.state}"
    if event.claim_sequence and event.claim_sequence not in family.claims:
        return f"it names a claim at {event.claim_sequence} that is not there"
    return ""
