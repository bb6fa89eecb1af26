"""The faults that the simulation injects: kinds, rates and counts.

`Faults` decides by its own seeded random source and counts each fault by kind. Each kind was observed on a real server,
network or client.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum


class FaultKind(StrEnum):
    """Kinds up to ``SLOW_SCHEDULE`` occur at random; a test causes the rest, which are counted too."""

    LOST_REQUEST = "lost_request"
    """The request never arrives; the caller waits until its timeout."""
    LOST_ACK = "lost_ack"
    """The message is stored, the answer is lost, and the caller waits until its timeout."""
    ZOMBIE_WRITE = "zombie_write"
    """The write reaches the server after the caller's timeout."""
    SPURIOUS_FENCE = "spurious_fence"
    """A fence is refused although it holds (10164: the server reports another fenced write in flight)."""
    SLOW_CALL = "slow_call"
    """The request or the answer is delayed by up to `Faults.slow_s`."""
    STALE_READ = "stale_read"
    """`last` and `range` answer as of an earlier sequence, and say so in ``up_to``."""
    STALE_KEY = "stale_key"
    """`KeyValue.get` answers as of an earlier revision, and does not say so."""
    DUPLICATE_DELIVERY = "duplicate_delivery"
    """A message is delivered again although its ack wait has not passed, or it was acked."""
    DELAYED_DELIVERY = "delayed_delivery"
    """A message and its successors on its subject come after later messages of other subjects."""
    REORDERED_DELIVERY = "reordered_delivery"
    """The messages of one fetch come in another order, each subject's own order kept."""
    SLOW_FETCH = "slow_fetch"
    """The messages of a fetch are in transit while their ack wait runs."""
    LOST_DELIVERY_ACK = "lost_delivery_ack"
    """An ack, nak or extension is lost."""
    ORPHANED_PULL = "orphaned_pull"
    """The pull of a client that has gone still takes messages; they come again only after their ack wait."""
    LOST_ANNOUNCEMENT = "lost_announcement"
    """A core message, request or reply is lost."""
    SLOW_SOURCE = "slow_source"
    """A sourced stream or bucket copies with a delay."""
    SLOW_SCHEDULE = "slow_schedule"
    """A scheduled message comes late."""
    CUT = "cut"
    FREEZE = "freeze"
    KILL = "kill"
    RESTART = "restart"
    CLOCK_STEP = "clock_step"


class Faults:
    """Decides by ``rng`` whether a fault occurs; ``rates`` has the probability of each kind (default: 0)."""

    def __init__(
        self,
        rng: random.Random | None = None,
        rates: Mapping[FaultKind, float] | None = None,
        *,
        slow_s: float = 1.0,
        stale_sequences_max: int = 8,
    ) -> None:
        self.rng = rng or random.Random("no faults")  # noqa: S311 - repeatability is the purpose
        self.rates = dict(rates or {})
        self.slow_s = slow_s
        self.stale_sequences_max = stale_sequences_max
        self.counts: dict[FaultKind, int] = {}
        self.enabled = True

    def strikes(self, kind: FaultKind) -> bool:
        """Whether the fault occurs now; if so, it is counted."""
        rate = self.rates.get(kind, 0.0)
        # A kind without a rate draws no number: it must not change the run of a seed.
        if not self.enabled or rate <= 0 or self.rng.random() >= rate:
            return False
        self.count(kind)
        return True

    def count(self, kind: FaultKind) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def delay_s(self) -> float:
        """A random delay: above 0, at most `slow_s`."""
        return self.rng.uniform(0.001, 1.0) * self.slow_s

    def earlier(self, sequence: int) -> int:
        """A sequence before ``sequence``, at least 0, at most `stale_sequences_max` back."""
        return max(0, sequence - self.rng.randint(1, self.stale_sequences_max))


__all__ = ["FaultKind", "Faults"]
