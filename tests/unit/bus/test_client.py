"""The client reads headers as nats-py does."""

from __future__ import annotations

from anchorwatch.bus.jetstream.client import Client
from hypothesis import given
from hypothesis import strategies as st
from nats.aio import client

ours = Client._parse_header_lines  # noqa: SLF001 - what it overrides has no other name
theirs = client.Client._parse_header_lines  # noqa: SLF001
REAL = (
    b"Nats-Stream: J\r\nNats-Subject: aw.journal.0.default.s.p.anchor\r\nNats-Time-Stamp: 2026-11-29T16:22:54.017123Z\r\n"
    b"Nats-Expected-Last-Subject-Sequence-Subject: aw.journal.0.default.s.p.>\r\nk:v\r\nempty:\r\n\r\n"
)
LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [b":", b" ", b"\t", b"a", b"\xc3\xa9", b"\xff", b"x y", b"\r", b"\n", b"\x1c", b"\x0b"]
        )
    )
)


def test_as_the_server_writes_them() -> None:
    assert ours(REAL) == theirs(REAL)
    assert ours(REAL)["Nats-Time-Stamp"] == "2026-11-29T16:22:54.017123Z"


@given(st.lists(LINES.map(b"".join)).map(b"\r\n".join))
def test_and_whatever_else_comes(raw: bytes) -> None:
    assert ours(raw) == theirs(raw)
