"""One call of a client: the request's way to the server, the server's act, and the answer's way back."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import TypeVar

from anchorwatch.bus.port import Ack, Disconnected, Message, Page, Stored
from anchorwatch.core.errors import AnchorWatchError, BadInput, Denied, Unavailable
from anchorwatch.testing.bus.engine import Engine
from anchorwatch.testing.bus.faults import FaultKind
from anchorwatch.testing.bus.link import Link, SimUser

_T = TypeVar("_T")

CALL_S = 5.0
# Tokens between single dots; no token is a wildcard.
_SUBJECT = re.compile(r"(?![*>](?:\.|$))[^. \t\r\n]+(?:\.(?![*>](?:\.|$))[^. \t\r\n]+)*")


class Caller:
    """Calls the server for one client, over its link and with its user's permissions."""

    def __init__(self, server: Engine, link: Link, user: SimUser) -> None:
        self.server = server
        self.link = link
        self.user = user
        self._reached: dict[str, int] = {}

    def reached(self, stream: str) -> int:
        """The highest sequence of a stream that this client has written or read; 0 for none."""
        return self._reached.get(stream, 0)

    def note(self, stream: str, sequence: int) -> None:
        self._reached[stream] = max(sequence, self.reached(stream))

    async def publish(self, message: Message, timeout_s: float = CALL_S) -> Ack:
        check_subject(message.subject)
        ack = await self.call(message.subject, lambda server: server.publish(message), timeout_s, write=True)
        self.note(ack.stream, ack.sequence)
        return ack

    async def call(
        self,
        subject: str,
        apply: Callable[[Engine], _T],
        timeout_s: float = CALL_S,
        *,
        write: bool = False,
    ) -> _T:
        """Send a request to the server, let it act, and return its answer; faults may lose either.

        Raises:
            Denied: the user may not publish to ``subject``.
            Unavailable: no answer within ``timeout_s``; the server may have acted.
            Disconnected: there is no connection, or it broke during the call.
        """
        server, link = self.server, self.link
        if write and server.on_write is not None:
            server.on_write(subject)
        await link.up(timeout_s)
        request_s, answer_s = self._delays(timeout_s, write=write)
        if request_s >= timeout_s:
            if write and request_s < math.inf:
                server.clock.call_later(request_s, lambda: self._act_late(subject, apply))
            await self._no_answer(subject, timeout_s, timeout_s)
        try:
            await link.travel(request_s)
        except (Disconnected, asyncio.CancelledError):
            # A killed process may have sent it: the operating system still sends what it has accepted.
            if link.killed and write and server.running and server.rng.random() < 0.5:  # noqa: PLR2004 - a coin flip
                self._act_late(subject, apply)
            raise
        if not self.user.may_publish(subject):
            await link.travel(answer_s)
            raise Denied(f"{self.user.name} may not publish to {subject}")
        answer: _T | AnchorWatchError
        try:
            answer = apply(server)
        except AnchorWatchError as error:
            answer = error
        server.trace(f"{self.link.name} {subject} -> {_shown(answer)}")
        if request_s + answer_s >= timeout_s:
            await self._no_answer(subject, timeout_s, timeout_s - request_s)
        await link.travel(answer_s)
        if isinstance(answer, AnchorWatchError):
            raise answer
        return answer

    def _delays(self, timeout_s: float, *, write: bool) -> tuple[float, float]:
        """How long the request and the answer take, in seconds; infinite for a lost one."""
        faults, latency = self.server.faults, self.server.latency
        request_s, answer_s = latency(), latency()
        if faults.strikes(FaultKind.LOST_REQUEST):
            request_s = math.inf
        elif write and faults.strikes(FaultKind.ZOMBIE_WRITE):
            request_s = timeout_s + faults.delay_s()
        elif write and faults.strikes(FaultKind.LOST_ACK):
            answer_s = math.inf
        elif faults.strikes(FaultKind.SLOW_CALL):
            if faults.rng.random() < 0.5:  # noqa: PLR2004 - a coin flip
                request_s += faults.delay_s()
            else:
                answer_s += faults.delay_s()
        return request_s, answer_s

    async def _no_answer(self, subject: str, timeout_s: float, wait_s: float) -> None:
        await self.link.travel(wait_s)
        raise Unavailable(f"no answer to {subject} within {timeout_s:g} s")

    def _act_late(self, subject: str, apply: Callable[[Engine], object]) -> None:
        """Apply a request whose caller has stopped waiting."""
        if not (self.server.running and self.user.may_publish(subject)):
            return
        try:
            answer = apply(self.server)
        except AnchorWatchError as error:
            answer = error
        self.server.trace(f"{self.link.name} {subject} late -> {_shown(answer)}")


def check_subject(subject: str) -> str:
    """Return ``subject`` if a message can be published to it.

    Raises:
        BadInput: it has an empty token, a wildcard or white space.
    """
    if not _SUBJECT.fullmatch(subject):
        raise BadInput(f"cannot publish to {subject[:200]!r}")
    return subject


def _shown(answer: object) -> str:
    """An answer in a trace, in one short line."""
    if isinstance(answer, AnchorWatchError):
        return f"{answer.code}: {answer.message}"
    if isinstance(answer, Page):
        return f"{len(answer.messages)} messages up to {answer.up_to}"
    if isinstance(answer, Stored):
        # Without its content: that may name a process or a machine, which differ in the next run.
        return f"{answer.subject} {answer.sequence}"
    if isinstance(answer, bytes):
        return f"{len(answer)} bytes"
    return repr(answer)[:200]


__all__ = ["CALL_S", "Caller", "check_subject"]
