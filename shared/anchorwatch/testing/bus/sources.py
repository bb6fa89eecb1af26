"""Streams that the server keeps from another stream, with the subject changed on the way."""

from __future__ import annotations

import re
from collections.abc import Callable

from anchorwatch.bus.port import Stored
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.stream import StreamStore
from anchorwatch.topology.streams import Source
from anchorwatch.topology.subjects import matches

_WILDCARD = re.compile(r"\{\{\s*wildcard\((\d+)\)\s*\}\}")


def transform(source: Source, subject: str) -> str | None:
    """The subject in the keeping stream; None when the source does not take it."""
    if not matches(source.src, subject):
        return None
    tokens = subject.split(".")
    found = [tokens[index] for index, token in enumerate(source.src.split(".")) if token == "*"]
    return _WILDCARD.sub(lambda match: found[int(match[1]) - 1], source.dest)


class SourceFeed:
    """Copies from one stream into another, in order, from the beginning; each message once."""

    def __init__(
        self,
        source: Source,
        target: StreamStore,
        origin: Callable[[str], StreamStore | None],
        clock: SimClock,
        faults: Faults,
    ) -> None:
        self._source = source
        self._target = target
        self._origin = origin
        self._clock = clock
        self._faults = faults
        self._copied_to = 0
        self._waiting = False

    def on_stored(self, stored: Stored) -> None:
        """Something was stored in the origin: copy it, now or a little later."""
        if self._waiting:
            return
        if self._source_is_quiet(stored):
            self._copied_to = stored.sequence
            return
        if self._faults.strikes(FaultKind.SLOW_SOURCE):
            self._waiting = True
            self._clock.call_later(self._faults.delay_s(), self.catch_up)
        else:
            self.catch_up()

    def _source_is_quiet(self, stored: Stored) -> bool:
        """Whether this is the only new message, and none to copy: the common case, without a search."""
        return self._copied_to == stored.sequence - 1 and not matches(self._source.src, stored.subject)

    def catch_up(self) -> None:
        """Copy what was not copied yet."""
        self._waiting = False
        origin = self._origin(self._source.stream)
        if origin is None:
            return
        page = origin.range(
            self._source.src, self._copied_to + 1, origin.last_sequence + 1, origin.last_sequence
        )
        for stored in page.messages:
            subject = transform(self._source, stored.subject)
            if subject is not None:
                self._target.append(subject, stored.payload, stored.headers)
        self._copied_to = origin.last_sequence


__all__ = ["SourceFeed", "transform"]
