"""Reading the journal: open one message, and read the newest messages before a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.codec import decode, decode_anchor, read_body
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Damaged, Unavailable
from anchorwatch.core.records import Record
from anchorwatch.topology.subjects import Register, parse_register

STALE_ATTEMPTS_MAX = 20
_PREFIX_TOKENS = 5
T = TypeVar("T")

# What using the fields of a well-formed record raises when one is missing or has the wrong type.
ODD = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Opened:
    """A journal message with its decoded and verified record. ``anchor``: only for the anchor register."""

    stored: Stored
    register: Register
    record: Record
    anchor: Anchor | None = None


def open_record(stored: Stored) -> Opened:
    """Decode and verify a journal message.

    Raises:
        BadInput: its subject is not a register. Damaged: its record cannot be trusted.
    """
    register = parse_register(stored.subject)
    if register.kind == "p.anchor":
        anchor, record = decode_anchor(stored.payload)
        return Opened(stored, register, record, anchor)
    return Opened(stored, register, decode(stored.payload))


def read(stored: Stored, body: type[T]) -> tuple[Record, T]:
    """The record in a message, and its body.

    Raises:
        Damaged: it cannot be trusted, or its body is not a ``body``; it names sequence and register. NewerSchema.
    """
    register = stored.subject.split(".", _PREFIX_TOKENS)[-1]
    try:
        record = decode(stored.payload)
        return record, read_body(record.body, body)
    except Damaged as error:
        raise type(error)(
            f"sequence {stored.sequence} ({register}): {error.message}",
            hint=error.hint,
            sequence=stored.sequence,
            register=register,
        ) from None


async def newest(bus: Bus, stream: str, subjects: Sequence[str]) -> dict[str, Stored]:
    """The last message of each subject that has one, at least as of this call.

    A write that was decided on a stale answer is fenced.  A refusal writes nothing, so only a current answer may refuse.

    Raises:
        Unavailable: no server has answered as of this call.
    """
    last = (await bus.stream_state(stream)).last_sequence
    for _ in range(STALE_ATTEMPTS_MAX):
        page = await bus.last(stream, subjects)
        if page.up_to >= last:
            return {each.subject: each for each in page.messages}
    raise Unavailable(f"no server has answered up to sequence {last} of {stream}")
