"""The tools of pool ``memory``: remember, recall, forget, read_result.

A memory exists only in the outcome that the pool's runner records. It therefore exists exactly if its outcome does, and a
repeated call with the same effect key is the same memory.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import CallId, SessionRef, check_token
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.packs.port import NeverDone, Probed, Reconciled, ToolContext, ToolFailed, ToolResult

from anchorwatch_memory.fold.effects import FORGET, REMEMBER
from anchorwatch_memory.follow import Follower
from anchorwatch_memory.projections import Projections
from anchorwatch_memory.reads import show
from anchorwatch_memory.reads.memories import search

RECALL = "recall"
READ_RESULT = "read_result"
TEXT_CHARS_MAX = 8_000
TOPIC_CHARS_MAX = 200
RECALLED_MAX = 10
PART_CHARS = 2_000
"""Of one part of a result: an outcome and a prompt show it uncut."""
_ID_CHARS = 20
_SEQUENCE = re.compile(r"[0-9]{1,18}")
_WORDS = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")
_INPUT_TEXT = "SELECT text FROM wakes WHERE workspace = ? AND session = ? AND sequence = ?"
_STEP_TEXT = "SELECT text FROM steps WHERE workspace = ? AND session = ? AND run_id = ? AND step = ?"


class MemoryTools:
    """Runs the tools. Implements `anchorwatch.packs.port.PackRuntime`, with nothing to observe."""

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
        """Run a tool.

        Raises:
            NeverDone: an argument is invalid, or the memory is unknown. ToolFailed: the call or artifact is unknown.
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
                name, part = _text(args, "of", TOPIC_CHARS_MAX), args.get("part", 1)
                if not isinstance(part, int):
                    raise NeverDone("part must be a whole number from 1")
                return await read_result(self._projections, self._artifacts, context.ref, name, part)
            case _:
                raise NeverDone(
                    f"unknown tool {tool!r}",
                    hint=f"known tools: {REMEMBER}, {RECALL}, {FORGET}, {READ_RESULT}",
                )

    async def observe(self) -> Observation:
        return Observation(text="", facts={}, at_ms=0, digest="")

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:  # noqa: ARG002 - the port's form
        return ()

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:  # noqa: ARG002 - the port's form
        # The outcome is the effect: without one, nothing was done.
        return Reconciled("not_done", rejects_used_key=True)

    async def close(self) -> None:
        """Nothing to close."""

    async def _recall(self, query: str, context: ToolContext) -> ToolResult:
        await self._catch_up()
        workspace = context.ref.workspace
        rows, _ = await self._projections.read(lambda db: search(db, workspace, query, RECALLED_MAX))
        found = [show.memory(row) for row in rows]
        if not found:
            return ToolResult("no memory matches", {"memories": []})
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
                "SELECT 1 FROM memories WHERE workspace = ? AND memory_id = ?"
                " UNION SELECT 1 FROM withdrawals WHERE workspace = ? AND memory_id = ?",
                key * 2,
            ).fetchone()
        )
        if known is None:
            raise NeverDone(f"there is no memory {memory_id[:80]}", hint="recall shows the ids")
        return ToolResult(f"{memory_id} withdrawn", {"forgotten": {"id": memory_id}})

    async def _catch_up(self) -> None:
        """Wait for the journal as of this call, so that an agent recalls what it has just remembered."""
        state = await self._bus.stream_state(self._stream)
        await self._follower.reach(state.last_sequence)


def remember(args: Mapping[str, Any], effect_key: str) -> ToolResult:
    """The result that is the memory. Its id follows from the effect key.

    Raises:
        NeverDone: an argument is invalid.
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
        raise NeverDone(f"{name} must be a text that is not empty")
    if len(value) > chars_max:
        raise NeverDone(f"{name} is longer than {chars_max} characters", hint="shorten it")
    return value


async def read_result(
    projections: Projections, artifacts: ArtifactJournal, ref: SessionRef, name: str, part: int
) -> ToolResult:
    """Part ``part`` (from 1) of the whole text that ``name`` names.

    ``name``: of this session a call RUN.STEP.N, the model's words RUN.STEP or the sequence of an input, each as the header of an
    excerpt names it; or an artifact's id.

    Raises:
        ToolFailed: the text or the part does not exist. Unavailable.
    """
    name = name.strip()
    handle = name.rpartition(" ")[2]
    artifact_id = ""
    if _SEQUENCE.fullmatch(handle):
        text = await _found(projections, _INPUT_TEXT, (ref.workspace, ref.session, int(handle)), name)
    elif _WORDS.fullmatch(handle):
        run, step = map(int, handle.split("."))
        text = await _found(projections, _STEP_TEXT, (ref.workspace, ref.session, run, step), name)
    else:
        text, artifact_id = await _call_output(projections, ref, handle) if "." in handle else ("", handle)
    if artifact_id:
        text = await _artifact(artifacts, ref, artifact_id)
    parts = max(1, math.ceil(len(text) / PART_CHARS))
    if not 1 <= part <= parts:
        raise ToolFailed(f"{name} has {parts} parts", hint=f"read part 1 to {parts}")
    start = (part - 1) * PART_CHARS
    return ToolResult(
        f"[part {part} of {parts} of {name}]\n{text[start : start + PART_CHARS]}",
        {"part": part, "parts": parts},
    )


async def _found(projections: Projections, sql: str, key: tuple[Any, ...], name: str) -> str:
    row, _ = await projections.read(lambda db: db.execute(sql, key).fetchone())
    if row is None:
        raise ToolFailed(f"this session has no {name}", hint="an excerpt's header names its text")
    return str(row[0])


async def _call_output(projections: Projections, ref: SessionRef, name: str) -> tuple[str, str]:
    """(a call's output, the id of the artifact with the whole of it; empty if the output is whole)."""
    try:
        call = CallId.parse(name)
    except BadInput as error:
        raise ToolFailed(error.message, hint=error.hint) from None
    key = (ref.workspace, ref.session, call.run, call.step, call.n)

    def find(db: sqlite3.Connection) -> tuple[str, str] | None:
        sql = (
            "SELECT text, data FROM effects"
            " WHERE workspace = ? AND session = ? AND run_id = ? AND step = ? AND n = ?"
        )
        row = db.execute(sql, key).fetchone()
        return None if row is None else (str(row[0]), str(row[1]))

    output, _ = await projections.read(find)
    if output is None:
        raise ToolFailed(f"this session has no call {name}", hint="the conversation names the calls")
    text, data = output
    ids = [str(each.get("id")) for each in json.loads(data).get("artifacts", ())]
    return text, next((each for each in ids if text.endswith(f"kept as {each}")), "")


async def _artifact(artifacts: ArtifactJournal, ref: SessionRef, name: str) -> str:
    try:
        _, data = await artifacts.read(ref, check_token(name, "artifact id"))
    except AnchorWatchError as error:
        if error.retryable:
            raise
        raise ToolFailed(
            error.message, hint="name a text as the header of its excerpt does, or an artifact by its id"
        ) from None
    return data.decode("utf-8", "replace")
