"""A client's side of a consumer: it fetches messages and acks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anchorwatch.bus.port import ConsumerState, Delivery, Disconnected, Stored
from anchorwatch.core.errors import BadInput, Denied, NotFound
from anchorwatch.testing.bus.calls import Caller
from anchorwatch.testing.bus.consumers import ConsumerCore, ConsumerDeleted, Handed, Pull
from anchorwatch.testing.bus.faults import FaultKind

# How long a fetch waits before it returns empty while the connection is lost.
AWAY_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class SimDelivery:
    """A message that a client has fetched."""

    reader: SimConsumer
    handed: Handed

    @property
    def stored(self) -> Stored:
        return self.handed.stored

    @property
    def attempt(self) -> int:
        return self.handed.attempt

    async def ack(self) -> None:
        await self.reader.answer(f"ack {self.stored.sequence}", lambda core: core.ack(self.stored.sequence))

    async def nak(self, delay_s: float = 0) -> None:
        await self.reader.answer(
            f"nak {self.stored.sequence}", lambda core: core.nak(self.stored.sequence, delay_s)
        )

    async def in_progress(self) -> None:
        await self.reader.answer(
            f"in_progress {self.stored.sequence}", lambda core: core.in_progress(self.stored.sequence)
        )


class SimConsumer:
    """A pull consumer, as one client sees it. It is in ``readers``, the client's, until it is closed."""

    def __init__(
        self, calls: Caller, readers: dict[SimConsumer, None], stream: str, name: str, *, ephemeral: bool
    ) -> None:
        self._calls = calls
        self._readers = readers
        readers[self] = None
        self._stream = stream
        self._name = name
        self._ephemeral = ephemeral
        self._closed = False
        self._pulls: dict[Pull, ConsumerCore] = {}

    async def fetch(self, limit: int, timeout_s: float) -> list[Delivery]:
        if limit < 1:
            raise BadInput(f"cannot fetch {limit} messages")
        if self not in self._readers:
            raise Disconnected(f"consumer {self._name} of {self._stream} was closed here")
        link, server = self._calls.link, self._calls.server
        try:
            self._check_open()
            await link.up(min(timeout_s, AWAY_PAUSE_S))
            await link.travel(server.latency())
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
            if not self._calls.user.may_publish(subject):
                raise Denied(f"{self._calls.user.name} may not publish to {subject}")
            handed = await self._pull(limit, timeout_s)
            if handed:
                slow = server.faults.strikes(FaultKind.SLOW_FETCH)
                await link.travel(server.latency() + (server.faults.delay_s() if slow else 0.0))
        except Disconnected:
            if link.killed or link.closed or self._closed:
                raise
            await server.clock.sleep(AWAY_PAUSE_S)
            return []
        return [SimDelivery(self, each) for each in handed]

    async def state(self) -> ConsumerState:
        return await self._calls.call(
            f"$JS.API.CONSUMER.INFO.{self._stream}.{self._name}",
            lambda server: server.consumers.get(self._stream, self._name).state(),
        )

    async def close(self) -> None:
        self._closed = True
        for pull in self._pulls:
            if not pull.future.done():
                pull.future.set_exception(Disconnected("the consumer was closed"))
        self.leave(orphaned=False)
        self.end()
        self._readers.pop(self, None)

    async def answer(self, word: str, act: Callable[[ConsumerCore], None]) -> None:
        """Send an ack, nak or extension. A lost one raises nothing, as on the real bus."""
        link, server = self._calls.link, self._calls.server
        try:
            await link.travel(server.latency())
        except Disconnected:
            return
        if server.faults.strikes(FaultKind.LOST_DELIVERY_ACK):
            return
        core = server.consumers.find(self._stream, self._name)
        if core is not None and self._calls.user.may_publish(f"$JS.ACK.{self._stream}.{self._name}.1"):
            server.trace(f"{self._calls.link.name} {word} {self._name}")
            act(core)

    def leave(self, *, orphaned: bool) -> None:
        """Drop the pulls of a lost connection; ``orphaned``: they still take messages."""
        for pull, core in self._pulls.items():
            if orphaned:
                pull.orphan()
            else:
                core.drop(pull)
        self._pulls.clear()

    def end(self) -> None:
        """Delete the consumer if it is ephemeral: its client has ended."""
        server = self._calls.server
        if self._ephemeral and server.consumers.find(self._stream, self._name) is not None:
            server.consumers.delete(self._stream, self._name)

    def _check_open(self) -> None:
        if self._closed:
            raise Disconnected(f"consumer {self._name} of {self._stream} was closed here")

    async def _pull(self, limit: int, timeout_s: float) -> list[Handed]:
        server = self._calls.server
        core = server.consumers.get(self._stream, self._name)
        pull = core.pull(limit, timeout_s)
        self._pulls[pull] = core
        future = pull.future
        timer = server.clock.call_later(timeout_s, lambda: None if future.done() else future.set_result([]))
        try:
            return await self._calls.link.wait(future)
        except ConsumerDeleted:
            raise NotFound(f"consumer {self._name} of {self._stream} was deleted") from None
        finally:
            timer.cancel()
            if self._pulls.pop(pull, None) is not None:
                core.drop(pull)


__all__ = ["SimConsumer", "SimDelivery"]
