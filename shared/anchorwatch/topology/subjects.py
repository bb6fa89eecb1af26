"""Every subject, defined once.

A subject is a template whose tokens are filled by name. ``at`` refuses a value that is not one token; ``filter`` uses
wildcards for missing tokens; ``parse`` reads a concrete subject.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from anchorwatch.core.errors import BadInput
from anchorwatch.core.names import CallId, SessionRef, check_token
from anchorwatch.core.records import Kind
from anchorwatch.core.session.transitions import HOLDS_TURN

REMEMBERED = 16_384
"""Cached subjects."""


@dataclass(frozen=True)
class Subject:
    """A subject template such as ``aw.tick.{workspace}.{session}``; a last token ``>`` matches any rest."""

    template: str
    _parts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parts", tuple(self.template.split(".")))

    def at(self, **tokens: object) -> str:
        """The concrete subject.

        Raises:
            BadInput: a token is empty, or contains a dot, a wildcard or white space.
            KeyError: a token is missing.
        """
        return ".".join(
            check_token(str(tokens[part[1:-1]]), part[1:-1]) if part[0] == "{" else part
            for part in self._parts
        )

    def filter(self, **tokens: object) -> str:
        """The subject filter: as ``at``, with ``*`` for missing values."""
        return ".".join(
            (check_token(str(tokens[part[1:-1]]), part[1:-1]) if part[1:-1] in tokens else "*")
            if part[0] == "{"
            else part
            for part in self._parts
        )

    def parse(self, subject: str) -> dict[str, str] | None:
        """The tokens of ``subject`` by name, or None if it has another form."""
        parts = subject.split(".")
        if len(parts) != len(self._parts):
            return None
        tokens = {}
        for mine, theirs in zip(self._parts, parts, strict=True):
            if mine[0] == "{":
                tokens[mine[1:-1]] = theirs
            elif mine != theirs:
                return None
        return tokens


SHARD: Final = "0"
"""The shard of every session: a mesh has one (`streams.SHARDS`)."""
JOURNAL: Final = f"aw.journal.{SHARD}"

_SESSION = JOURNAL + ".{workspace}.{session}"
_FX = _SESSION + ".fx.{pool}.{run}.{step}.{n}"

JOURNAL_ALL: Final = JOURNAL + ".>"
JOURNAL_SESSION = Subject(_SESSION + ".>")
INPUT = Subject(_SESSION + ".in.{input_id}")
PLANNER_FAMILY = Subject(_SESSION + ".p.>")
ANCHORS = Subject(_SESSION + ".p.anchor.*")
ANCHOR_CHANGE = Subject(_SESSION + ".p.anchor.change")
ANCHOR_TURN = Subject(_SESSION + ".p.anchor.turn")
LOG = Subject(_SESSION + ".p.log")
COMMAND = Subject(_SESSION + ".p.cmd.{pool}")
CONTROL = Subject(_SESSION + ".ctl.{control_id}")
EFFECT_FAMILY = Subject(_FX + ".>")
EFFECT = Subject(_FX + ".{register}")
LATE = Subject(_SESSION + ".late.{run}.{step}.{n}")
ARTIFACT = Subject(_SESSION + ".art.{artifact_id}")
SENT = Subject(_SESSION + ".sent.{delivery_id}")
WORKSPACE = "_workspace"
"""In place of a session's name, for registers of the workspace; not a valid session name."""
BLOCK = Subject(f"{JOURNAL}.{{workspace}}.{WORKSPACE}.block.{{resource}}")

