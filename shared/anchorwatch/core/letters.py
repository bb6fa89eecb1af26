"""Dead letters. Pure: a message that its handler failed on is set aside, tried again, and at last shown to a person.

    (nothing) ──fails──▶ failing ──fails `tries_max` times──▶ open ──retry──▶ retried ──fails as often──▶ open …
                            │                                  │                 │
                            └──────────── handled: done ◀──────┴─────────────────┘        any of them ──drop──▶ dropped

`suspected` stands beside them: a message that was delivered more often than it may fail, and whose handler is about
to be started on it. What ends its process writes nothing else down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from anchorwatch.core.errors import AnchorWatchError, IdempotencyConflict, NewerSchema, Refused
from anchorwatch.core.times import backoff_s, left_ms

LetterState = Literal["suspected", "failing", "open", "retried", "done", "dropped"]
SHOWN: tuple[LetterState, ...] = get_args(LetterState)[1:]
"""The states that people see."""
WAITING: frozenset[LetterState] = frozenset({"failing", "retried"})
"""The states in which the message is to be handled again."""
CLOSED: frozenset[LetterState] = frozenset({"done", "dropped"})
Verb = Literal["retry", "drop"]
CRASHED = "crashed"
"""The error of a handler that never came to an answer."""

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
TEXT_CHARS_MAX = 500
ACTIONS_MAX = 16


@dataclass(frozen=True, slots=True)
class Address:
    """Which message, and whose. ``id`` is unique within workspace and service; ``session``: where it is of one.

    ``handler`` says what failed on it, in a word: ``event``, ``command``, ``session``, ``record``. ``stream`` and
    ``sequence`` say where the message stands, ``time_ms`` when it was stored there.
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
        """As people name it: ``SERVICE-ID``."""
        return f"{self.service}-{self.id}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a handler failed: a stable code, and a sentence without secrets."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """What a person ordered. ``key`` is the idempotency key of the request."""

    verb: Verb
    by: str
    at_ms: int
    key: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that could not be handled, and how it stands.

    ``tries`` counts failures since it was set aside or last ordered again; ``starts`` those that gave no answer. It is
    not to be handled before ``due_at_ms``. ``openings``: how often it was shown to people. Times are Unix milliseconds.
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
    actions: Sequence[Action] = field(default=())


def early_ms(letter: DeadLetter, now_ms: int) -> int:
    """How long its message is still to be left alone."""
    return left_ms(letter.due_at_ms, now_ms, round(PAUSE_S_MAX * 1000))


def fault_of(error: BaseException) -> Fault:
    """What an error says of itself, in one line."""
    if isinstance(error, AnchorWatchError):
        return Fault(error.code, _clip(str(error)))
    return Fault("internal", _clip(f"{type(error).__name__}: {error}"))


def counts(error: BaseException) -> bool:
    """Whether a failure is one of the message.

    What may be tried again just so (a bus, a model that is away) is not; nor is what a newer release wrote, and a newer
    process reads.
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
    """The letter after one more failure; None where it says all there is to say. ``spread`` as in `backoff_s`.

    Other messages may lead to the same letter (a session has one): a failure before its time is none more.
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
    """The letter opened at once, for a failure that would be the same again; None where it is open, or was dropped."""
    if letter is None or letter.state == "suspected":
        return _opened(DeadLetter(address, "failing", 1, now_ms, now_ms, now_ms, fault))
    if letter.state in ("open", "dropped"):
        return None
    return _opened(replace(letter, tries=letter.tries + 1, last_at_ms=now_ms, fault=fault))


def started(letter: DeadLetter | None, address: Address, now_ms: int, tries_max: int) -> DeadLetter:
    """The letter before a handler is started that may end its process: open when ``tries_max`` such starts gave no answer."""
    fault = Fault(CRASHED, "its handler was started again and again, and never came to an answer")
    if letter is None or letter.state == "done":
        letter = DeadLetter(address, "suspected", 0, now_ms, now_ms, now_ms, fault)
    if letter.starts >= tries_max:
        return _opened(replace(letter, tries=letter.starts, last_at_ms=now_ms, fault=fault))
    return replace(letter, starts=letter.starts + 1, last_at_ms=now_ms)


def answered(letter: DeadLetter, now_ms: int) -> DeadLetter:
    """The letter after a start that came to an answer which was no failure: the message waits for something."""
    return replace(letter, starts=0, last_at_ms=now_ms)


def handled(letter: DeadLetter, now_ms: int) -> DeadLetter | None:
    """The letter when its message was handled after all; None where nothing changes."""
    if letter.state in CLOSED:
        return None
    return replace(letter, state="done", starts=0, last_at_ms=now_ms)


def ordered(letter: DeadLetter, action: Action) -> DeadLetter | None:
    """The letter after a person's order; None where that very order, or the same wish, stands already.

    Raises:
        IdempotencyConflict: the key was used for another order on it. Refused: it is closed.
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
        raise Refused(f"letter {letter.address.letter_id} is {_closed(letter)}", hint="nothing is left to do")
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
    return "done: its message was handled after all"


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARS_MAX else f"{line[: TEXT_CHARS_MAX - 1]}…"
