"""Accepting an input: the first write wins, for ever, and everyone who asks again gets the same receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from anchorwatch.bus.port import Expect
from anchorwatch.codec import decode, encode
from anchorwatch.core.errors import Fenced, IdempotencyConflict
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import DEADLINE_S, Committer, Write
from anchorwatch.topology.subjects import SessionSubjects

_ID_CHARS = 26


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that an input was accepted. ``replayed``: it had been before."""

    input_id: str
    session: str
    sequence: int
    accepted_at_ms: int
    replayed: bool


def input_id(origin: str, *identity: str) -> str:
    """The id of an input from its own identity (never from its body): ``ev-…`` for an event, ``k-…`` for an idempotency key."""
    digest = sha256("\x1f".join(identity).encode()).hexdigest()
    return f"{origin}-{digest[:_ID_CHARS]}"


async def accept(
    committer: Committer,
    ref: SessionRef,
    id_: str,
    body: Mapping[str, Any],
    *,
    at_ms: int,
    writer: str,
    deadline_s: float = DEADLINE_S,
) -> Receipt:
    """Append an input (body: `mapping.input_body`), or find the stored one.

    Raises:
        IdempotencyConflict: the id was used with another request body.
        Unavailable: not confirmed in time; asking again with the same id is safe.
    """
    payload, _ = encode(Record(Kind.INPUT, at_ms, writer, body))
    stored, ours = await committer.write_once(SessionSubjects(ref).input(id_), payload, deadline_s)
    if ours:
        return Receipt(id_, ref.session, stored.sequence, at_ms, replayed=False)
    first = decode(stored.payload)
    if first.body["body_sha256"] != body["body_sha256"]:
        raise IdempotencyConflict(
            f"the key of input {id_} was used before with another body",
            hint="use a new key for a new request",
            first_body_sha256=first.body["body_sha256"],
        )
    return Receipt(id_, ref.session, stored.sequence, first.at_ms, replayed=True)


async def accept_together(
    committer: Committer,
    ref: SessionRef,
    given: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    at_ms: int,
    writer: str,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Append several inputs, (id, body) each, in this order: all of them if none is stored yet, or none.

    A burst costs a few syncs of the disk so, in place of one for each of its inputs.

    Raises:
        Fenced: some of them stand, or are given twice; `accept` tells of each by itself. Unavailable: as there.
    """
    subjects = [SessionSubjects(ref).input(id_) for id_, _ in given]
    if len(set(subjects)) < len(subjects):
        raise Fenced("an input is given twice")
    writes = [
        Write(subject, encode(Record(Kind.INPUT, at_ms, writer, body))[0], Expect(subject, 0))
        for subject, (_, body) in zip(subjects, given, strict=True)
    ]
    await committer.commit(writes, Expect(subjects[0], 0), deadline_s)
