"""Kill switches: of a session, an agent, a workspace, the mesh. While one is on, no turn of its sessions starts, and no command.

Each is a register of the workspace, and its last record counts. An executor reads those of a command together with the
anchor, after its claim, in one answer; so a claim that is younger than a switch is released. Proof that the journal lost its
end turns that of the mesh on, and the acceptance of the loss alone turns it off (`truncation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.codec import write_body
from anchorwatch.core.errors import Damaged, Refused
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import DEADLINE_S, Committer
from anchorwatch.journal.ordered import OrderedRegisters
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.reading import read
from anchorwatch.topology.subjects import MESH, MESH_HOLD, MESH_SWITCH, SWITCH, SWITCHED

Scope = Literal["session", "agent", "workspace", "mesh"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
WHOLE = "all"


@dataclass(frozen=True, slots=True)
class Switch:
    """A kill switch as its last record says. ``name``: of the session or agent; of the workspace's and the mesh's, `WHOLE`."""

    workspace: str
    scope: Scope
    name: str
    on: bool
    by: str = ""
    at_ms: int = 0
    reason: str = ""
    sequence: int = 0

    def __str__(self) -> str:
        if self.is_journal_hold:
            return f"the mesh is {'held' if self.on else 'released'}: {self.reason}"
        of = f"{self.scope} {self.name}"
        if self.name == WHOLE:
            of = "the mesh" if self.scope == "mesh" else f"workspace {self.workspace}"
        return f"the kill switch of {of} is {'on' if self.on else 'off'}"

    @property
    def is_journal_hold(self) -> bool:
        """Whether it holds the mesh because the journal lost its end; no person turns this one."""
        return self.scope == "mesh" and self.name != WHOLE


def subjects_of(ref: SessionRef, agent: str) -> list[str]:
    """The switches that a session of ``agent`` (with or without its version) obeys."""
    names: dict[Scope, str] = {
        "session": ref.session,
        "agent": agent.partition("@")[0],
        "workspace": WHOLE,
    }
    own = [SWITCH.at(workspace=ref.workspace, scope=scope, name=name) for scope, name in names.items()]
    return [*own, MESH_SWITCH, MESH_HOLD]


@dataclass(frozen=True, slots=True)
class _Body:
    """``control``: the receipt's id."""

    on: bool
    by: str
    reason: str = ""
    control: str = ""


def read_switch(stored: Stored) -> Switch:
    """The switch in a message of its register.

    Raises:
        Damaged: it cannot be trusted.
    """
    record, body = read(stored, _Body)
    tokens = SWITCH.parse(stored.subject) or {}
    scope = next((each for each in SCOPES if each == tokens.get("scope")), None)
    if scope is None:
        raise Damaged(f"sequence {stored.sequence}: {stored.subject} is not a kill switch")
    workspace, name = tokens["workspace"], tokens["name"]
    return Switch(workspace, scope, name, body.on, body.by, record.at_ms, body.reason, stored.sequence)


def first_on(found: Iterable[Stored]) -> Switch | None:
    """One of these switches that is on, if any is; messages of other registers are passed by."""
    switches = (read_switch(stored) for stored in found if SWITCH.parse(stored.subject) is not None)
    return next((switch for switch in switches if switch.on), None)


class SwitchJournal:
    """Reads and turns switches. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._stream = committer.stream
        self._registers = OrderedRegisters(bus, committer)
        self._writer = writer

    async def all(self, workspace: str | None = None) -> list[Switch]:
        """Every switch over a workspace (None: of all of them) that was ever turned, by scope and name."""
        filters = (
            [SWITCH.filter(workspace=each) for each in (workspace, MESH)] if workspace else [SWITCH.filter()]
        )
        page = await self._bus.last(self._stream, filters)
        return sorted(map(read_switch, page.messages), key=lambda each: (each.scope, each.name))

    async def on_over(self, ref: SessionRef, agent: str) -> list[Switch]:
        """Those that hold a session of ``agent`` now.

        Raises:
            Unavailable, Damaged.
        """
        return await self.on_among(subjects_of(ref, agent))

    async def on_among(self, subjects: Sequence[str]) -> list[Switch]:
        """Those of these registers that are on. Errors as `on_over`."""
        page = await self._bus.last(self._stream, subjects)
        return [switch for switch in map(read_switch, page.messages) if switch.on]

    async def was_turned(self, workspace: str, asked: Asked) -> bool:
        """Whether a request under this key has turned a switch.

        Raises:
            Unavailable.
        """
        return await self._registers.was_ordered(_receipt(workspace, asked))

    async def turn(self, wanted: Switch, asked: Asked, deadline_s: float = DEADLINE_S) -> tuple[Switch, bool]:
        """Turn a switch as ``wanted`` says: (the current switch, whether the same request had set it before).

        Raises:
            Refused: it is so already. IdempotencyConflict: the key was used for another request. Fenced. Unavailable.
        """
        subject = SWITCH.at(workspace=wanted.workspace, scope=wanted.scope, name=wanted.name)
        receipt = _receipt(wanted.workspace, asked)
        body = write_body(_Body(wanted.on, asked.by, wanted.reason, asked.control_id))

        def change(found: Stored | None) -> Record:
            standing = read_switch(found) if found else None
            if (standing.on if standing else False) == wanted.on:
                raise Refused(
                    str(standing) if standing else f"{wanted.scope} {wanted.name} has no kill switch on",
                    hint="`anchorwatch kill-switch` lists the switches",
                )
            return Record(Kind.SWITCH, wanted.at_ms, self._writer, body)

        stored, replayed = await self._registers.order(subject, receipt, asked, change, deadline_s)
        return read_switch(stored), replayed


def _receipt(workspace: str, asked: Asked) -> str:
    return SWITCHED.at(workspace=workspace, control_id=asked.control_id)
