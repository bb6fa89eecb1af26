"""What holds a session, by whom and why: a kill switch, a person's pause, its limits, its damage. Found when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.core.anchor import Anchor, Pace
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.pacing import Hold, Rate
from anchorwatch.core.session.state import Input
from anchorwatch.core.times import from_iso, iso
from anchorwatch.journal.paces import Account
from anchorwatch.journal.switches import MESH_SCOPE, WHOLE, Switch
from anchorwatch.service.rates import rate_of, shared_rate_of

from anchorwatch_gateway.parts import Parts

Row = dict[str, Any]
PRIORITIES = {"P0": 0, "P1": 1, "P2": 2}


async def add(parts: Parts, workspace: str, sessions: Sequence[Row]) -> None:
    """Say of each of these sessions of a workspace what holds it now: `held`, a list.

    Raises:
        Unavailable, Damaged.
    """
    limits = Limits(parts)
    switches = [each for each in await parts.switches.all(workspace) if each.on] if sessions else []
    if sessions and (mesh := await parts.switches.mesh()) is not None:
        switches.append(mesh)
    for row in sessions:
        row["held"] = [
            *(_switched(each) for each in switches if _is_of(each, row) and row["status"] != "deleted"),
            *_by_person(row),
            *await _by_limits(limits, row),
        ]


async def put_off(parts: Parts, session: Row, wakes: Sequence[Row]) -> None:
    """Let the wakes that wait in a session be due no earlier than its limits let them.

    Raises:
        Unavailable, Damaged.
    """
    of = await Limits(parts).of(session)
    if of is None:
        return
    held = of.rate.held(_anchor(session), of.now_ms)
    held = held.and_until(of.account.hold(of.now_ms) if of.account else None)
    for wake in wakes:
        if wake.get("due_at") and (until_ms := held.until_ms(_input(wake))) > from_iso(wake["due_at"]):
            wake["due_at"] = iso(until_ms)


def _is_of(switch: Switch, row: Row) -> bool:
    names = {"session": str(row["name"]), "agent": str(row["agent"]), "workspace": WHOLE}
    return switch.scope == MESH_SCOPE or names[switch.scope] == switch.name


def _switched(switch: Switch) -> Row:
    return {
        "by": "journal" if switch.scope == MESH_SCOPE else "kill_switch",
        "of": switch.scope,
        "who": switch.by,
        "since": iso(switch.at_ms),
        "until": None,
        "why": switch.reason,
    }


def _by_person(row: Row) -> list[Row]:
    found = []
    if row["status"] == "paused" and row.get("paused"):
        found.append({"by": "pause", "of": "session", "until": None, **row["paused"]})
    if damage := row.get("quarantine"):
        told = {"who": "", "since": damage["since"], "until": None, "why": damage["reason"]}
        found.append({"by": "quarantine", "of": "session", **told})
    return found


async def _by_limits(limits: Limits, row: Row) -> list[Row]:
    of = await limits.of(row)
    if of is None:
        return []
    found = []
    if (shared := of.account.hold(of.now_ms) if of.account else None) is not None:
        since = of.account.pace.started_at if of.account and of.account.pace else None
        found.append(_limit("rate_limit", since, shared, "agent_turns_per_hour"))
    if (hold := of.rate.hold(_anchor(row), of.now_ms)) is not None and hold.why == "no_progress":
        why = f"{row['runs_without_progress']} turns in a row"
        found.append(_limit("no_progress", row["last_run_timestamp"], hold, why))
    elif hold is not None:
        found.append(_limit("rate_limit", row["pace"]["started_at"], hold, hold.why))
    return found


def _limit(by: str, since: str | None, hold: Hold, why: str) -> Row:
    return {"by": by, "of": "agent", "who": "", "since": since, "until": iso(hold.at_ms), "why": why}


@dataclass(frozen=True, slots=True)
class _Of:
    """The limits of a session as of ``now_ms``; ``account``: the one that its agent's sessions share."""

    now_ms: int
    rate: Rate
    account: Account | None


class Limits:
    """Finds the limits of sessions, each agent's once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._agents: dict[str, _Of | None] = {}

    async def of(self, row: Row) -> _Of | None:
        """Those of an idle session; nothing else begins a turn by itself."""
        if row["status"] != "idle":
            return None
        name = str(row["agent"])
        if name not in self._agents:
            self._agents[name] = await self._find(SessionRef(row["workspace"], row["name"]), name)
        return self._agents[name]

    async def _find(self, ref: SessionRef, name: str) -> _Of | None:
        try:
            agent = await self._parts.agents.get(ref.workspace, name)
        except NotFound:
            return None
        shared = shared_rate_of(agent, self._parts.settings)
        account = await self._parts.paces.read(ref, name, shared) if shared else None
        return _Of(self._parts.clock.now_ms(), rate_of(agent, self._parts.settings), account)


def _anchor(row: Row) -> Anchor:
    """As much of the anchor as limits are decided by."""
    return Anchor(
        workspace=row["workspace"],
        session=row["name"],
        agent=row["agent"],
        pace=Pace(**row["pace"]) if row["pace"] else None,
        runs_without_progress=row["runs_without_progress"],
        last_run_timestamp=row["last_run_timestamp"],
    )


def _input(wake: Row) -> Input:
    return Input(wake["sequence"], wake["input_id"], wake["kind"], PRIORITIES[wake["priority"]], 0)  # type: ignore[arg-type]  # as memory gives them
