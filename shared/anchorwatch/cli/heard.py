"""Which processes of a mesh send heartbeats now: their presence entries, by the clock of the server.

A process that announced itself ready may have stopped or hang since.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.times import iso
from anchorwatch.mesh.credentials import CLI, Credentials
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.roster import NATS
from anchorwatch.service.connect import connect
from anchorwatch.service.presence import presence_key
from anchorwatch.settings import load
from anchorwatch.topology.streams import LEASES_BUCKET, bucket_stream

CONNECT_S_MAX = 2.0
ASK_S_MAX = 3.0

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Heard:
    """The last beats, by instance, and the server's clock (Unix milliseconds) when they were read."""

    beats: Mapping[str, Stored]
    now_ms: int


def add(state: Row, data: DataDir) -> dict[str, Any]:
    """The supervisor's status, with ``ready`` true only with a current heartbeat, and ``heard_at`` (ISO 8601, or None).

    ``announced``: the process has announced itself ready since its start.
    ``bus``: whether the NATS server answers; while it does not, the state of the processes is unknown.
    """
    rows: Sequence[Row] = state["processes"]
    heard = asyncio.run(_ask(rows, str(state["nats_url"]), data))
    processes = [{**row, "announced": row["ready"], **judge(row, heard)} for row in rows]
    ready = bool(state["ready"]) and all(each["ready"] for each in processes)
    return {**state, "ready": ready, "bus": heard is not None, "processes": processes}


def judge(row: Row, heard: Heard | None) -> dict[str, Any]:
    """``ready`` and ``heard_at`` of one process."""
    if row["service"] == NATS:
        at_ms = heard.now_ms if heard else None
        return {"ready": row["ready"] and heard is not None, "heard_at": iso(at_ms) if at_ms else None}
    beat = heard.beats.get(row["instance"]) if heard else None
    if heard is None or beat is None:
        return {"ready": False, "heard_at": None}
    try:
        entry = json.loads(beat.payload)
        mine = entry["pid"] == row["pid"] and not entry["ended"]
        lease_ms = float(entry["lease_s"]) * 1000
    except (ValueError, KeyError, TypeError):
        return {"ready": False, "heard_at": None}
    lately = heard.now_ms - beat.time_ms <= lease_ms
    # An entry of a former process of this name does not count.
    return {
        "ready": bool(row["ready"] and mine and lately),
        "heard_at": iso(beat.time_ms) if mine else None,
    }


async def _ask(rows: Sequence[Row], nats_url: str, data: DataDir) -> Heard | None:
    """None: the server does not answer, or the mesh is starting or stopping."""
    credentials = Credentials.load(data)
    if credentials is None:
        return None
    settings = load(nats_url=nats_url, nats_user=CLI, nats_password=credentials.passwords[CLI])
    try:
        bus = await connect(settings, "anchorwatch-status", timeout_s=CONNECT_S_MAX)
    except AnchorWatchError:
        return None
    try:
        async with asyncio.timeout(ASK_S_MAX):
            return await look(bus, rows)
    except (AnchorWatchError, TimeoutError):
        return None
    finally:
        await bus.close()


async def look(bus: Bus, rows: Sequence[Row]) -> Heard:
    """The last beats of these processes.

    Raises:
        Unavailable: the server does not answer.
    """
    of = {
        f"$KV.{LEASES_BUCKET}.{presence_key(row['service'], row['instance'])}": str(row["instance"])
        for row in rows
        if row["service"] != NATS
    }
    page = await bus.last(bucket_stream(LEASES_BUCKET), list(of)) if of else None
    messages = page.messages if page else ()
    return Heard({of[each.subject]: each for each in messages}, await bus.server_time_ms())
