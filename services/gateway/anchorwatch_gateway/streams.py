"""How many clients follow a session."""

from __future__ import annotations

from anchorwatch.core.errors import Unavailable

AT_ONCE_MAX = 200


class Streams:
    """The live streams that are open now. Each costs the server a consumer, so their number has a bound."""

    def __init__(self, at_once_max: int = AT_ONCE_MAX) -> None:
        self._at_once_max = at_once_max
        self._open = 0

    def check(self) -> None:
        """See that there is room for one more.

        Raises:
            Unavailable: there is none.
        """
        if self._open >= self._at_once_max:
            raise Unavailable(f"{self._open} clients follow already", hint="end one, or read the timeline")

    def open(self) -> None:
        """One more."""
        self._open += 1

    def close(self) -> None:
        """One less."""
        self._open -= 1
