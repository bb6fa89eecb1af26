"""One call of a client: the way to the server, what it does there, and the way back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from anchorwatch.bus.port import Disconnected, Page, Stored
from anchorwatch.core.errors import AnchorWatchError, Denied, Unavailable
from anchorwatch.testing.bus.faults import FaultKind
from anchorwatch.testing.bus.link import Link
from anchorwatch.testing.bus.users import SimUser

if TYPE_CHECKING:
    from anchorwatch.testing.bus.server import SimServer

_T = TypeVar("_T")

CALL_S = 5.0


class Caller:
    """Calls the server for one client, over its link and with its user's permissions."""

    def __init__(self, server: SimServer, link: Link, user: SimUser) -> None:
        self._server = server
        self._link = link
        self._user = user

    async def call(
        self,
        subject: str,
        apply: Callable[[SimServer], _T],
        timeout_s: float = CALL_S,
        *,
        write: bool = False,
    ) -> _T:
        """Send a request to the server, let it act, and bring the answer back; each on its own way may be lost.

        Raises:
            Denied: the user may not publish to ``subject``.
            Unavailable: no answer within ``timeout_s``; whether the server acted is not known.
            Disconnected: there is no connection, or it broke meanwhile.
        """
        server, link = self._server, self._link
        if write and server.on_write is not None:
            server.on_write(subject)
        await link.up(timeout_s)
        request_s, answer_s = self._ways(timeout_s, write=write)
        if request_s >= timeout_s:
            if write and request_s < math.inf:
                server.clock.call_later(request_s, lambda: self._act_late(subject, apply))
            await self._no_answer(subject, timeout_s, timeout_s)
        try:
            await link.travel(request_s)
        except (Disconnected, asyncio.CancelledError):
            # A dying process may have sent it: the system sends on what was handed to it.
            if link.killed and write and server.running and server.rng.random() < 0.5:  # noqa: PLR2004 - a coin
                self._act_late(subject, apply)
            raise
        if not self._user.may_publish(subject):
            await link.travel(answer_s)
            raise Denied(f"{self._user.name} may not publish to {subject}")
        answer: _T | AnchorWatchError
        try:
            answer = apply(server)
        except AnchorWatchError as error:
            answer = error
        server.trace(f"{self._link.name} {subject} -> {_shown(answer)}")
        if request_s + answer_s >= timeout_s:
            await self._no_answer(subject, timeout_s, timeout_s - request_s)
        await link.travel(answer_s)
        if isinstance(answer, AnchorWatchError):
            raise answer
        return answer

    def _ways(self, timeout_s: float, *, write: bool) -> tuple[float, float]:
        """How long the request and the answer are on their way, in seconds; infinite when they are lost."""
        faults, latency = self._server.faults, self._server.latency
        request_s, answer_s = latency(), latency()
        if faults.strikes(FaultKind.LOST_REQUEST):
            request_s = math.inf
        elif write and faults.strikes(FaultKind.ZOMBIE_WRITE):
            request_s = timeout_s + faults.delay_s()
        elif write and faults.strikes(FaultKind.LOST_ACK):
            answer_s = math.inf
        elif faults.strikes(FaultKind.SLOW_CALL):
            if faults.rng.random() < 0.5:  # noqa: PLR2004 - either way
                request_s += faults.delay_s()
            else:
                answer_s += faults.delay_s()
        return request_s, answer_s

    async def _no_answer(self, subject: str, timeout_s: float, wait_s: float) -> None:
        await self._link.travel(wait_s)
        raise Unavailable(f"no answer to {subject} within {timeout_s:g} s")

    def _act_late(self, subject: str, apply: Callable[[SimServer], object]) -> None:
        """A request arrives for whose answer nobody waits any more."""
        if not (self._server.running and self._user.may_publish(subject)):
            return
        try:
            answer = apply(self._server)
        except AnchorWatchError as error:
            answer = error
        self._server.trace(f"{self._link.name} {subject} late -> {_shown(answer)}")


def _shown(answer: object) -> str:
    """An answer in a trace, in one short line."""
    if isinstance(answer, AnchorWatchError):
        return f"{answer.code}: {answer.message}"
    if isinstance(answer, Page):
        return f"{len(answer.messages)} messages up to {answer.up_to}"
    if isinstance(answer, Stored):
        # Not its content: that may name a process or a machine, which are others in the next run.
        return f"{answer.subject} {answer.sequence}"
    if isinstance(answer, bytes):
        return f"{len(answer)} bytes"
    return repr(answer)[:200]


__all__ = ["CALL_S", "Caller"]