SWITCH = Subject(f"{JOURNAL}.{{workspace}}.{WORKSPACE}.switch.{{scope}}.{{name}}")
SWITCHED = Subject(f"{JOURNAL}.{{workspace}}.{WORKSPACE}.switched.{{control_id}}")
MESH = "_mesh"
"""In place of a workspace's name, for registers of the whole mesh; not a valid workspace name."""
MESH_SWITCH = SWITCH.at(workspace=MESH, scope="mesh", name="all")
MESH_HOLD = SWITCH.at(workspace=MESH, scope="mesh", name="journal")
FILLER = f"aw.journal.0.{MESH}.{WORKSPACE}.filler.gap"
"""Takes sequences that the journal lost, until it is removed. It is never more than a step of making a gap."""
PACE = Subject(f"{JOURNAL}.{{workspace}}.{WORKSPACE}.pace.{{agent}}")
SCHEDULE = Subject(f"{JOURNAL}.{{workspace}}.{WORKSPACE}.schedule.{{name}}")
SCHEDULED = Subject(f"{JOURNAL}.{{workspace}}.{WORKSPACE}.scheduled.{{control_id}}")

EVENT_ALL = "aw.event.>"
EVENT_WORKSPACE = Subject("aw.event.{workspace}.>")
KEY_ALL = Subject("$KV.{bucket}.>")

TICK_SCHEDULE = Subject(f"aw.tick.schedule.{SHARD}.{{workspace}}.{{session}}")
TICK_FIRED = Subject(f"aw.tick.fired.{SHARD}.{{workspace}}.{{session}}")
SLOT_SCHEDULE = Subject(f"aw.tick.slot.{SHARD}.{{workspace}}.{{name}}")
SLOT_FIRED = Subject(f"aw.tick.slot-fired.{SHARD}.{{workspace}}.{{name}}")

DEAD_LETTER = Subject("aw.dead.{workspace}.{service}.{id}")

RPC_OBSERVE = Subject("aw.rpc.observe.{workspace}.{agent}")
RPC_MEMORY = Subject("aw.rpc.memory.{verb}")
RPC_PLANNER = Subject("aw.rpc.planner.{verb}")
RPC_NOTIFIER = Subject("aw.rpc.notifier.{verb}")

MEMORY_CONSUMER = "memory-"
"""Prefix of the consumers by which memory services follow the journal."""

GATE, CLAIM, DONE, UNKNOWN, RESOLVED, NOTICE = "gate", "claim", "done", "unknown", "resolved", "notice"
OUTCOMES: Final = (DONE, UNKNOWN, RESOLVED, NOTICE)
"""The registers of an outcome, by its meaning, so that a consumer receives only those that it handles.

``unknown`` and ``resolved`` are the states. A ``notice`` is any other outcome by which a tool notifies people.
"""
WAKE = "wake"
"""The control id of a message that only wakes planners and is not a receipt."""


def event(workspace: str, source: str, type_: str) -> str:
    """``aw.event.<workspace>.<source>.<type…>``; a type may have several tokens, such as ``instance.dead``.

    Raises:
        BadInput: a token is empty or invalid.
    """
    tokens = [check_token(workspace, "workspace"), check_token(source, "event source")]
    return ".".join(["aw.event", *tokens, *(check_token(token, "event type") for token in type_.split("."))])


def matches(pattern: str, subject: str) -> bool:
    """Whether ``subject`` matches the NATS filter ``pattern`` (``*`` one token, ``>`` one or more at the end)."""
    wanted, given = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given) > index
        if index >= len(given) or token not in ("*", given[index]):
            return False
    return len(wanted) == len(given)


def _tokens(ref: SessionRef) -> dict[str, str]:
    return {"workspace": ref.workspace, "session": ref.session}


@lru_cache(REMEMBERED)
def _of_session(subject: Subject, ref: SessionRef) -> str:
    """The session's subject of this form."""
    return subject.at(**_tokens(ref))


