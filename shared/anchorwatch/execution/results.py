"""What a tool gave back, in the form of a record: plain data, and what is large kept as artifacts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import TooLarge
from anchorwatch.journal.artifacts import Kept
from anchorwatch.packs.port import ToolResult

TEXT_BYTES_MAX = 8 * 1024
DATA_BYTES_MAX = 64 * 1024
PREVIEW_CHARS = 2_000
MEANT_FOR_THE_MESH = ("next_check_at_ms", "notify")

Keep = Callable[[str, str, bytes], Awaitable[Kept]]
"""Keeps (name, media type, bytes)."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """A result as the ``done`` record holds it."""

    text: str
    data: dict[str, Any]


async def shape(result: ToolResult, keep: Keep) -> Shaped:
    """The result as it is recorded.

    The effect is done already, so nothing in its answer is a reason to fail.

    Raises:
        Unavailable: an artifact is not known to be kept; asking again is safe.
    """
    text, data = str(plain(str(result.text))), plain(dict(result.data))
    kept, notes = [], []
    for artifact in result.artifacts:
        try:
            kept.append(await keep(artifact.name, artifact.media_type, artifact.data))
        except TooLarge as error:
            notes.append(f"{artifact.name} was not kept: {error.message}")
    if len(text.encode()) > TEXT_BYTES_MAX:
        whole = await keep("output.txt", "text/plain; charset=utf-8", text.encode()[: 16 * 1024 * 1024])
        kept.append(whole)
        text = f"{text[:PREVIEW_CHARS]}\n… {whole.size_bytes} bytes in all, kept as {whole.artifact_id}"
    data = await _bounded(data, keep)
    if kept:
        data["artifacts"] = [_reference(each) for each in kept]
    return Shaped("\n".join([text, *notes]), data)


async def _bounded(data: dict[str, Any], keep: Keep) -> dict[str, Any]:
    encoded = json.dumps(data, ensure_ascii=False).encode()
    if len(encoded) <= DATA_BYTES_MAX:
        return data
    whole = await keep("data.json", "application/json", encoded[: 16 * 1024 * 1024])
    mine = {name: data[name] for name in MEANT_FOR_THE_MESH if name in data}
    return {**mine, "data": _reference(whole)}


def _reference(kept: Kept) -> dict[str, Any]:
    return {
        "id": kept.artifact_id,
        "name": kept.name,
        "media_type": kept.media_type,
        "size_bytes": kept.size_bytes,
        "sha256": kept.sha256,
    }
