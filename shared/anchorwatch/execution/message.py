"""The messages of a pool: its commands, and the answers at its gates."""

from __future__ import annotations

from dataclasses import dataclass

from anchorwatch.bus.port import ConsumerSpec, Stored
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import GateDecided
from anchorwatch.core.letters import Address
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.mapping import read_command
from anchorwatch.service.keepalive import ACK_WAIT_S
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import COMMAND, EFFECT, GATE, parse_register

SHARD = "0"
SERVICE = "executor"
"""Whose dead letters those of commands are, whichever service runs the pool."""
# Commands of a paused session wait here, and must not keep those of others out.
ACK_PENDING_MAX = 4096


def pool_consumer(pool: str) -> ConsumerSpec:
    """The consumer that all executors of a pool share."""
    return ConsumerSpec(
        stream=journal_stream(SHARD),
        filters=(
            COMMAND.filter(shard=SHARD, pool=pool),
            EFFECT.filter(shard=SHARD, pool=pool, register=GATE),
        ),
        durable=f"executor-{pool}",
        ack_wait_s=ACK_WAIT_S,
        ack_pending_max=ACK_PENDING_MAX,
    )


@dataclass(frozen=True, slots=True)
class Message:
    """What a delivery is about. ``command`` (and ``digest``, its record's) is missing where it is an answer at a gate."""

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
        """Of the command's one dead letter."""
        ref, call, stored = self.ref, self.call, self.stored
        id_ = f"{ref.session}-{call.run}-{call.step}-{call.n}"
        where = (journal_stream(ref.shard), stored.sequence, stored.subject, stored.time_ms)
        return Address(ref.workspace, SERVICE, id_, "command", *where, session=ref.session)


def read_message(stored: Stored) -> Message | None:
    """What a message of the pool's consumer is about; None when it asks nothing of an executor."""
    register = parse_register(stored.subject)
    if register.kind == "fx.gate":
        if not isinstance(read_effect(stored), GateDecided):
            return None
        return Message(stored, register.ref, register.call, register.pool)
    record = decode(stored.payload)
    command = read_command(register.pool, record.body)
    return Message(stored, register.ref, command.call, register.pool, command, record.digest)