@dataclass(frozen=True, slots=True)
class SessionSubjects:
    """The registers of one session."""

    ref: SessionRef

    @property
    def everything(self) -> str:
        return _of_session(JOURNAL_SESSION, self.ref)

    @property
    def planner_family(self) -> str:
        return _of_session(PLANNER_FAMILY, self.ref)

    @property
    def anchors(self) -> str:
        """The filter of all anchor records. The last of them is the anchor."""
        return _of_session(ANCHORS, self.ref)

    @property
    def anchor_change(self) -> str:
        """Every other change of the anchor. Its last record has the fence, and whether the session is held."""
        return _of_session(ANCHOR_CHANGE, self.ref)

    @property
    def anchor_turn(self) -> str:
        """Changes by which a planner takes a turn (`HOLDS_TURN`). They only wake the planner that wrote them."""
        return _of_session(ANCHOR_TURN, self.ref)

    def anchor(self, kind: Kind) -> str:
        return self.anchor_turn if kind in HOLDS_TURN else self.anchor_change

    @property
    def log(self) -> str:
        return _of_session(LOG, self.ref)

    @property
    def tick_schedule(self) -> str:
        return _of_session(TICK_SCHEDULE, self.ref)

    @property
    def tick_fired(self) -> str:
        return _of_session(TICK_FIRED, self.ref)

    @property
    def inputs(self) -> str:
        return INPUT.filter(**_tokens(self.ref))

    def input(self, input_id: str) -> str:
        return INPUT.at(**_tokens(self.ref), input_id=input_id)

    def control(self, control_id: str = WAKE) -> str:
        """The receipt of an order; without an id, the subject that only wakes planners."""
        return CONTROL.at(**_tokens(self.ref), control_id=control_id)

    def command(self, pool: str) -> str:
        return COMMAND.at(**_tokens(self.ref), pool=pool)

    def effect(self, pool: str, call: CallId, register: str) -> str:
        return EFFECT.at(
            **_tokens(self.ref), pool=pool, run=call.run, step=call.step, n=call.n, register=register
        )

    def effect_family(self, pool: str, call: CallId) -> str:
        return EFFECT_FAMILY.at(**_tokens(self.ref), pool=pool, run=call.run, step=call.step, n=call.n)

    def late(self, call: CallId) -> str:
        return LATE.at(**_tokens(self.ref), run=call.run, step=call.step, n=call.n)

    def artifact(self, artifact_id: str) -> str:
        return ARTIFACT.at(**_tokens(self.ref), artifact_id=artifact_id)

    def sent(self, delivery_id: str) -> str:
        return SENT.at(**_tokens(self.ref), delivery_id=delivery_id)


@dataclass(frozen=True, slots=True)
class Register:
    """The register of a journal record: its session and the tokens after the session's prefix."""

    ref: SessionRef
    path: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The family and, of ``p`` and ``fx``, the register in it.

        ``in``, ``p.anchor``, ``p.log``, ``p.cmd``, ``ctl``, ``fx.gate``, ``fx.claim``, ``fx.done``, ``late``, ``art``, ``sent``;
        of the workspace itself ``block``, ``pace``, ``switch`` and ``switched``, ``schedule`` and ``scheduled``.
        """
        head = self.path[0]
        if head == "p":
            return f"p.{self.path[1]}"
        if head == "fx":
            return "fx.done" if self.path[-1] in OUTCOMES else f"fx.{self.path[-1]}"
        return head

    @property
    def pool(self) -> str:
        """The executor pool of a ``p.cmd`` or ``fx`` register."""
        return self.path[2] if self.path[0] == "p" else self.path[1]

    @property
    def call(self) -> CallId:
        """The command of an ``fx`` or ``late`` register."""
        offset = 2 if self.path[0] == "fx" else 1
        run, step, n = self.path[offset : offset + 3]
        return CallId(int(run), int(step), int(n))


_JOURNAL_PARTS = JOURNAL.split(".")


def parse_register(subject: str) -> Register:
    """Parse a journal subject.

    Raises:
        BadInput: it is not a subject of the journal.
    """
    parts = subject.split(".")
    if len(parts) < 7 or parts[:3] != _JOURNAL_PARTS:  # noqa: PLR2004 - the prefix and at least two tokens
        raise BadInput(f"{subject[:200]!r} is not a journal subject")
    return Register(SessionRef(parts[3], parts[4]), tuple(parts[5:]))
