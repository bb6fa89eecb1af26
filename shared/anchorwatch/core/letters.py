"""Dead letters: a message whose handler failed is set aside, retried, and finally shown to a person. Pure.

    (nothing) ──fails──▶ failing ──fails `tries_max` times──▶ open ──retry──▶ retried ──fails as often──▶ open …
                            │                                  │                 │
                            └──────────── handled: done ◀──────┴─────────────────┘        any of them ──drop──▶ dropped

`suspected` is the state of a message that was delivered more often than `tries_max`, just before its handler starts.
A handler that ends its process leaves no other trace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from anchorwatch.core.errors import AnchorWatchError, IdempotencyConflict, NewerSchema, Refused
from anchorwatch.core.times import backoff_s, left_ms

LetterState = Literal["suspected", "failing", "open", "retried", "done", "dropped"]
SHOWN: tuple[LetterState, ...] = get_args(LetterState)[1:]
"""The states that people see."""
WAITING: frozenset[LetterState] = frozenset({"failing", "retried"})
"""The states in which the message will be handled again."""
CLOSED: frozenset[LetterState] = frozenset({"done", "dropped"})
Verb = Literal["retry", "drop"]
CRASHED = "crashed"
"""The error code of a handler that never returned."""

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
TEXT_CHARS_MAX = 500
ACTIONS_MAX = 16


@dataclass(frozen=True, slots=True)
class Address:
    """Identifies a message. ``id`` is unique within workspace and service; ``session``: empty if it concerns none.

    ``handler`` names what failed: ``event``, ``command``, ``session``, ``record``. ``stream`` and
    ``sequence`` locate the message, ``time_ms`` is when it was stored.
    """

    workspace: str
    service: str
    id: str
    handler: str
    stream: str
    sequence: int
    subject: str
    time_ms: int
    session: str = ""

    @property
    def letter_id(self) -> str:
        """The letter's id for people: ``SERVICE-ID``."""
        return f"{self.service}-{self.id}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a handler failed: a stable code, and a sentence without secrets."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A person's order. ``key`` is the idempotency key of the request."""

    verb: Verb
    by: str
    at_ms: int
    key: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be handled, and its state.

    ``tries`` counts failures since it was set aside or last ordered again; ``starts`` counts starts without a result. The
    next attempt is not before ``due_at_ms``. ``openings``: how often it was shown to people. Times are Unix milliseconds.
    """

    address: Address
    state: LetterState
    tries: int
    first_at_ms: int
    last_at_ms: int
    due_at_ms: int
    fault: Fault
    starts: int = 0
    openings: int = 0
    actions: tuple[Action, ...] = ()


def early_ms(letter: DeadLetter, now_ms: int) -> int:
    """Milliseconds until the next attempt."""
    return left_ms(letter.due_at_ms, now_ms, round(PAUSE_S_MAX * 1000))


def fault_of(error: BaseException) -> Fault:
    """An error in one line."""
    if isinstance(error, AnchorWatchError):
        return Fault(error.code, _clip(str(error)))
    return Fault("internal", _clip(f"{type(error).__name__}: {error}"))


def counts(error: BaseException) -> bool:
    """Whether the message is to blame for a failure.

    An outage (retryable) is not the message's failure (INV-1004), and neither is a record of a newer release.
    """
    return not (isinstance(error, NewerSchema) or (isinstance(error, AnchorWatchError) and error.retryable))


def failed(
    letter: DeadLetter | None,
    address: Address,
    fault: Fault,
    now_ms: int,
    tries_max: int,
    spread: float = 0.0,
) -> DeadLetter | None:
    """The letter after another failure; None if nothing changes. ``spread`` as in `backoff_s`.

    Several messages may share a letter (a session has one): a failure before ``due_at_ms`` does not count again.
    """
    if letter is None or letter.state in ("suspected", "done"):
        opened = letter.openings if letter else 0
        actions = letter.actions if letter else ()
        letter = DeadLetter(address, "failing", 0, now_ms, now_ms, now_ms, fault, 0, opened, actions)
    if letter.state not in WAITING or early_ms(letter, now_ms):
        return None
    tries = letter.tries + 1
    after = replace(letter, tries=tries, starts=0, last_at_ms=now_ms, fault=fault)
    if tries >= tries_max:
        return _opened(after)
    pause_s = backoff_s(tries, PAUSE_S_MIN, PAUSE_S_MAX, spread)
    return replace(after, due_at_ms=now_ms + round(pause_s * 1000))


def shown(letter: DeadLetter | None, address: Address, fault: Fault, now_ms: int) -> DeadLetter | None:
    """The letter opened at once, for a permanent failure; None if it is open or dropped already."""
    if letter is None or letter.state == "suspected":
        return _opened(DeadLetter(address, "failing", 1, now_ms, now_ms, now_ms, fault))
    if letter.state in ("open", "dropped"):
        return None
    return _opened(replace(letter, tries=letter.tries + 1, last_at_ms=now_ms, fault=fault))


def started(letter: DeadLetter | None, address: Address, now_ms: int, tries_max: int) -> DeadLetter:
    """The letter before a start of a handler that may end its process; open after ``tries_max`` starts without a result."""
    fault = Fault(CRASHED, "its handler was started repeatedly and never returned")
    if letter is None or letter.state == "done":
        letter = DeadLetter(address, "suspected", 0, now_ms, now_ms, now_ms, fault)
    if letter.starts >= tries_max:
        return _opened(replace(letter, tries=letter.starts, last_at_ms=now_ms, fault=fault))
    return replace(letter, starts=letter.starts + 1, last_at_ms=now_ms)


def answered(letter: DeadLetter, now_ms: int) -> DeadLetter:
    """The letter after a start that returned without a failure: the message waits for something."""
    return replace(letter, starts=0, last_at_ms=now_ms)


def handled(letter: DeadLetter, now_ms: int) -> DeadLetter | None:
    """The letter after its message was handled; None if nothing changes."""
    if letter.state in CLOSED:
        return None
    return replace(letter, state="done", starts=0, last_at_ms=now_ms)


def ordered(letter: DeadLetter, action: Action) -> DeadLetter | None:
    """The letter after a person's order; None if it has been carried out already.

    Raises:
        IdempotencyConflict: the key was used for another order on this letter. Refused: the letter is closed.
    """
    for former in letter.actions:
        if former.key == action.key:
            if (former.verb, former.note) == (action.verb, action.note):
                return None
            raise IdempotencyConflict(
                f"the key was used before to {former.verb} letter {letter.address.letter_id}",
                hint="use a new key for a new request",
            )
    if letter.state in CLOSED:
        raise Refused(
            f"letter {letter.address.letter_id} is {_closed(letter)}", hint="no further action is possible"
        )
    actions = (*letter.actions, action)[-ACTIONS_MAX:]
    if action.verb == "drop":
        return replace(letter, state="dropped", actions=actions)
    if letter.state in WAITING:
        return None
    return replace(letter, state="retried", tries=0, starts=0, due_at_ms=action.at_ms, actions=actions)


def _opened(letter: DeadLetter) -> DeadLetter:
    return replace(letter, state="open", starts=0, openings=letter.openings + 1)


def _closed(letter: DeadLetter) -> str:
    dropped = next((each for each in reversed(letter.actions) if each.verb == "drop"), None)
    if letter.state == "dropped" and dropped is not None:
        return f"dropped, by {dropped.by}"
    return "done: its message was handled"


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARS_MAX else f"{line[: TEXT_CHARS_MAX - 1]}…"
