"""The client reads and writes the same bytes as nats-py."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlparse

import pytest
from anchorwatch.bus.jetstream.client import (
    UNSENT_BYTES_MAX,
    FastClient,
    PlainClient,
    absent_names,
    new_client,
)
from anchorwatch.bus.jetstream.connection import close_client
from anchorwatch.bus.jetstream.wire import Tap, read_headers, read_lines, write_headers, write_message
from anchorwatch.core.errors import BadSettings
from hypothesis import example, given
from hypothesis import strategies as st
from nats import errors
from nats.aio import client
from nats.aio.client import Srv
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import Transport

theirs = client.Client._parse_header_lines  # noqa: SLF001 - what is spared has no other name
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
NAMES = st.text("abN-_ ", max_size=6)
VALUES = st.text("a é\r\n\t:", max_size=8)
STATUSES = (
    b"NATS/1.0 404 No Results\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-UpTo-Sequence: 12\r\n\r\n",
    b"NATS/1.0 408 Requests Pending\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n",
    b"NATS/1.0\r\nk: v\r\n\r\n",
)


def test_headers_of_the_server_are_read() -> None:
    assert read_lines(REAL) == theirs(REAL)
    assert read_lines(REAL)["Nats-Time-Stamp"] == "2026-11-29T16:22:54.017123Z"


@given(st.lists(LINES.map(b"".join)).map(b"\r\n".join))
def test_arbitrary_headers_are_read_as_nats_py_does(raw: bytes) -> None:
    assert read_lines(raw) == theirs(raw)


@pytest.mark.parametrize("raw", STATUSES)
async def test_status_is_read_as_a_header(raw: bytes) -> None:
    assert read_headers(raw) == await client.Client()._process_headers(raw)  # noqa: SLF001


class Written(client.Client):
    """nats-py's client, up to the bytes that it would send."""

    async def _send_command(self, cmd: bytes, *_: bool) -> None:
        self.command = cmd


@given(st.dictionaries(NAMES, VALUES), st.text("s.é ", max_size=4), st.sampled_from(["", "r.1", "r 1"]))
def test_sent_bytes_equal_those_of_nats_py(headers: Mapping[str, str], subject: str, reply: str) -> None:
    there = Written()
    there._status = client.Client.CONNECTED  # noqa: SLF001
    try:
        asyncio.run(there.publish(subject, b"data", reply, dict(headers) or None))
    except (errors.BadSubjectError, errors.BadHeaderError):
        with pytest.raises((errors.BadSubjectError, errors.BadHeaderError)):
            write_message(subject, reply, write_headers(headers) if headers else b"", b"data")
    else:
        lines = write_headers(headers) if headers else b""
        assert write_message(subject, reply, lines, b"data") == bytes(there.command)


class Behind(asyncio.Protocol):
    """Records the bytes that are passed on."""

    def __init__(self) -> None:
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        self.seen += data


WANTED, UNWANTED = 7, 8
MESSAGES = st.tuples(
    st.sampled_from([WANTED, UNWANTED]),
    st.sampled_from([b"", b"reply.1"]),
    st.sampled_from([b"", b"NATS/1.0\r\nk: v\r\n\r\n"]),
    st.sampled_from([b"", b"x", b"MSG a 7 1\r\n", b"\r\n", b"y" * 40]),
)
OTHERS = st.sampled_from([b"PING\r\n", b"+OK\r\n", b'INFO {"a": 1}\r\n', b"MSG nonsense\r\n", b"\r\n"])


def _wire(sid: int, reply: bytes, headers: bytes, data: bytes) -> bytes:
    arguments = [b"HMSG" if headers else b"MSG", b"s.1", b"%d" % sid, *([reply] if reply else [])]
    sizes = [b"%d" % len(headers)] if headers else []
    line = b" ".join((*arguments, *sizes, b"%d" % (len(headers) + len(data))))
    return line + b"\r\n" + headers + data + b"\r\n"


