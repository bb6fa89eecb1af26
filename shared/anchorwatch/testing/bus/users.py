"""Who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchorwatch.topology.subjects import matches


@dataclass(frozen=True, slots=True)
class SimUser:
    """Allow lists of subjects; None allows everything.

    Calls of the bus other than a publish are checked by the subject of the server's API that the real bus sends
    them to, so a list that works here has the right form.
    """

    name: str
    publish: tuple[str, ...] | None = None
    subscribe: tuple[str, ...] | None = None

    def may_publish(self, subject: str) -> bool:
        return _allows(self.publish, subject)

    def may_subscribe(self, subject: str) -> bool:
        return _allows(self.subscribe, subject)


def _allows(patterns: Sequence[str] | None, subject: str) -> bool:
    return patterns is None or any(matches(each, subject) for each in patterns)


__all__ = ["SimUser"]
