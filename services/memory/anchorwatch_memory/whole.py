"""What a prompt shows only the ends of, whole: outputs of calls, by RUN.STEP.N, and artifacts, by their id; in parts."""

from __future__ import annotations

import json
import math
import sqlite3

from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.core.names import CallId, SessionRef, check_token
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.packs.port import ToolFailed, ToolResult

from anchorwatch_memory.port import Projections

PART_CHARS = 2_000
"""Of a part: whatever it is written in, it stands in an outcome, and in a prompt, uncut."""


async def read_result(
    projections: Projections, artifacts: ArtifactJournal, ref: SessionRef, what: str, part: int
) -> ToolResult:
    """Part ``part`` (from 1) of what ``what`` names: a call of this session, or an artifact of it.

    Raises:
        ToolFailed: there is no such thing, or no such part. Unavailable.
    """
    text, artifact_id = await _call(projections, ref, what) if "." in what else ("", what)
    if artifact_id:
        text = await _artifact(artifacts, ref, artifact_id)
    parts = max(1, math.ceil(len(text) / PART_CHARS))
    if not 1 <= part <= parts:
        raise ToolFailed(f"{what} has {parts} parts", hint=f"ask for part 1 to {parts}")
    start = (part - 1) * PART_CHARS
    return ToolResult(
        f"[part {part} of {parts} of {what}]\n{text[start : start + PART_CHARS]}",
        {"part": part, "parts": parts},
    )


async def _call(projections: Projections, ref: SessionRef, what: str) -> tuple[str, str]:
    """(a call's output, the artifact that has the whole of it; empty: the output is whole)."""
    try:
        call = CallId.parse(what)
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

    found, _ = await projections.read(find)
    if found is None:
        raise ToolFailed(f"there is no call {what} in this session", hint="the conversation names them")
    text, data = found
    kept = [str(each.get("id")) for each in json.loads(data).get("artifacts", ())]
    return text, next((each for each in kept if text.endswith(f"kept as {each}")), "")


async def _artifact(artifacts: ArtifactJournal, ref: SessionRef, what: str) -> str:
    try:
        _, data = await artifacts.read(ref, check_token(what, "artifact id"))
    except AnchorWatchError as error:
        if error.retryable:
            raise
        raise ToolFailed(error.message, hint="name a call as RUN.STEP.N, or an artifact by its id") from None
    return data.decode("utf-8", "replace")
