"""Anchor records as canonical JSON, so that any NATS tool can read the anchor in the journal and in the KV view.

The anchor's fields stand at the top; ``record`` beside them is the envelope: ``format``, ``kind`` (why the
anchor changed), ``at_ms``, ``writer``, ``previous``, ``body`` (what else belongs to the change) and ``digest``
(SHA-256 of the canonical JSON without it).
"""

from __future__ import annotations

import json
from dataclasses import replace

from anchorwatch.codec.canonical import canonical_json, sha256_hex
from anchorwatch.codec.records import RECORD_BYTES_MAX
from anchorwatch.core.anchor import Anchor, check_size, read_anchor
from anchorwatch.core.errors import Damaged, NewerSchema, TooLarge
from anchorwatch.core.records import FORMAT, Record


def encode_anchor(anchor: Anchor, record: Record) -> tuple[bytes, Record]:
    """The bytes of an anchor record, and the record with its digest.

    Raises:
        TooLarge: the anchor is above 16 KiB, or the whole above 256 KiB.
    """
    content = anchor.to_json()
    check_size(len(canonical_json(content)))
    envelope = {
        "format": FORMAT,
        "kind": record.kind,
        "at_ms": record.at_ms,
        "writer": record.writer,
        "previous": record.previous,
        "body": dict(record.body),
    }
    digest = sha256_hex(canonical_json({**content, "record": envelope}))
    data = canonical_json({**content, "record": {**envelope, "digest": digest}})
    if len(data) > RECORD_BYTES_MAX:
        raise TooLarge(f"an anchor record would be {len(data)} bytes, the limit is {RECORD_BYTES_MAX}")
    return data, replace(record, digest=digest)


def decode_anchor(data: bytes) -> tuple[Anchor, Record]:
    """Read an anchor record and check its digest and schema.

    Raises:
        NewerSchema: format or schema is newer than this release's. Damaged: it is cut, altered, or no anchor.
    """
    try:
        content = json.loads(data)
    except ValueError:
        raise Damaged("the anchor record is no JSON") from None
    envelope = content.pop("record", None) if isinstance(content, dict) else None
    if not isinstance(envelope, dict) or not isinstance(envelope.get("format"), int):
        raise Damaged("the anchor record has no envelope")
    if envelope["format"] > FORMAT:
        raise NewerSchema(
            f"the anchor record has format {envelope['format']}, this release reads up to {FORMAT}",
            hint="upgrade this process",
        )
    digest = envelope.pop("digest", None)
    try:
        record = Record(
            digest=str(digest),
            **{key: envelope[key] for key in ("kind", "at_ms", "writer", "body", "previous")},
        )
    except KeyError as missing:
        raise Damaged(f"the envelope of the anchor record has no {missing}") from None
    whole = {**content, "record": {**envelope, "digest": digest}}
    if sha256_hex(canonical_json({**content, "record": envelope})) != digest or canonical_json(whole) != data:
        raise Damaged(f"the digest of the anchor record ({record.kind[:40]}) does not fit its bytes")
    return read_anchor(content), record


def anchor_kind(data: bytes) -> str:
    """Why an anchor changed, without checking the rest: for consumers that pass most of them by.

    Raises:
        Damaged: the bytes are no anchor record.
    """
    try:
        return str(json.loads(data)["record"]["kind"])
    except (ValueError, KeyError, TypeError):
        raise Damaged("the anchor record has no envelope") from None
