"""The consumers of a server, by stream and name."""

from __future__ import annotations

from collections.abc import Callable

from anchorwatch.bus.port import ConsumerSpec, ConsumerState
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.bus.compare import check_consumer
from anchorwatch.testing.bus.consumers import ConsumerCore
from anchorwatch.testing.bus.faults import Faults
from anchorwatch.testing.bus.index import overlap
from anchorwatch.testing.bus.stream import StreamStore


class Consumers:
    """Makes, finds and deletes them. ``stream`` finds a stream, or raises `StreamMissing`."""

    def __init__(
        self,
        stream: Callable[[str], StreamStore],
        clock: SimClock,
        faults: Faults,
        trace: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._faults = faults
        self._trace = trace
        self._cores: dict[tuple[str, str], ConsumerCore] = {}
        self._ephemerals = 0

    def ensure(self, spec: ConsumerSpec) -> str:
        """Make the consumer or find the durable one; its name.

        Raises:
            StreamMissing: there is no such stream.
            ConfigDiffers: it exists with other filters or another ack wait.
            BadInput: another consumer of a work queue takes the same subjects.
        """
        store = self._stream(spec.stream)
        name = spec.durable
        if name is None:
            self._ephemerals += 1
            name = f"ephemeral-{self._ephemerals}"
        existing = self.find(spec.stream, name)
        if existing is not None:
            if spec.filters_before and set(existing.spec.filters) == set(spec.filters_before):
                existing.filter_anew(spec.filters)
            check_consumer(name, existing.spec, spec)
            return name
        if store.spec.work_queue:
            self._check_alone(spec)
        core = ConsumerCore(name, spec, store, self._clock, self._faults, self._trace)
        self._cores[spec.stream, name] = core
        store.on_stored.append(core.on_stored)
        store.on_removed.append(core.on_removed)
        return name

    def find(self, stream: str, name: str) -> ConsumerCore | None:
        return self._cores.get((stream, name))

    def get(self, stream: str, name: str) -> ConsumerCore:
        """The consumer of that name.

        Raises:
            NotFound: there is none (any more).
        """
        core = self.find(stream, name)
        if core is None:
            raise NotFound(f"there is no consumer {name} of {stream}")
        return core

    def delete(self, stream: str, name: str) -> None:
        """Delete it; a fetch that waits fails.

        Raises:
            NotFound: there is none.
        """
        core = self.get(stream, name)
        del self._cores[stream, name]
        store = self._stream(stream)
        store.on_stored.remove(core.on_stored)
        store.on_removed.remove(core.on_removed)
        core.delete()

    def states(self, stream: str) -> dict[str, ConsumerState]:
        """How far each durable consumer of the stream is.

        Raises:
            StreamMissing: there is no such stream.
        """
        self._stream(stream)
        return {
            core.name: core.state()
            for core in self._cores.values()
            if core.spec.stream == stream and core.spec.durable is not None
        }

    def _check_alone(self, spec: ConsumerSpec) -> None:
        for other in self._cores.values():
            if other.spec.stream == spec.stream and any(
                overlap(mine, theirs)
                for mine in spec.filters or (">",)
                for theirs in other.spec.filters or (">",)
            ):
                raise BadInput(f"{other.name} takes subjects of this work queue already")


__all__ = ["Consumers"]
