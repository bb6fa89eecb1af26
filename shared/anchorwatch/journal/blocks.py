"""Which effects may touch a resource: an index over all sessions of a workspace, one register for each pack and resource.

An executor enters the effect of a command, fenced on the register, before its first claim. So of two commands of any sessions
that are to be claimed at once, one is fenced, reads again and waits. An effect that becomes `unknown` stays in the register.
The family of the effect is the truth: an entry whose effect has another outcome, or whose claim was given back, says nothing,
and the next claim removes it. The two writes are not one atomic batch, since that takes six times as long.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

from anchorwatch.bus.port import Bus, Expect, Stored
from anchorwatch.codec import encode, write_body
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind, Record
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.journal.reading import read
from anchorwatch.journal.register import Register
from anchorwatch.topology.subjects import BLOCK

_DIGEST_CHARS = 26


@dataclass(frozen=True, slots=True)
class Resource:
    """What may be blocked: a pack's resource in a workspace."""

    workspace: str
    pack: str
    name: str

    @property
    def subject(self) -> str:
        """Its register. A digest, since a resource may hold what no subject can."""
        digest = sha256(json.dumps([self.pack, self.name]).encode()).hexdigest()[:_DIGEST_CHARS]
        return BLOCK.at(workspace=self.workspace, resource=digest)


@dataclass(frozen=True, slots=True)
class Entry:
    """The address of an effect. ``attempt``: the number of the claim that it was entered for; 0: for none."""

    session: str
    call: CallId
    pool: str
    attempt: int = 0

    def is_of(self, other: Entry) -> bool:
        """Whether both are of one effect."""
        return (self.session, self.call, self.pool) == (other.session, other.call, other.pool)

    def __str__(self) -> str:
        return f"{self.session}/{self.call}"


@dataclass(frozen=True, slots=True)
class Block:
    """What a register says; ``head`` is its last sequence (0: nothing was ever written)."""

    entries: tuple[Entry, ...] = ()
    head: int = 0


@dataclass(frozen=True, slots=True)
class _Body:
    """``effects``: session, run, step, n, pool, attempt."""

    pack: str
    resource: str
    effects: tuple[tuple[str, int, int, int, str, int], ...]


def read_block(stored: Stored) -> Block:
    """The block in a message of the register.

    Raises:
        Damaged: it cannot be trusted.
    """
    _, body = read(stored, _Body)
    entries = (
        Entry(session, CallId(run, step, n), pool, attempt)
        for session, run, step, n, pool, attempt in body.effects
    )
    return Block(tuple(entries), stored.sequence)


class BlockJournal:
    """Reads and writes the index. ``writer`` names the process in the records."""

    def __init__(self, bus: Bus, committer: Committer, writer: str) -> None:
        self._bus = bus
        self._committer = committer
        self._writer = writer

    async def enter(self, resource: Resource, effect: Entry, at_ms: int) -> None:
        """Have ``effect`` in the register of ``resource``.

        Raises:
            Unavailable: not confirmed in time; asking again is safe. Damaged.
        """

        def with_effect(block: Block) -> tuple[Entry, ...] | None:
            entered = any(each.is_of(effect) for each in block.entries)
            return None if entered else (*block.entries, effect)

        async def write(block: Block, effects: tuple[Entry, ...]) -> Block:
            await self.enter_only(resource, block, effects, at_ms)
            return replace(block, entries=effects)

        name = f"the register of {resource.name[:80]}"
        await Register(name, partial(self.read, resource), write).change(with_effect)

    async def enter_only(
        self, resource: Resource, block: Block, effects: tuple[Entry, ...], at_ms: int
    ) -> None:
        """Have ``effects`` in the register, in place of what ``block`` says.

        Raises:
            Fenced: it says something else by now. Unavailable.
        """
        rows = (
            (each.session, each.call.run, each.call.step, each.call.n, each.pool, each.attempt)
            for each in effects
        )
        body = write_body(_Body(resource.pack, resource.name, tuple(rows)))
        payload, _ = encode(Record(Kind.BLOCK, at_ms, self._writer, body))
        fence = Expect(resource.subject, block.head)
        await self._committer.commit([Write(resource.subject, payload)], fence)

    async def read(self, resource: Resource) -> Block:
        """What the register says. An old answer does no harm: the fence of the next write tells.

        Raises:
            Unavailable, Damaged.
        """
        page = await self._bus.last(self._committer.stream, [resource.subject])
        return read_block(page.messages[0]) if page.messages else Block()
