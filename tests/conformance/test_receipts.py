"""A receipt lasts: it does not depend on the server's dedupe window, which serves quick retries only."""

from __future__ import annotations

import pytest
from anchorwatch.bus.port import Bus, Stored
from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.errors import IdempotencyConflict
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.commit import DEADLINE_S, Committer
from anchorwatch.journal.inputs import Receipt, accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.topology.streams import StreamSpec

from tests.conformance.worlds import World

WINDOW_S = 0.5


class JournalBeside(Committer):
    """Writes to a stream with a short window and other subjects than the journal's."""

    async def write_once(
        self, subject: str, payload: bytes, deadline_s: float = DEADLINE_S
    ) -> tuple[Stored, bool]:
        return await super().write_once(f"{self.stream}.{subject}", payload, deadline_s)


async def say(bus: Bus, ref: SessionRef, stream: str, at_ms: int, text: str = "hello") -> Receipt:
    """Accept as a newly started gateway does, without a cache."""
    body = input_body("message", 0, text=text, body_sha256=sha256_hex(canonical_json(text)))
    return await accept(
        JournalBeside(bus, stream), ref, "k-1", body, at_ms=at_ms, writer=f"gateway at {at_ms}"
    )


async def test_key_has_its_first_receipt_after_the_dedupe_window(bus: Bus, world: World) -> None:
    stream = world.stream("J")
    ref = SessionRef("default", "fleet")
    spec = StreamSpec(stream, (f"{stream}.>",), dedupe_window_s=WINDOW_S, atomic_batches=True)
    await bus.ensure_stream(spec)
    first = await say(bus, ref, stream, 1_000)
    for n in range(2, 5):
        await world.advance(3 * WINDOW_S)
        again = await say(await world.connect(), ref, stream, n * 1_000)
        assert again == Receipt(
            first.input_id, first.session, first.sequence, first.accepted_at_ms, replayed=True
        )
        with pytest.raises(IdempotencyConflict) as conflict:
            await say(await world.connect(), ref, stream, n * 1_000, "another body")
        assert conflict.value.first_body_sha256 == sha256_hex(canonical_json("hello"))
    assert (await bus.stream_state(stream)).messages == 1
