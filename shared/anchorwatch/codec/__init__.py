"""Encodes and decodes records: the only module that uses msgpack.

A record is a msgpack array ``[format, kind, at_ms, writer, previous, body, digest]``. ``body`` is packed
separately, as binary; ``digest`` is the SHA-256 of every byte before it, so any changed byte is detected. A
record of the anchor register is canonical JSON: the anchor's fields, and ``record`` with the
same envelope (see `anchors`). Canonical JSON here: keys sorted, no white space, UTF-8.
"""

from anchorwatch.codec.anchors import decode_anchor, encode_anchor, lift_anchor
from anchorwatch.codec.bodies import Call, OwnerPair, read_body, write_body
from anchorwatch.codec.canonical import canonical_json, sha256_hex
from anchorwatch.codec.records import decode, encode, pack, unpack

__all__ = [
    "Call",
    "OwnerPair",
    "canonical_json",
    "decode",
    "decode_anchor",
    "encode",
    "encode_anchor",
    "lift_anchor",
    "pack",
    "read_body",
    "sha256_hex",
    "unpack",
    "write_body",
]
