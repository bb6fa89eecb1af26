"""The messages of a pool's consumer: its commands, the answers at their gates, and which were delivered before."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from anchorwatch.bus.port import Bus, ConsumerSpec, Stored
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import GateDecided
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.letters import Address
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.mapping import read_command
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import ACK_WAIT_S
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import COMMAND, EFFECT, GATE, parse_register

SERVICE = "executor"
"""The service that dead letters of commands name, whichever service runs the pool."""
# Commands of a paused session wait here, and must not keep out those of other sessions.
ACK_PENDING_MAX = 4096


def pool_consumer(pool: str) -> ConsumerSpec:
    """The consumer that all executors of a pool share."""
    return ConsumerSpec(
        stream=journal_stream(),
        filters=(
            COMMAND.filter(pool=pool),
            EFFECT.filter(pool=pool, register=GATE),
        ),
        durable=f"executor-{pool}",
        ack_wait_s=ACK_WAIT_S,
        ack_pending_max=ACK_PENDING_MAX,
    )


@dataclass(frozen=True, slots=True)
class Message:
    """A command, or an answer at a command's gate: then it has neither ``command`` nor ``digest`` (of the command's record)."""

    stored: Stored
    ref: SessionRef
    call: CallId
    pool: str
    command: CommandDecided | None = None
    digest: str = ""

    @property
    def sequence(self) -> int:
        return self.stored.sequence

    @property
    def identity(self) -> tuple[SessionRef, CallId]:
        return self.ref, self.call

    @property
    def address(self) -> Address:
        """The address of the command's one dead letter."""
        ref, call, stored = self.ref, self.call, self.stored
        id_ = f"{ref.session}-{call.run}-{call.step}-{call.n}"
        where = (journal_stream(), stored.sequence, stored.subject, stored.time_ms)
        return Address(ref.workspace, SERVICE, id_, "command", *where, session=ref.session)


def read_message(stored: Stored) -> Message | None:
    """Read a message of the pool's consumer; None when it needs no work."""
    register = parse_register(stored.subject)
    if register.kind == "fx.gate":
        if not isinstance(read_effect(stored), GateDecided):
            return None
        return Message(stored, register.ref, register.call, register.pool)
    record = decode(stored.payload)
    command = read_command(register.pool, record.body)
    return Message(stored, register.ref, command.call, register.pool, command, record.digest)


@dataclass(slots=True)
class RedeliveryGuard:
    """Corrects the delivery count of messages that may have been delivered before.

    The server's count is not enough: a server that was killed may have forgotten a delivery, and a consumer that was recreated
    has counted none. Only a message that was stored after this connection and this consumer began is certainly new.
    """

    bus: Bus
    stream: str
    intake: Intake
    _connected: tuple[int, int] = (0, 0)
    _through: int = 0

    async def attempt(self, sequence: int, counted: int) -> int:
        """The number of a delivery that the server counts as ``counted``: at least 2 where it may not be the first.

        Raises:
            Unavailable.
        """
        if counted > 1:
            return counted
        if self._connected != self._connection:
            await self._mark()
        return 1 if sequence > self._through else 2

    async def mark(self) -> None:
        """Remember the end of the stream: later messages are known to be new."""
        with contextlib.suppress(Unavailable):
            await self._mark()

    @property
    def _connection(self) -> tuple[int, int]:
        return self.bus.connections, self.intake.times

    async def _mark(self) -> None:
        connection = self._connection
        self._through = (await self.bus.stream_state(self.stream)).last_sequence
        self._connected = connection
