"""Collects the evidence for the checks: a session's records, and independent counts of its effects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from anchorwatch.core.names import SessionRef
from anchorwatch.core.tools import EffectClass
from anchorwatch.journal.history import History
from anchorwatch.packs.port import HasBooks
from anchorwatch.packs.recording import Note, read_notes
from anchorwatch.service.events import event_input_id
from anchorwatch.testing.checks import Arrivals, Call, Evidence, at_rest
from anchorwatch.testing.crash_test.receivers import CHANNELS
from anchorwatch.testing.live import Follower, until

REST_S_MAX = 60.0
_ENDS: Mapping[str, Literal["returned", "failed", "raised"]] = {
    "returned": "returned",
    "failed": "failed",
    "raised": "raised",
}


@dataclass
class Acknowledged:
    """Acknowledged work: the sequences in receipts of inputs, and the input ids of stored events."""

    inputs: list[int] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def event(self, workspace: str, source: str, id_: str) -> None:
        """Add an event that the gateway stored and the session subscribes to."""
        self.events.append(event_input_id(workspace, source, source, id_))


async def rest(follower: Follower, acknowledged: Acknowledged, within_s: float = REST_S_MAX) -> History:
    """Wait until the session is at rest, with all acknowledged work and deliveries done; returns its history.

    Raises:
        DidNotHappen: it does not come to rest in time.
    """
    through = max(acknowledged.inputs, default=0)
    events = set(acknowledged.events)

    async def look() -> History | None:
        history = await follower.history()
        arrived = events <= {each.input_id for each in history.inputs}
        return history if arrived and at_rest(history, through, CHANNELS) else None

    return await until(look, "the session comes to rest", within_s)


async def collect(
    ref: SessionRef,
    history: History,
    acknowledged: Acknowledged,
    *,
    classes: Mapping[str, EffectClass],
    notes: Path,
    runtime: object,
    arrivals: Sequence[Arrivals],
) -> Evidence:
    """The evidence of a session. ``runtime``: the pack's; its own audit counts if it has one (`HasBooks`)."""
    mine = [note for note in read_notes(notes) if note.session == str(ref)]
    return Evidence(
        history=history,
        accepted=tuple(acknowledged.inputs),
        events=tuple(acknowledged.events),
        classes=classes,
        calls=await _calls(mine, history, runtime),
        arrivals=arrivals,
    )


async def _calls(notes: Sequence[Note], history: History, runtime: object) -> dict[str, Call]:
    tools = {claim.claimed.effect_key: _tool(history, claim.call) for claim in history.claims}
    tools |= {note.effect_key: note.tool for note in notes}
    moments: dict[str, list[str]] = defaultdict(list)
    for note in notes:
        moments[note.effect_key].append(note.moment)
    return {
        key: Call(
            effect_key=key,
            begun=moments[key].count("begun"),
            ended=tuple(_ENDS[moment] for moment in moments[key] if moment in _ENDS),
            done=await runtime.times_done(tool, key) if isinstance(runtime, HasBooks) else None,
            tool=tool,
        )
        for key, tool in tools.items()
    }


def _tool(history: History, call: object) -> str:
    return next((each.decided.tool for each in history.commands if each.call == call), "")
