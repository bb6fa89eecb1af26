"""Group commit: commits are sent one by one while there are few, and together, as one atomic batch, while they queue up.

Every stored message is a sync of the disk, and a batch is some seven of them however large it is: so a group pays only from
`GROUP_MIN` commits on, and forms by itself where the disk is slow or the load is high. Each commit of a group carries its own
fence, on a family that no other one of the group writes to. When the server refuses a group, each of it is sent again
alone, so one stale fence costs the others a round trip and nothing else; without an answer, each reads back for itself.

Commits of one family are sent in the order of their requests, one at a time.

There is no task behind this: of those who wait, one sends for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from anchorwatch.bus.port import Ack, Bus, Message
from anchorwatch.core.errors import AnchorWatchError, Unavailable

AT_ONCE_MAX = 8
"""Sendings on their way at once; what comes beyond that waits."""
GROUP_MIN, GROUP_MAX = 12, 64
"""Commits in a group. Below, as many single messages are quicker, on a slow disk and on a quick one (docs/performance.md)."""


ALONE_FROM = 8
"""A commit of more messages is a group by itself: together, they could be more than the server takes in a batch."""


@dataclass(slots=True, eq=False)
class _Commit:
    """Messages stored together or not at all. ``told``: resolves to the group that it must send, or to the result."""

    messages: Sequence[Message]
    families: frozenset[str]
    alone: bool = False
    told: asyncio.Future[Group | Ack] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


Group = tuple[_Commit, ...]


class Grouping:
    """Sends the commits of one process to one stream; each is one attempt."""

    def __init__(self, bus: Bus, timeout_s: float) -> None:
        self._bus = bus
        self._timeout_s = timeout_s
        self._waiting: dict[_Commit, None] = {}
        self._busy: set[str] = set()
        self._on_their_way = 0

    async def send(self, messages: Sequence[Message]) -> Ack:
        """Store all or none; the ack carries the last one's sequence. The first message is fenced.

        Raises:
            as `Bus.publish`, and `BatchRefused`.
        """
        families = frozenset(each.expect.subject for each in messages if each.expect is not None)
        commit = _Commit(messages, families, alone=len(messages) > ALONE_FROM)
        self._waiting[commit] = None
        self._call()
        try:
            told = await commit.told
        except asyncio.CancelledError:
            self._leave(commit)
            raise
        return told if isinstance(told, Ack) else await self._lead(told)

    def _leave(self, commit: _Commit) -> None:
        self._waiting.pop(commit, None)
        told = commit.told
        if told.done() and not told.cancelled() and told.exception() is None:
            group = told.result()
            if isinstance(group, tuple):
                # It was to send for others, who wait on.
                self._put_back(group[1:])
                self._end(group)

    def _call(self) -> None:
        """Have sent what may be sent now."""
        while self._on_their_way < AT_ONCE_MAX:
            group = self._next()
            if not group:
                return
            self._on_their_way += 1
            for commit in group:
                del self._waiting[commit]
                self._busy |= commit.families
            group[0].told.set_result(group)

    def _next(self) -> Group:
        """The next commits to send: many together, or the first alone; none whose family is in flight."""
        group: list[_Commit] = []
        taken = set(self._busy)
        for commit in self._waiting:
            if not taken.isdisjoint(commit.families) or commit.told.done():
                taken |= commit.families
                continue
            taken |= commit.families
            if commit.alone and not group:
                return (commit,)
            if not commit.alone:
                group.append(commit)
            if len(group) == GROUP_MAX:
                break
        return tuple(group) if len(group) >= GROUP_MIN else tuple(group[:1])

    def _put_back(self, commits: Sequence[_Commit]) -> None:
        """Return them to their place, before all later requests."""
        self._waiting = dict.fromkeys((*commits, *self._waiting))

    def _end(self, group: Group) -> None:
        self._on_their_way -= 1
        for commit in group:
            self._busy -= commit.families
        self._call()

    async def _lead(self, group: Group) -> Ack:
        own, others = group[0], group[1:]
        try:
            if others:
                try:
                    return await self._store_all(group)
                except Unavailable:
                    raise
                except AnchorWatchError:
                    # One of them, and the server does not say which.
                    for commit in others:
                        commit.alone = True
                        self._busy -= commit.families
                    self._put_back([commit for commit in others if not commit.told.done()])
                    others = ()
            return await self._store(own.messages)
        finally:
            for commit in others:
                if not commit.told.done():
                    commit.told.set_exception(
                        Unavailable("the group that the write was sent in was not answered")
                    )
            self._end((own, *others))

    async def _store_all(self, group: Group) -> Ack:
        """Send the group, tell the others, and give back what is the first one's."""
        ack = await self._store(tuple(chain.from_iterable(commit.messages for commit in group)))
        last = ack.sequence
        for commit in reversed(group[1:]):
            if not commit.told.done():
                commit.told.set_result(Ack(ack.stream, last))
            last -= len(commit.messages)
        return Ack(ack.stream, last)

    async def _store(self, messages: Sequence[Message]) -> Ack:
        if len(messages) == 1:
            return await self._bus.publish(messages[0], self._timeout_s)
        return await self._bus.publish_batch(messages, self._timeout_s)
