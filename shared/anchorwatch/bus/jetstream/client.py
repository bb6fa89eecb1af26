"""nats-py's client, quicker where every message passes.

What is overridden has no public name. Were nats-py's methods called otherwise one day, those here would merely be idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nats import errors
from nats.aio import client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from anchorwatch.bus.jetstream.wire import Tap, read_headers, text, write_message

UNSENT_BYTES_MAX = 65_536
"""Above this nats-py's own way is taken, which waits for the socket."""


class Client(client.Client):
    """Reads and writes messages with less ado, and hands over what comes without a queue and a task between."""

    def __init__(self) -> None:
        super().__init__()
        self._writing_soon = False
        self._receivers: dict[int, tuple[Callable[[Msg], None], Callable[[Exception], None]]] = {}

    def hand_over(
        self,
        subscription: Subscription,
        receive: Callable[[Msg], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Call ``receive`` for each message of the subscription as it is read: it must be quick.

        ``failed``: is told what it raised.
        """
        self._receivers[subscription._id] = receive, failed  # noqa: SLF001

    def deliver(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> bool:
        """Hand over a message that was read. False: its subscription was not handed over."""
        taker = self._receivers.get(sid)
        if taker is None:
            return False
        receive, failed = taker
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        message = Msg(self, text(subject), text(reply), data, read_headers(headers))
        try:
            receive(message)
        except Exception as error:  # noqa: BLE001 - one odd message must not end the reading of all
            failed(error)
        return True

    def send_soon(self, subject: str, payload: bytes, reply: str, headers: bytes) -> bool:
        """Put a message behind those that wait for the socket. False: `publish` must, which waits for room.

        Raises:
            BadSubjectError: it cannot be sent to ``subject``.
        """
        if self._writer_at_hand() is None:
            return False
        command = write_message(subject, reply, headers, payload)
        self._pending.append(command)
        self._pending_data_size += len(command)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += len(payload)
        if not self._writing_soon:
            self._writing_soon = True
            asyncio.get_running_loop().call_soon(self._write_out)
        return True

    def _write_out(self) -> None:
        """All that waits, at once: what is sent by many tasks of one round of the loop is one call of the system."""
        self._writing_soon = False
        if not self._pending:
            return
        if (writer := self._writer_at_hand()) is not None:
            writer.write(b"".join(self._pending))
            self._pending = []
            self._pending_data_size = 0
        elif self._flush_queue is not None and self._flush_queue.empty():
            # nats-py's flusher waits for the socket, or for the connection to come back.
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())

    def _writer_at_hand(self) -> asyncio.StreamWriter | None:
        """Where to write at once; None: not connected, not by TCP, or more is on its way than the socket takes."""
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)
        # A connection that was lost stays "connected" until its reader has noticed.
        if writer is None or self._status != self.CONNECTED or writer.is_closing():
            return None
        return None if writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX else writer

    async def _attempt_reconnect(self) -> None:
        """Come back, whatever goes wrong meanwhile: nats-py stops for ever at what it does not expect.

        Such as what uvloop says of a connection that is lost once more, or a line of the server's that is torn by that.
        """
        while True:
            self._give_up_pongs()
            try:
                await super()._attempt_reconnect()
            except Exception:  # noqa: BLE001 - said above
                if self.is_closed:
                    return
                self._status = self.RECONNECTING
                await asyncio.sleep(self.options["reconnect_time_wait"])
            else:
                return

    def _give_up_pongs(self) -> None:
        """Who waits for an answer to a ping that went with the connection is told; nats-py lets him wait in vain."""
        pongs, self._pongs = self._pongs, []
        for pong in pongs:
            if not pong.done():
                pong.set_exception(errors.ConnectionClosedError())
                # Most were asked for by nobody.
                pong.exception()

    async def _read_loop(self) -> None:
        reader = getattr(self._transport, "_io_reader", None)
        writer = getattr(self._transport, "_io_writer", None)
        unread = getattr(reader, "_buffer", b"?")
        # A line that nats-py has read in part it must read to its end. Messages there are none yet.
        if writer is not None and (not unread or unread.endswith(b"\r\n")):
            transport = writer.transport
            transport.set_protocol(Tap(transport.get_protocol(), self.deliver))
        await super()._read_loop()
        task = asyncio.current_task()
        if self.is_connected and not (task and task.cancelling()):
            # It met a fault, and nobody reads any more: a connection that looks as if it were there.
            await self._process_op_err(errors.ProtocolError())

    async def _process_pong(self) -> None:
        # Who waited for it may have gone, and nobody is told then: nats-py would stop reading.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        super()._remove_sub(sid, max_msgs)
        self._receivers.pop(sid, None)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if not self.deliver(sid, subject, reply, data, headers):
            await super()._process_msg(sid, subject, reply, data, headers)
