"""Journal messages that were read and checked: what every reader of the whole journal begins with."""

from __future__ import annotations

from dataclasses import dataclass

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode, decode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.records import Record
from anchorwatch.topology.subjects import Register, parse_register

# What a decoded record of an odd shape raises when its fields are used.
ODD = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Opened:
    """A journal message whose bytes were read and checked. ``anchor``: of the anchor register alone."""

    stored: Stored
    register: Register
    record: Record
    anchor: Anchor | None = None


def open_record(stored: Stored) -> Opened:
    """Read a message of the journal.

    Raises:
        BadInput: its subject is no register. Damaged: it cannot be trusted.
    """
    register = parse_register(stored.subject)
    if register.kind == "p.anchor":
        anchor, record = decode_anchor(stored.payload)
        return Opened(stored, register, record, anchor)
    return Opened(stored, register, decode(stored.payload))
