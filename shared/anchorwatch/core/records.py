"""Journal records and their kinds, independent of their encoding (`anchorwatch.codec`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FORMAT = 1
"""The format version that this release writes, and the newest that it reads."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the journal.

    ``kind``: what happened; ``at_ms`` (Unix milliseconds): when; ``writer``: which process wrote it;
    ``previous``: the digest of the previous planner record (planner records only, else empty). ``digest``
    (hex SHA-256) covers all of these and the body; it is empty until the codec has encoded the record.
    """

    kind: str
    at_ms: int
    writer: str
    body: Mapping[str, Any]
    previous: str = ""
    digest: str = ""


class Kind(StrEnum):
    """The record kinds, by register."""

    # in
    INPUT = "input"
    # p.anchor: why the anchor changed (core.session.transitions)
    CREATED = "created"
    ACQUIRED = "acquired"
    TAKEN_OVER = "taken_over"
    TURN_ENDED = "turn_ended"
    INPUTS_REFUSED = "inputs_refused"
    EMERGENCY_OBSERVED = "emergency_observed"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    RESUMED = "resumed"
    DELETED = "deleted"
    QUARANTINED = "quarantined"
    REPAIRED = "repaired"
    DIRECTIVES = "directives"
    STEERED = "steered"
    WAKES_CLEARED = "wakes_cleared"
    EMERGENCY_ENDED = "emergency_ended"
    RESET = "reset"
    RESET_UNDONE = "reset_undone"
    # p.cmd
    COMMAND = "command"
    # p.log
    STEP = "step"
    SNAPSHOT = "snapshot"
    COMPACTION = "compaction"
    MODEL_REQUEST = "model_request"
    # ctl
    CONTROL = "control"
    # fx
    GATE_ASKED = "gate_asked"
    GATE_DECIDED = "gate_decided"
    CLAIM = "claim"
    RELEASE = "release"
    OUTCOME = "outcome"
    # registers of a workspace
    BLOCK = "block"
    SWITCH = "switch"
    PACE = "pace"
    SCHEDULE = "schedule"
    # other registers
    LATE = "late"
    ARTIFACT = "artifact"
    DELIVERY_CLAIMED = "delivery_claimed"
    DELIVERY = "delivery"
    # in the stream DEAD
    DEAD_LETTER = "dead_letter"
