"""The worker engine: what a handler answers, and how a process works through a durable consumer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """The message needs no more work: it is acked."""


@dataclass(frozen=True, slots=True)
class RetryIn:
    """The message needs more work: it is delivered again after ``seconds``."""

    seconds: float


Result = Done | RetryIn
"""What a handler answers about one message."""
