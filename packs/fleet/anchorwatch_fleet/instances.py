"""Instances and their states, as the yard reports them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from signal import Signals
from typing import Any, Literal, get_args

from anchorwatch.packs import BadInput

State = Literal["loading", "running", "hung", "stopped", "exited"]
STATES: tuple[State, ...] = get_args(State)
LIVE: frozenset[State] = frozenset(("loading", "running", "hung"))
"""States with a process, which count against the fleet limit. Only `running` does work."""

Priority = Literal["normal", "emergency"]
PRIORITIES: tuple[Priority, ...] = get_args(Priority)

LAST_ERROR_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Instance:
    """One worker of the fleet. Times are Unix milliseconds; ``since_ms``: in this state since.

    ``epoch`` counts its starts, ``jobs_done`` the jobs of this epoch, None: not reported.
    ``rate_ph``: proofs per hour of work, None: not measured yet. ``exited``: it ended without a request;
    ``stopped``: on request.
    """

    id: str
    state: State
    since_ms: int
    epoch: int = 1
    priority: Priority = "normal"
    effect_key: str = ""
    pid: int | None = None
    jobs_done: int | None = None
    rate_ph: float | None = None
    job: str | None = None
    job_done_at_ms: int | None = None
    last_error: str = ""
    exit_status: int | None = None
    exit_signal: int | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def instance_from_json(value: Mapping[str, Any]) -> Instance:
    """Read an instance; unknown fields are ignored.

    Raises:
        BadInput: it is invalid.
    """
    known = {name: value[name] for name in Instance.__slots__ if name in value}
    try:
        instance = Instance(**known)
    except TypeError as error:
        raise BadInput(f"this is not an instance: {error}"[:200]) from None
    if instance.state not in STATES:
        raise BadInput(f"{instance.state!r} is not a state of an instance")
    return instance


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's report, about once a second."""

    instance: str
    epoch: int
    state: Literal["loading", "running"]
    jobs_done: int = 0
    rate_ph: float | None = None
    job: str | None = None
    job_done_at_ms: int | None = None
    last_error: str = ""

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()


def decode_report(payload: bytes) -> Report:
    """Read a report; unknown fields are ignored.

    Raises:
        BadInput: it is invalid.
    """
    try:
        value = json.loads(payload)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadInput("this is not a report: not a JSON object")
    known = {name: value[name] for name in Report.__slots__ if name in value}
    try:
        report = Report(**known)
    except TypeError as error:
        raise BadInput(f"this is not a report: {error}"[:200]) from None
    if report.state not in ("loading", "running"):
        raise BadInput(f"{report.state!r} is not a state that a worker reports")
    return report


def describe_exit(status: int | None, signal: int | None) -> str:
    """How a process ended, for people."""
    if signal is not None:
        known = signal in (each.value for each in Signals)
        return f"killed by {Signals(signal).name if known else f'signal {signal}'}"
    return "ended" if status is None else f"exit status {status}"
