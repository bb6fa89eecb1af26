"""Records as msgpack. Wire format: docs/wire-format.md."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from anchorwatch.codec.versions import FORMATS, Versions
from anchorwatch.core.errors import Damaged, TooLarge
from anchorwatch.core.records import FORMAT, Record

RECORD_BYTES_MAX: Final = 256 * 1024
_FIELDS: Final = 7
# The digest is the last element, 32 bytes behind a two-byte msgpack head (bin 8).
_TAIL: Final = 34


def pack(value: Any) -> bytes:  # noqa: ANN401 - any value that msgpack has a form for
    """Pack plain data (maps, lists, strings, bytes, numbers, booleans, None)."""
    return msgpack.packb(value, use_bin_type=True)  # type: ignore[no-any-return]


def unpack(data: bytes) -> Any:  # noqa: ANN401 - whatever was packed
    """Unpack plain data.

    Raises:
        Damaged: the bytes are not msgpack, or further bytes follow.
    """
    try:
        return msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise Damaged(f"not msgpack: {error}") from None


def encode(record: Record) -> tuple[bytes, str]:
    """The record's bytes, and their digest in hexadecimal digits.

    Raises:
        TooLarge: above 256 KiB; larger content belongs into an artifact.
    """
    fields = [
        FORMAT,
        record.kind,
        record.at_ms,
        record.writer,
        bytes.fromhex(record.previous),
        pack(dict(record.body)),
        b"\0" * 32,
    ]
    head = pack(fields)[:-_TAIL]
    digest = _digest(head)
    data = head + pack(digest)
    if len(data) > RECORD_BYTES_MAX:
        raise TooLarge(
            f"a {record.kind} record would be {len(data)} bytes, the limit is {RECORD_BYTES_MAX}",
            hint="keep large content as an artifact",
        )
    return data, digest.hex()


def decode(data: bytes, formats: Versions[Record] = FORMATS) -> Record:
    """Read a record, check its digest, and lift it to the newest of ``formats``.

    Raises:
        NewerSchema: its format is newer than this release's. Damaged: it is cut, altered, or no record.
    """
    fields = unpack(data)
    if not isinstance(fields, list) or not fields:
        raise Damaged("not a record")
    digest = fields[-1]
    if not isinstance(digest, bytes) or data[-_TAIL:] != pack(digest) or _digest(data[:-_TAIL]) != digest:
        raise Damaged("the digest of the record does not fit its bytes")
    # A newer format may have more fields than are known here.
    found = formats.check(fields[0])
    if len(fields) != _FIELDS:
        raise Damaged(f"a record has {_FIELDS} fields, this has {len(fields)}")
    _, kind, at_ms, writer, previous, body, _ = fields
    if not (
        isinstance(kind, str)
        and isinstance(at_ms, int)
        and isinstance(writer, str)
        and isinstance(previous, bytes)
        and isinstance(body, bytes)
    ):
        raise Damaged("a field of the record has another type than it must have")
    content = unpack(body)
    if not isinstance(content, Mapping):
        raise Damaged("the body of the record is not a map")
    return formats.lift(found, Record(kind, at_ms, writer, content, previous.hex(), digest.hex()))


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).digest()
