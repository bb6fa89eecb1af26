"""What a reset would do, and a confirmation that is bound to what was shown. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from anchorwatch.core.errors import BadInput, ChangedSince
from anchorwatch.core.session.state import Input, SessionState

_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Preview:
    """A reset of the session as it is at planner record ``head``, with all inputs up to sequence ``through``.

    ``runs``: of the turns that the conversation shows and that would be archived. ``disposed``: what waits, and would not run.
    ``cancelled``: the running turn's id, which would be ended.
    """

    head: int
    through: int
    runs: tuple[int, ...]
    disposed: tuple[Input, ...]
    cancelled: str | None
    confirmation: str


def preview(state: SessionState) -> Preview:
    """What a reset would do to the session now."""
    turn = state.turn
    runs = [past.run_id for past in state.history] + ([turn.run_id] if turn else [])
    through = state.read_through
    return Preview(
        head=state.head,
        through=through,
        runs=tuple(runs),
        disposed=state.pending,
        cancelled=turn.turn_id if turn else None,
        confirmation=_confirmation(state, through),
    )


def confirmed(state: SessionState, confirmation: str) -> tuple[int, int]:
    """(head, through) of what was shown, when the session still is as it was then.

    What was accepted since matters not: it is not what was shown, and waits on.

    Raises:
        BadInput: it is no confirmation. ChangedSince: a turn or an order came between.
    """
    head, _, rest = confirmation.partition("-")
    through, _, digest = rest.partition("-")
    if not (head.isdecimal() and through.isdecimal() and digest and len(confirmation) <= 80):  # noqa: PLR2004 - two sequences and a digest
        raise BadInput(
            "that is no confirmation of a reset", hint="`anchorwatch reset SESSION --dry-run` gives one"
        )
    if int(head) != state.head or confirmation != _confirmation(state, int(through)):
        raise ChangedSince(
            "the session has changed since the reset was shown",
            hint="look again; a session that is at work changes all the time: pause it first",
        )
    return int(head), int(through)


def _confirmation(state: SessionState, through: int) -> str:
    anchor = state.anchor
    name = f"{anchor.workspace}/{anchor.session}" if anchor else ""
    waiting = [each.input_id for each in state.pending if each.sequence <= through]
    shown = "\x1f".join((name, str(state.head), state.head_digest, *waiting))
    return f"{state.head}-{through}-{sha256(shown.encode()).hexdigest()[:_DIGEST_CHARS]}"
