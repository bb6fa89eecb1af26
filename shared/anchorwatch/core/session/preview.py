"""The preview of a reset, and a confirmation bound to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from anchorwatch.core.errors import BadInput, ChangedSince
from anchorwatch.core.session.state import Input, SessionState

_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Preview:
    """A reset of the session at planner record ``head``, with all inputs up to sequence ``through``.

    ``runs``: the turns to archive. ``disposed``: the pending inputs that would not run. ``cancelled``: the id of the running
    turn that would end.
    """

    head: int
    through: int
    runs: tuple[int, ...]
    disposed: tuple[Input, ...]
    cancelled: str | None
    confirmation: str


def preview(state: SessionState) -> Preview:
    """The preview of a reset of the session now."""
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
    """(head, through) of the preview, if the session has not changed since.

    Later inputs do not matter: they stay pending.

    Raises:
        BadInput: the text is not a confirmation. ChangedSince: a turn or an order came after the preview.
    """
    head, _, rest = confirmation.partition("-")
    through, _, digest = rest.partition("-")
    if not (head.isdecimal() and through.isdecimal() and digest and len(confirmation) <= 80):  # noqa: PLR2004 - two sequences and a digest
        raise BadInput(
            "not a valid confirmation of a reset", hint="`anchorwatch reset SESSION --dry-run` prints one"
        )
    if int(head) != state.head or confirmation != _confirmation(state, int(through)):
        raise ChangedSince(
            "the session has changed since the preview",
            hint="repeat the preview; pause a busy session first",
        )
    return int(head), int(through)


def _confirmation(state: SessionState, through: int) -> str:
    anchor = state.anchor
    name = f"{anchor.workspace}/{anchor.session}" if anchor else ""
    waiting = [each.input_id for each in state.pending if each.sequence <= through]
    shown = "\x1f".join((name, str(state.head), state.head_digest, *waiting))
    return f"{state.head}-{through}-{sha256(shown.encode()).hexdigest()[:_DIGEST_CHARS]}"
