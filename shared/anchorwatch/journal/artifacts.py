"""Artifacts: immutable bytes in the object store, and one record of what they are and where they came from.

The id follows from who made it and from its content, so a retry of the same work finds its own artifact, and the
record is written once. The bytes are stored before the record: a record always has its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from anchorwatch.bus.port import Bus
from anchorwatch.codec import decode, encode, sha256_hex
from anchorwatch.core.errors import Damaged, NotFound, TooLarge
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import Committer
from anchorwatch.topology.streams import ARTIFACTS_STORE
from anchorwatch.topology.subjects import SessionSubjects

ARTIFACT_BYTES_MAX = 16 * 1024 * 1024
_ID_CHARS = 26


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an artifact comes from.

    ``maker`` names the work for ever (an effect key, an input's id); ``acting_as`` is the identity that it was done
    under; ``derived_from`` names the inputs and artifacts that went into it.
    """

    maker: str
    acting_as: str = ""
    run_id: int = 0
    call: str = ""
    derived_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """What the record of an artifact says."""

    artifact_id: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str
    provenance: Provenance

    def to_body(self) -> dict[str, Any]:
        """The body of the record."""
        origin = self.provenance
        return {
            "name": self.name,
            "media_type": self.media_type,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "maker": origin.maker,
            "acting_as": origin.acting_as,
            "run": origin.run_id,
            "call": origin.call,
            "derived_from": list(origin.derived_from),
        }

    @classmethod
    def from_body(cls, artifact_id: str, body: Mapping[str, Any]) -> Self:
        """Read the body of a record.

        Raises:
            Damaged: a field is missing or odd.
        """
        try:
            origin = Provenance(
                body["maker"], body["acting_as"], body["run"], body["call"], tuple(body["derived_from"])
            )
            return cls(
                artifact_id, body["name"], body["media_type"], body["size_bytes"], body["sha256"], origin
            )
        except (KeyError, TypeError) as error:
            raise Damaged(
                f"the record of artifact {artifact_id}: a field is missing or odd: {error!r}"
            ) from None


def artifact_id(maker: str, name: str, digest: str) -> str:
    """The id of what ``maker`` made under ``name`` with content ``digest``."""
    return "a-" + sha256(f"{maker}\x1f{name}\x1f{digest}".encode()).hexdigest()[:_ID_CHARS]


class ArtifactJournal:
    """Keeps artifacts and reads them. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._writer = writer

    async def keep(
        self, ref: SessionRef, name: str, media_type: str, data: bytes, origin: Provenance, *, at_ms: int
    ) -> Kept:
        """Store the bytes and their record; the same work and content again is the same artifact.

        Raises:
            TooLarge: above 16 MiB. Unavailable: not confirmed; asking again is safe.
        """
        if len(data) > ARTIFACT_BYTES_MAX:
            raise TooLarge(f"{name[:80]!r} is {len(data)} bytes, an artifact may have {ARTIFACT_BYTES_MAX}")
        digest = sha256_hex(data)
        kept = Kept(artifact_id(origin.maker, name, digest), name, media_type, len(data), digest, origin)
        store = await self._bus.object_store(ARTIFACTS_STORE)
        await store.put(_object_name(ref, kept.artifact_id), data)
        payload, _ = encode(Record(Kind.ARTIFACT, at_ms, self._writer, kept.to_body()))
        await self._committer.write_once(SessionSubjects(ref).artifact(kept.artifact_id), payload)
        return kept

    async def read(self, ref: SessionRef, artifact_id: str) -> tuple[Kept, bytes]:
        """What is recorded, and the bytes, checked against the recorded digest.

        Raises:
            NotFound: there is no such artifact. Damaged: the bytes are gone or altered.
        """
        page = await self._bus.last(self._committer.stream, [SessionSubjects(ref).artifact(artifact_id)])
        if not page.messages:
            raise NotFound(f"there is no artifact {artifact_id[:80]} in session {ref.session}")
        kept = Kept.from_body(artifact_id, decode(page.messages[0].payload).body)
        store = await self._bus.object_store(ARTIFACTS_STORE)
        data = await store.get(_object_name(ref, artifact_id))
        if data is None or sha256_hex(data) != kept.sha256:
            raise Damaged(f"the content of artifact {artifact_id} is gone or was altered")
        return kept, data


def _object_name(ref: SessionRef, artifact_id: str) -> str:
    return f"{ref.workspace}/{ref.session}/{artifact_id}"