@pytest.mark.parametrize(
    "subject", [b"s.a\x0bb", b"s.\x0c", b"s.\x1c7", b"s.a\xff\x85", b"s.\xe2\x80\xa8", b"s.\x00"]
)
def test_subject_of_any_bytes_is_read(subject: bytes) -> None:
    """The server lets a publisher put them there; nats-py closes the connection at some of them."""
    taken: list[bytes] = []

    def deliver(_: int, its: bytes, *rest: bytes) -> bool:
        taken.append(its)
        return rest[1] == b"x"

    tap = Tap(Behind(), deliver)
    tap.data_received(
        b"MSG " + subject + b" 7 r.1 1\r\nx\r\nHMSG " + subject + b" 7 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    )
    assert taken == [subject, subject]


@given(st.lists(st.one_of(MESSAGES, OTHERS), max_size=6), st.lists(st.integers(1, 200), max_size=8))
@example([(WANTED, b"", b"", b""), b"PING\r\n", (WANTED, b"", b"", b"x")], list(range(200)))
@example([(WANTED, b"", b"", b"x")], [len(_wire(WANTED, b"", b"", b"x")) - 2])
def test_messages_are_parsed_at_any_split(
    sent: list[tuple[int, bytes, bytes, bytes] | bytes], cuts: list[int]
) -> None:
    taken: list[tuple[int, bytes, bytes, bytes]] = []

    def deliver(sid: int, _: bytes, reply: bytes, data: bytes, headers: bytes) -> bool:
        if sid == WANTED:
            taken.append((sid, reply, headers, data))
        return sid == WANTED

    behind = Behind()
    tap = Tap(behind, deliver)
    raw = b"".join(each if isinstance(each, bytes) else _wire(*each) for each in sent)
    places = [0, *sorted({min(cut, len(raw)) for cut in cuts}), len(raw)]
    for first, last in pairwise(places):
        tap.data_received(raw[first:last])
    assert taken == [each for each in sent if not isinstance(each, bytes) and each[0] == WANTED]
    rest = [each for each in sent if isinstance(each, bytes) or each[0] != WANTED]
    assert behind.seen == b"".join(each if isinstance(each, bytes) else _wire(*each) for each in rest)


class Receiver:
    """A receiver that a weak reference can observe."""

    def __call__(self, message: Msg) -> None:
        del message


async def test_one_bad_message_does_not_end_reading() -> None:
    here = FastClient()
    subscription = Subscription(here, 1)
    here._subs[1] = subscription  # noqa: SLF001
    errors_seen: list[Exception] = []

    def receive(message: Msg) -> None:
        raise ValueError(message.subject)

    here.receive_directly(subscription, receive, errors_seen.append)
    assert here.deliver(1, b"s", b"", b"x", b"")
    assert [str(error) for error in errors_seen] == ["s"]


@given(st.binary(max_size=12), st.binary(max_size=12), st.binary(max_size=24))
def test_message_with_arbitrary_bytes_is_delivered(subject: bytes, reply: bytes, rest: bytes) -> None:
    here, taken = FastClient(), list[Msg]()
    here._subs[1] = Subscription(here, 1)  # noqa: SLF001
    here.receive_directly(here._subs[1], taken.append, pytest.fail)  # type: ignore[arg-type]  # noqa: SLF001
    assert here.deliver(1, subject, reply, b"x", b"NATS/1.0" + rest)
    assert [each.data for each in taken] == [b"x"]


async def test_ended_subscription_leaves_no_state() -> None:
    here = FastClient()
    here._subs[1] = Subscription(here, 1)  # noqa: SLF001
    receiver_ref = weakref.ref(receive := Receiver())
    here.receive_directly(here._subs[1], receive, pytest.fail)  # type: ignore[arg-type]  # noqa: SLF001
    here._remove_sub(1)  # noqa: SLF001 - as nats-py does when it unsubscribes
    del receive
    assert receiver_ref() is None


async def test_unsent_bytes_wait_for_the_next_connection() -> None:
    async with await asyncio.start_server(lambda _, there: there.close(), "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        here = FastClient()
        here._transport = cast("Transport", SimpleNamespace(_io_writer=writer))  # noqa: SLF001 - as nats-py holds it
        here._status = FastClient.CONNECTED  # noqa: SLF001
        assert here.send_soon("s", b"x", "", b"")
        writer.close()
        await asyncio.sleep(0)
        assert here.pending_data_size > 0
        assert not here.send_soon("s", b"x", "", b"")


async def test_slow_socket_bounds_unsent_bytes_and_keeps_order() -> None:
    reads, seen = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        await reads.wait()
        seen.set_result(await reader.read(-1))
        there.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        here = FastClient()
        here._transport = cast("Transport", SimpleNamespace(_io_writer=writer))  # noqa: SLF001 - as nats-py holds it
        here._status = FastClient.CONNECTED  # noqa: SLF001
        sent = list[bytes]()
        while here.send_soon("s", payload := b"%04d" % len(sent) + bytes(UNSENT_BYTES_MAX), "", b""):
            sent.append(write_message("s", "", b"", payload))
            assert len(sent) < 1_000, "the client sends without a reader"
            await asyncio.sleep(0)
        assert here.pending_data_size == 0
        reads.set()
        writer.close()
        assert await seen == b"".join(sent)


def test_fast_client_fits_the_pinned_nats_py() -> None:
    assert absent_names() == ()
    assert isinstance(new_client(plain=False), FastClient)


def test_absent_private_names_leave_the_plain_client(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(client.Client):
        def __init__(self) -> None:
            super().__init__()
            del self._pongs

    absent = absent_names(Later)
    assert absent == ("_pongs",)
    monkeypatch.setattr("anchorwatch.bus.jetstream.client.ABSENT_NAMES", absent)
    with pytest.raises(BadSettings, match="lacks _pongs") as refused:
        new_client(plain=False)
    assert "ANCHORWATCH_NATS_CLIENT=plain" in str(refused.value.hint)
    assert not isinstance(new_client(plain=True), FastClient)


async def test_plain_client_queues_nothing_itself() -> None:
    here = PlainClient()
    assert not here.send_soon("s", b"x", "", b"")
    assert here.pending_data_size == 0


class Lost:
    """The transport of a connection that was lost, as asyncio's is since Python 3.12."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def writelines(self, _: list[bytes]) -> None:
        raise self._error

    def __bool__(self) -> bool:
        return True


@pytest.mark.parametrize("error", [TypeError("not callable"), AttributeError("None has no _add_writer")])
@pytest.mark.parametrize("plain", [False, True])
async def test_close_of_a_lost_connection_raises_nothing(error: Exception, *, plain: bool) -> None:
    here = new_client(plain=plain)
    here._flush_queue = asyncio.Queue()  # noqa: SLF001
    here._flusher_task = asyncio.create_task(asyncio.Event().wait())  # noqa: SLF001
    here._current_server = Srv(urlparse("nats://127.0.0.1:1"))  # noqa: SLF001
    here._transport = cast("Transport", Lost(error))  # noqa: SLF001
    here._pending, here._pending_data_size = [b"PING\r\n"], 6  # noqa: SLF001
    here._status = FastClient.CONNECTED  # noqa: SLF001
    await close_client(here)
    assert here.is_closed
    assert here._flusher_task.cancelled()  # noqa: SLF001
