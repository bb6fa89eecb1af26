"""Anchor records as canonical JSON, so that any NATS tool can read the anchor in the journal and in the KV view.

The anchor's fields are at the top level; ``record`` is the envelope: ``format``, ``kind`` (why the
anchor changed), ``at_ms``, ``writer``, ``previous``, ``body`` (further content of the change) and ``digest``
(SHA-256 of the canonical JSON without it).
"""

from __future__ import annotations

import json
from typing import Any, Final

from anchorwatch.codec.canonical import canonical_json, sha256_hex
from anchorwatch.codec.records import RECORD_BYTES_MAX
from anchorwatch.codec.versions import FORMATS, SCHEMAS, Versions
from anchorwatch.core.anchor import ANCHOR_BYTES_MAX, Anchor, check_size, read_anchor
from anchorwatch.core.errors import Damaged, TooLarge
from anchorwatch.core.records import FORMAT, Record

_ENVELOPE: Final = ("kind", "at_ms", "writer", "body", "previous", "digest")


def encode_anchor(anchor: Anchor, record: Record) -> tuple[bytes, str]:
    """The bytes of an anchor record, and their digest in hexadecimal digits.

    Raises:
        TooLarge: the anchor is above 16 KiB, or the whole above 256 KiB.
    """
    content = anchor.to_json()
    envelope = {
        "format": FORMAT,
        "kind": record.kind,
        "at_ms": record.at_ms,
        "writer": record.writer,
        "previous": record.previous,
        "body": dict(record.body),
    }
    plain = canonical_json({**content, "record": envelope})
    digest = sha256_hex(plain)
    # Keys are sorted, so the digest precedes ``format``, and no later field of an anchor is named so.
    at = plain.rindex(b'"format":')
    data = plain[:at] + _digest_field(digest) + plain[at:]
    if len(data) > ANCHOR_BYTES_MAX:
        # Either the anchor or the rest of the record is too large.
        check_size(len(canonical_json(content)))
    if len(data) > RECORD_BYTES_MAX:
        raise TooLarge(f"an anchor record would be {len(data)} bytes, the limit is {RECORD_BYTES_MAX}")
    return data, digest


def decode_anchor(
    data: bytes,
    formats: Versions[Record] = FORMATS,
    schemas: Versions[dict[str, Any]] = SCHEMAS,
) -> tuple[Anchor, Record]:
    """Read an anchor record, check its digest, and lift it to the newest of ``formats`` and ``schemas``.

    Raises:
        NewerSchema: format or schema is newer than this release's. Damaged: it is cut, altered, or no anchor.
    """
    content = _checked(data)
    envelope = content.pop("record")
    formats.check(envelope.get("format"))
    try:
        record = Record(**{key: envelope[key] for key in _ENVELOPE})
    except KeyError as missing:
        raise Damaged(f"the envelope of the anchor record has no {missing}") from None
    if not isinstance(record.body, dict) or not all(
        isinstance(each, kind)
        for each, kind in (
            (record.kind, str),
            (record.at_ms, int),
            (record.writer, str),
            (record.previous, str),
        )
    ):
        raise Damaged("a field of the anchor record's envelope has another type than it must have")
    return lift_anchor(content, schemas), formats.lift(envelope["format"], record)


def lift_anchor(content: dict[str, Any], schemas: Versions[dict[str, Any]] = SCHEMAS) -> Anchor:
    """The anchor in stored fields, of whatever schema.

    Raises:
        NewerSchema: it is newer than this release's. Damaged: it breaks the schema that it names.
    """
    return read_anchor(schemas.lift(content.get("schema"), content))


def _checked(data: bytes) -> dict[str, Any]:
    """The fields and ``record`` beside them, once the digest was seen to fit.

    The bytes without the digest are those that it was made of: keys are sorted, so ``format`` follows it.
    """
    try:
        content = _PLAIN.decode(data.decode())
    except (ValueError, RecursionError):
        raise Damaged("the anchor record is not JSON") from None
    if not isinstance(content, dict) or not isinstance(content.get("record"), dict):
        raise Damaged("the anchor record has no envelope")
    digest = str(content["record"].get("digest"))
    before, written, behind = data.partition(_digest_field(digest))
    if not written or sha256_hex(before + behind) != digest:
        raise Damaged("the digest of the anchor record does not fit its bytes")
    return content


def _digest_field(digest: str) -> bytes:
    return f'"digest":"{digest}",'.encode()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_PLAIN: Final = json.JSONDecoder(parse_constant=_refuse)
