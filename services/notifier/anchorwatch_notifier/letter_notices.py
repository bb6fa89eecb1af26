"""Notices from dead letters. Pure: a record gives at most one notice."""

from __future__ import annotations

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.letters import read_letter
from anchorwatch.topology.streams import DEAD

from anchorwatch_notifier.notices import NO_SESSION, Notice

SERVICE = "notifier"


def read_letter_notice(stored: Stored) -> Notice | None:
    """The notice of an opened letter; None for other records, and for the notifier's own letters, which it could not send.

    Raises:
        Damaged: the record is unreadable.
    """
    letter = read_letter(stored).letter
    if letter is None or letter.state != "open" or letter.address.service == SERVICE:
        return None
    address = letter.address
    record = decode(stored.payload)
    where = f" of {address.session}" if address.session else ""
    return Notice(
        ref=SessionRef(address.workspace, address.session or NO_SESSION),
        sequence=stored.sequence,
        at_ms=record.at_ms,
        digest=record.digest,
        kinds=("dead_letter",),
        severity="critical",
        title=f"a {address.handler}{where} cannot be handled by the {address.service}, after {letter.tries} tries",
        text=f"{letter.fault.code}: {letter.fault.text}",
        data={"letter": address.letter_id, "service": address.service, "error": letter.fault.code},
        stream=DEAD,
    )
