"""The tools of pool ``memory``: remember, recall, forget, read_result.

What is remembered is written nowhere but in the outcome that the pool's runner records. So remembering is done exactly when
its outcome stands, and doing it twice under one effect key is the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.core.facts import Observation
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.packs.port import NeverDone, Probed, Reconciled, ToolContext, ToolResult

from anchorwatch_memory.fold.memories import FORGET, REMEMBER
from anchorwatch_memory.follow import Follower
from anchorwatch_memory.port import Projections
from anchorwatch_memory.reads import show
from anchorwatch_memory.reads.memories import search
from anchorwatch_memory.whole import read_result

RECALL = "recall"
READ_RESULT = "read_result"
TEXT_CHARS_MAX = 8_000
TOPIC_CHARS_MAX = 200
RECALLED_MAX = 10
_ID_CHARS = 20


class MemoryTools:
    """Runs the tools. Implements `anchorwatch.packs.port.PackRuntime`; there is nothing to observe."""

    def __init__(
        self,
        bus: Bus,
        stream: str,
        projections: Projections,
        follower: Follower,
        artifacts: ArtifactJournal,
    ) -> None:
        self._bus = bus
        self._artifacts = artifacts
        self._stream = stream
        self._projections = projections
        self._follower = follower

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Do it.

        Raises:
            NeverDone: an argument cannot be used, or there is no such memory.
        """
        match tool:
            case "remember":
                return remember(args, context.effect_key)
            case "recall":
                return await self._recall(_text(args, "query", TEXT_CHARS_MAX), context)
            case "forget":
                return await self._forget(_text(args, "id", TOPIC_CHARS_MAX), context)
            case "read_result":
                await self._catch_up()
                what, part = _text(args, "of", TOPIC_CHARS_MAX), args.get("part", 1)
                if not isinstance(part, int):
                    raise NeverDone("part must be a whole number, from 1")
                return await read_result(self._projections, self._artifacts, context.ref, what, part)
            case _:
                raise NeverDone(
                    f"memory has no tool {tool!r}",
                    hint=f"it has {REMEMBER}, {RECALL}, {FORGET} and {READ_RESULT}",
                )

    async def observe(self) -> Observation:
        return Observation(text="", facts={}, at_ms=0, digest="")

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:  # noqa: ARG002 - the port's form
        return ()

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:  # noqa: ARG002 - the port's form
        # Nothing was done unless its outcome stands, and then nobody asks.
        return Reconciled("not_done", rejects_used_key=True)

    async def close(self) -> None:
        """Nothing is open."""

    async def _recall(self, query: str, context: ToolContext) -> ToolResult:
        await self._catch_up()
        workspace = context.ref.workspace
        rows, _ = await self._projections.read(lambda db: search(db, workspace, query, RECALLED_MAX))
        found = [show.memory(row) for row in rows]
        if not found:
            return ToolResult("nothing that was remembered matches", {"memories": []})
        lines = [
            f"{each['memory_id']} ({each['at']}, {each['topic'] or 'no topic'}): {each['text']}"
            for each in found
        ]
        return ToolResult("\n".join(lines), {"memories": found})

    async def _forget(self, memory_id: str, context: ToolContext) -> ToolResult:
        await self._catch_up()
        key = (context.ref.workspace, memory_id)
        known, _ = await self._projections.read(
            lambda db: db.execute(
                "SELECT 1 FROM memories WHERE workspace = ?1 AND memory_id = ?2"
                " UNION SELECT 1 FROM withdrawals WHERE workspace = ?1 AND memory_id = ?2",
                key,
            ).fetchone()
        )
        if known is None:
            raise NeverDone(f"there is no memory {memory_id[:80]}", hint="recall shows the ids")
        return ToolResult(f"{memory_id} is withdrawn", {"forgotten": {"id": memory_id}})

    async def _catch_up(self) -> None:
        """See at least what the journal held when the call came, so that an agent recalls what it has just remembered."""
        state = await self._bus.stream_state(self._stream)
        await self._follower.reach(state.last_sequence)


def remember(args: Mapping[str, Any], effect_key: str) -> ToolResult:
    """The result that is the memory. Its id follows from the effect key.

    Raises:
        NeverDone: an argument cannot be used.
    """
    text = _text(args, "text", TEXT_CHARS_MAX)
    topic = _text(args, "topic", TOPIC_CHARS_MAX) if args.get("topic") else ""
    memory_id = "mem-" + sha256(effect_key.encode()).hexdigest()[:_ID_CHARS]
    return ToolResult(
        f"remembered as {memory_id}", {"memory": {"id": memory_id, "text": text, "topic": topic}}
    )


def _text(args: Mapping[str, Any], name: str, chars_max: int) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value.strip():
        raise NeverDone(f"{name} must be a text")
    if len(value) > chars_max:
        raise NeverDone(f"{name} is longer than {chars_max} characters", hint="say it shorter")
    return value
