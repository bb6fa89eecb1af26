"""nats-py's client: the plain one, and one with a fast path and two repaired faults.

All uses of nats-py's private names are in this file. `ABSENT_NAMES` compares them with the installed version at import;
`pyproject.toml` pins the minor version. `PlainClient`
(``ANCHORWATCH_NATS_CLIENT=plain``) needs none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from nats import errors
from nats.aio import client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from anchorwatch.bus.jetstream.wire import Tap, read_headers, text, write_message
from anchorwatch.core.errors import BadSettings

UNSENT_BYTES_MAX = 65_536
"""Above this number of unsent bytes, nats-py's own publish is used, which waits for the socket."""

LOST_CONNECTION = (OSError, RuntimeError, AttributeError, TypeError, errors.Error)
"""The errors of a lost connection: RuntimeError from uvloop, AttributeError and TypeError from asyncio since Python 3.12."""

Receive = Callable[[Msg], None]

_OVERRIDDEN = (
    "_attempt_reconnect",
    "_process_msg",
    "_process_op_err",
    "_process_pong",
    "_read_loop",
    "_remove_sub",
)
_STATE = ("_flush_queue", "_pending", "_pending_data_size", "_pongs", "_status", "_transport")
_TASKS = ("_flusher_task", "_ping_interval_task", "_reading_task", "_reconnection_task")


def absent_names(library: type[client.Client] = client.Client) -> tuple[str, ...]:
    """The private names that `FastClient` needs and the installed nats-py lacks."""
    needed: tuple[tuple[object, tuple[str, ...]], ...] = (
        (library, _OVERRIDDEN),
        (library(), (*_STATE, *_TASKS)),
        (TcpTransport(), ("_io_reader", "_io_writer")),  # type: ignore[no-untyped-call]  # nats-py
        (Subscription(library()), ("_id", "_wait_for_msgs_task")),
    )
    return tuple(name for owner, names in needed for name in names if not hasattr(owner, name))


ABSENT_NAMES = absent_names()


def new_client(*, plain: bool) -> PlainClient:
    """A client that is not connected yet.

    Raises:
        BadSettings: the fast path does not fit the installed nats-py.
    """
    if plain:
        return PlainClient()
    if ABSENT_NAMES:
        raise BadSettings(
            f"nats-py {version('nats-py')} lacks {', '.join(ABSENT_NAMES)}, which the fast path uses",
            hint="install nats-py 2.16, or set ANCHORWATCH_NATS_CLIENT=plain",
        )
    return FastClient()


class PlainClient(client.Client):
    """nats-py as released: every message passes a queue and a task, and its faults in reconnecting remain."""

    def receive_directly(
        self, subscription: Subscription, receive: Receive, failed: Callable[[Exception], None]
    ) -> None:
        """Call ``receive`` for each message as it is read, where the client can. It must not block.

        ``failed`` gets what ``receive`` raises. Without this the subscription's own callback runs.
        """

    def send_soon(self, subject: str, payload: bytes, reply: str, headers: bytes) -> bool:
        """Queue a message for the socket without waiting. False: call `publish`, which waits for room.

        Raises:
            BadSubjectError: ``subject`` or ``reply`` is not valid.
        """
        del subject, payload, reply, headers
        return False

    def own_tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks of nats-py, which it cancels when it closes and does not await."""
        tasks = [getattr(self, name, None) for name in _TASKS]
        tasks += [subscription_task(each) for each in getattr(self, "_subs", {}).values()]
        return [task for task in tasks if task is not None]


def subscription_task(subscription: Subscription) -> asyncio.Task[Any] | None:
    """The task that runs the subscription's callback."""
    task: asyncio.Task[Any] | None = getattr(subscription, "_wait_for_msgs_task", None)
    return task


class FastClient(PlainClient):
    """Reads messages without a queue and a task, writes once per round of the loop, and always reconnects."""

    def __init__(self) -> None:
        super().__init__()
        self._write_is_scheduled = False
        self._receivers: dict[int, tuple[Receive, Callable[[Exception], None]]] = {}

    # Receiving.

    def receive_directly(
        self, subscription: Subscription, receive: Receive, failed: Callable[[Exception], None]
    ) -> None:
        self._receivers[subscription._id] = receive, failed  # noqa: SLF001

    def deliver(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> bool:
        """Hand a message to its receiver. False: its subscription has none."""
        receiver = self._receivers.get(sid)
        if receiver is None:
            return False
        receive, failed = receiver
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        message = Msg(self, text(subject), text(reply), data, read_headers(headers))
        try:
            receive(message)
        except Exception as error:  # noqa: BLE001 - one bad message must not end the reading of all
            failed(error)
        return True

    async def _read_loop(self) -> None:
        reader = getattr(self._transport, "_io_reader", None)
        writer = getattr(self._transport, "_io_writer", None)
        unread = getattr(reader, "_buffer", b"?")
        # nats-py must read to its end a line that it has read in part. No message has arrived yet.
        if writer is not None and (not unread or unread.endswith(b"\r\n")):
            transport = writer.transport
            transport.set_protocol(Tap(transport.get_protocol(), self.deliver))
        await super()._read_loop()
        task = asyncio.current_task()
        if self.is_connected and not (task and task.cancelling()):
            # It ended at a fault: without a reader the connection only looks alive.
            await self._process_op_err(errors.ProtocolError())

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if not self.deliver(sid, subject, reply, data, headers):
            await super()._process_msg(sid, subject, reply, data, headers)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self._receivers.pop(sid, None)

    # Sending.

    def send_soon(self, subject: str, payload: bytes, reply: str, headers: bytes) -> bool:
        if self._writable() is None:
            return False
        command = write_message(subject, reply, headers, payload)
        self._pending.append(command)
        self._pending_data_size += len(command)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        if not self._write_is_scheduled:
            self._write_is_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_pending)
        return True

    def _write_pending(self) -> None:
        """Write all that is pending: what many tasks send in one round of the loop is one system call."""
        self._write_is_scheduled = False
        if not self._pending:
            return
        if (writer := self._writable()) is not None:
            writer.write(b"".join(self._pending))
            self._pending = []
            self._pending_data_size = 0
        elif self._flush_queue is not None and self._flush_queue.empty():
            # nats-py's flusher waits for the socket, or for the connection to return.
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    def _writable(self) -> asyncio.StreamWriter | None:
        """The writer if it takes bytes now; None: not connected, not on TCP, or its buffer is full."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        # A connection that was lost stays "connected" until its reader has noticed.
        if writer is None or self._status != self.CONNECTED or writer.is_closing():
            return None
        return None if writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX else writer

    # Reconnecting.

    async def _attempt_reconnect(self) -> None:
        """Reconnect in spite of any error: nats-py stops for good at one that it does not expect.

        Such as what uvloop raises for a connection that is lost again meanwhile, or a line that this cut in two.
        """
        while True:
            self._fail_pongs()
            try:
                await super()._attempt_reconnect()
            except Exception:  # noqa: BLE001 - see above
                if self.is_closed:
                    return
                self._status = self.RECONNECTING
                await asyncio.sleep(self.options["reconnect_time_wait"])
            else:
                return

    def _fail_pongs(self) -> None:
        """Fail the pings that the connection took with it; nats-py leaves their callers waiting."""
        pongs, self._pongs = self._pongs, []
        for pong in pongs:
            if not pong.done():
                pong.set_exception(errors.ConnectionClosedError())
                # Marks it as retrieved: most pings have no caller.
                pong.exception()

    async def _process_pong(self) -> None:
        # Its caller may have been cancelled; nats-py would stop reading there.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()
