"""What the demo has seen, as plain data. The checks judge this, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorwatch_fleet.jobs import Result

from anchorwatch.journal.history import History
from anchorwatch.testing.receiver import Arrival


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed with signal 9. ``known``: it stood in mesh.json; ``during``: what it was at, as seen then.

    ``new_pid``: who came back in its place (None: nobody did), and after how long.
    """

    service: str
    instance: str
    pid: int
    known: bool
    during: str
    new_pid: int | None = None
    back_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """The claim whose owner was killed: as the journal, the mesh and the owner's own presence entry name it.

    ``presence``: incarnation and pid of the owner's entry in the bucket of leases.
    """

    sequence: int
    call: str
    instance: str
    incarnation: str
    effect_key: str
    mesh_pids: tuple[int, ...]
    presence_incarnation: str
    presence_pid: int
    killed_pid: int


@dataclass(frozen=True, slots=True)
class JournalMark:
    """How far the journal went, and the digest of its last record, before and after the NATS server was killed."""

    before: int
    before_sha256: str
    after: int
    after_sha256: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything.

    ``jobs``: the prime of each job. ``stopped``: instances that somebody stopped, as the yard lists them (None: it was not
    asked). ``first_keys``: effect keys that the demo itself used, and for how many instances. ``launched``: for each effect
    key, how often each instance was started, by the workers' own notes. ``anchor``: what the KV bucket holds.
    """

    incident: Mapping[str, Any] = field(default_factory=dict)
    heartbeat_s: float = 0
    history: History = field(default_factory=History)
    kills: tuple[Kill, ...] = ()
    claim: HeldClaim | None = None
    mark: JournalMark | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    stopped: tuple[str, ...] | None = None
    first_keys: Mapping[str, int] = field(default_factory=dict)
    launched: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    arrivals: tuple[Arrival, ...] = ()
    anchor: Mapping[str, Any] = field(default_factory=dict)
    anchor_key: str = ""
