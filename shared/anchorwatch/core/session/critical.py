"""Lines of a person's message that start with `CRITICAL:` are in every later prompt until a person withdraws them (INV-601).

All of a session together have a limit, checked when a message is accepted: no rung shortens them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anchorwatch.core.session.state import Input, SessionState

CRITICAL = "CRITICAL:"
LABELLED_BYTES_MAX = 24 * 1024
"""Of all labelled lines of a session: a snapshot holds them beside the conversation."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A labelled line, who wrote it and when. ``sequence``: of the message, or of the order that corrected it."""

    text: str
    by: str = ""
    at_ms: int = 0
    sequence: int = 0


def is_critical(line: str) -> bool:
    """Whether a line is labelled."""
    return line.lstrip().startswith(CRITICAL)


def critical_lines(text: str) -> list[str]:
    """The labelled lines of a text, verbatim."""
    return [line.strip() for line in text.splitlines() if is_critical(line)]


def with_lines_of(known: tuple[Labelled, ...], inputs: Iterable[Input]) -> tuple[Labelled, ...]:
    """``known`` and the labelled lines of the messages in ``inputs``: outside data gives no orders."""
    lines = {each.text: each for each in known}
    for given in inputs:
        for text in critical_lines(given.text) if given.kind == "message" else ():
            lines.setdefault(text, Labelled(text, given.by, given.at_ms, given.sequence))
    return tuple(lines.values())


def all_lines(state: SessionState) -> tuple[Labelled, ...]:
    """The labelled lines of a session, and those of the messages that no turn has taken yet."""
    return with_lines_of(state.critical, state.pending)
