"""The evidence of the demo, as plain data: all that its checks judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorwatch_fleet.jobs import Result

from anchorwatch.testing.checks import Evidence
from anchorwatch.testing.receiver import Arrival


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """The claim whose owner was killed, as named by the journal, the mesh and the owner's presence entry.

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
    """The journal's last sequence and the digest of its record, before and after the kill of the NATS server."""

    before: int
    before_sha256: str
    after: int
    after_sha256: str


@dataclass(frozen=True, slots=True)
class Incident(Evidence):
    """The evidence of the demo.

    ``incident``: the yard's facts when the workers had died. ``jobs``: the prime of each job. ``stopped``: instances that were
    stopped by order, as the yard lists them (None: not known). ``first_keys``: effect keys that the demo itself used, and for how
    many instances. ``launched``: for each effect key, how often each instance was started, by the workers' own notes.
    ``requests``: of the webhook. ``anchor``: the value in the KV bucket.
    """

    incident: Mapping[str, Any] = field(default_factory=dict)
    heartbeat_s: float = 0
    claim: HeldClaim | None = None
    mark: JournalMark | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    stopped: tuple[str, ...] | None = None
    first_keys: Mapping[str, int] = field(default_factory=dict)
    launched: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    requests: tuple[Arrival, ...] = ()
    anchor: Mapping[str, Any] = field(default_factory=dict)
    anchor_key: str = ""
