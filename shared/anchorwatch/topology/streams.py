"""Every stream and bucket, as data. The bus creates them, or checks their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from anchorwatch.topology import subjects

KIB = 1024
RECORD_BYTES_MAX = 256 * KIB
ANCHOR_BYTES_MAX = 16 * KIB
DEDUPE_WINDOW_S = 120.0
DEDUPE_WINDOW_S_MIN = 0.1
"""The smallest window that the server accepts; it cannot be turned off."""
EVENTS_AGE_MAX_S = 30 * 24 * 3600.0
EVENTS_BYTES_MAX = 1024 * 1024 * KIB

EVENTS = "EVENTS"
TICKS = "TICKS"
DEAD = "DEAD"
AGENTS_BUCKET = "agents"
ANCHORS_BUCKET = "anchors"
LEASES_BUCKET = "leases"
MODELS_BUCKET = "models"
ARTIFACTS_STORE = "artifacts"


FORMAT_KEY: Final = "anchorwatch-format"
SHARDS_KEY: Final = "anchorwatch-shards"
SHARDS: Final = 1
STORE_FORMAT: Final = 1
"""Version of subjects and records together. A store of another version is refused, not converted."""
MADE_AS: Final[Mapping[str, str]] = {FORMAT_KEY: str(STORE_FORMAT), SHARDS_KEY: str(SHARDS)}
"""What the journal's stream says of the mesh that it was made for."""


def journal_stream() -> str:
    """The name of the stream that holds the journal."""
    return f"JOURNAL_{subjects.SHARD}"


def bucket_stream(bucket: str) -> str:
    """The name of a bucket's stream."""
    return f"KV_{bucket}"


@dataclass(frozen=True, slots=True)
class Source:
    """Messages that the server copies from another stream under changed subjects."""

    stream: str
    src: str
    dest: str


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of a stream. Age in seconds; 0 or -1: unlimited.

    At ``bytes_max`` the server refuses new messages: it never removes an old one, which may not have been read yet.
    """

    bytes_max: int = -1
    age_max_s: float = 0
    message_bytes_max: int = -1


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream. Ages and windows in seconds; 0 or -1: unlimited. Always file storage.

    ``adjustable``: an existing stream may have other limits (`Bus.set_limits`). ``metadata`` is stored with the stream when it
    is made, and never changed.
    """

    name: str
    subjects: tuple[str, ...] = ()
    bytes_max: int = -1
    message_bytes_max: int = -1
    age_max_s: float = 0
    adjustable: bool = False
    per_subject_max: int = -1
    dedupe_window_s: float = DEDUPE_WINDOW_S
    atomic_batches: bool = False
    schedules: bool = False
    message_ttl: bool = False
    work_queue: bool = False
    sources: tuple[Source, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def limits(self) -> StreamLimits:
        return StreamLimits(self.bytes_max, self.age_max_s, self.message_bytes_max)

    def with_limits(self, limits: StreamLimits) -> StreamSpec:
        return replace(
            self,
            bytes_max=limits.bytes_max,
            age_max_s=limits.age_max_s,
            message_bytes_max=limits.message_bytes_max,
        )


@dataclass(frozen=True, slots=True)
class BucketSpec:
    """A key-value bucket. ``sources`` makes it a view that the server keeps from a stream."""

    name: str
    history: int = 1
    key_ttl: bool = False
    sources: tuple[Source, ...] = ()


# No rollups: any permitted publisher could wipe the stream with one header.
JOURNAL_SPEC = StreamSpec(
    name=journal_stream(),
    subjects=(subjects.JOURNAL_ALL,),
    # Room for the record and its headers.
    message_bytes_max=RECORD_BYTES_MAX + 4 * KIB,
    atomic_batches=True,
    metadata=MADE_AS,
)
EVENTS_SPEC = StreamSpec(
    name=EVENTS,
    subjects=(subjects.EVENT_ALL,),
    bytes_max=EVENTS_BYTES_MAX,
    message_bytes_max=RECORD_BYTES_MAX,
    age_max_s=EVENTS_AGE_MAX_S,
    adjustable=True,
    # The window is one for all publishers and workspaces: two that both count from 1 would lose events. The observer decides
    # what the same event is, by its content (INV-109).
    dedupe_window_s=DEDUPE_WINDOW_S_MIN,
)
# Schedules have their own stream: a user who may publish to such a stream can forge any subject of it.
# A tick says "read the session"; of several pending ones the last suffices.
TICKS_SPEC = StreamSpec(
    name=TICKS, subjects=("aw.tick.>",), per_subject_max=1, schedules=True, message_ttl=True
)
# A record holds the whole letter, so the last record of each suffices.
DEAD_SPEC = StreamSpec(
    name=DEAD,
    subjects=("aw.dead.>",),
    message_bytes_max=RECORD_BYTES_MAX,
    per_subject_max=1,
    message_ttl=True,
)

STREAMS: tuple[StreamSpec, ...] = (
    JOURNAL_SPEC,
    EVENTS_SPEC,
    TICKS_SPEC,
    DEAD_SPEC,
)

BUCKETS: tuple[BucketSpec, ...] = (
    BucketSpec(name=AGENTS_BUCKET, history=16),
    BucketSpec(
        name=ANCHORS_BUCKET,
        sources=(
            Source(
                stream=journal_stream(),
                src=subjects.ANCHORS.filter(),
                dest=f"$KV.{ANCHORS_BUCKET}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}",
            ),
        ),
    ),
    BucketSpec(name=LEASES_BUCKET, key_ttl=True),
    BucketSpec(name=MODELS_BUCKET),
)

OBJECT_STORES: tuple[str, ...] = (ARTIFACTS_STORE,)
