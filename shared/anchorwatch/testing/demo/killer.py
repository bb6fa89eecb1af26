"""Kills processes of a mesh with signal 9, and waits for their replacements."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.journal.history import Claim
from anchorwatch.service.presence import presence_key
from anchorwatch.testing.demo.evidence import HeldClaim
from anchorwatch.testing.demo.stage import Stage
from anchorwatch.testing.harness import Kill
from anchorwatch.testing.live import until
from anchorwatch.topology.streams import LEASES_BUCKET

BACK_S_MAX = 45.0


class Killer:
    """Kills processes and records it. ``kills``: so far, in order."""

    def __init__(self, stage: Stage, bus: Bus) -> None:
        self._stage = stage
        self._bus = bus
        self._killed_at: dict[int, float] = {}
        self.kills: tuple[Kill, ...] = ()

    def kill(self, service: str, during: str, instance: str | None = None) -> Kill:
        """Kill a process of a service: that of ``instance``, or its first.

        Raises:
            Unavailable: the mesh is not up.
        """
        rows = [row for row in self._stage.rows() if row["service"] == service]
        row = next(row for row in rows if instance in (None, row["instance"]))
        pid = int(row["pid"])
        known = pid in self._stage.mesh.pids.get(service, [])
        os.kill(pid, signal.SIGKILL)
        self._killed_at[pid] = time.monotonic()
        kill = Kill(str(row["instance"]), during=during, pid=pid, known=known)
        self.kills += (kill,)
        return kill

    async def back(self, kill: Kill) -> Kill:
        """Wait until the replacement of a killed process is ready.

        Raises:
            DidNotHappen: there is none in time.
        """

        async def ready() -> dict[str, Any] | None:
            rows = (row for row in self._stage.rows() if row["instance"] == kill.instance)
            return next((row for row in rows if row["ready"] and row["pid"] != kill.pid), None)

        row = await until(ready, f"{kill.instance} comes back", BACK_S_MAX)
        back_s = time.monotonic() - self._killed_at[kill.pid]
        again = replace(kill, new_pid=int(row["pid"]), back_s=back_s)
        self.kills = tuple(again if each == kill else each for each in self.kills)
        return again

    async def owner_of(self, claim: Claim) -> HeldClaim:
        """The claim's owner before its kill, as named by the journal, the mesh and its presence entry.

        Raises:
            Unavailable: the bus does not answer.
        """
        owner = claim.claimed.owner
        leases = await self._bus.bucket(LEASES_BUCKET)
        entry = await leases.get(presence_key("executor", owner.instance))
        presence = json.loads(entry.value) if entry is not None else {}
        return HeldClaim(
            sequence=claim.sequence,
            call=str(claim.call),
            instance=owner.instance,
            incarnation=owner.incarnation,
            effect_key=claim.claimed.effect_key,
            mesh_pids=tuple(self._stage.mesh.pids.get("executor", [])),
            presence_incarnation=str(presence.get("incarnation", "")),
            presence_pid=int(presence.get("pid", 0)),
            killed_pid=0,
        )
