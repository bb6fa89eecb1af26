"""The forms of rows in the API, and sums of usage."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from anchorwatch.core.session.spending import COST, ESTIMATED, MICROS
from anchorwatch.core.times import iso

from anchorwatch_memory.fold.items import PLACES
from anchorwatch_memory.reads.pages import Row, select

DAYS_MAX = 31
_SUMS = (
    "sum(calls) AS calls, sum(prompt) AS prompt, sum(completion) AS completion, sum(micros) AS micros,"
    " sum(estimated) AS estimated"
)


def at(value: int | None) -> str | None:
    """An instant, if any."""
    return None if value is None else iso(value)


def agent(reference: str) -> dict[str, Any]:
    """The parts of ``name@version``."""
    name, _, version = reference.partition("@")
    return {"agent": name, "agent_version": int(version) if version.isdecimal() else 0}


def session(row: Row) -> dict[str, Any]:
    """A session in a list."""
    anchor = json.loads(row["anchor"])
    names = (
        "run_id",
        "run_count",
        "generation",
        "last_run_id",
        "last_run_timestamp",
        "last_run_outcome",
        "last_run_reason",
        "runs_without_progress",
        "runs_by_rules",
        "emergency",
        "inputs_refused",
        "next_check_at",
        "pace",
    )
    return {
        "name": row["session"],
        "workspace": row["workspace"],
        **agent(row["agent"]),
        "status": row["status"],
        "quarantine": json.loads(row["quarantine"]) if row["quarantine"] else None,
        "paused": json.loads(row["paused"]) if row["paused"] else None,
        **{name: anchor[name] for name in names},
        "turn_id": anchor["turn"]["id"] if anchor["turn"] else None,
        "created_at": iso(row["created_at_ms"]),
        "changed_at": iso(row["changed_at_ms"]),
        "sequence": row["sequence"],
    }


def turn(row: Row) -> dict[str, Any]:
    """A turn without its steps."""
    return {
        "turn_id": row["turn_id"],
        "run_id": row["run_id"],
        "session": row["session"],
        "status": row["status"],
        "outcome": row["outcome"],
        "reason": row["reason"],
        "started_at": iso(row["started_at_ms"]),
        "ended_at": at(row["ended_at_ms"]),
        "sequence": row["sequence"],
        "ended_sequence": row["ended_sequence"],
        "woken_by": row["woken_by"],
        "inputs_through": row["inputs_through"],
        "generations": [
            {**{k: v for k, v in holder.items() if k != "at_ms"}, "at": iso(holder["at_ms"])}
            for holder in json.loads(row["holders"])
        ],
    }


def step(row: Row) -> dict[str, Any]:
    """A step without its calls."""
    observation = json.loads(row["observation"]) if row["observation"] else None
    if observation:
        observation = {"digest": observation["digest"], "at": iso(observation["at_ms"])}
    return {
        "step": row["step"],
        "at": iso(row["at_ms"]),
        "sequence": row["sequence"],
        "text": row["text"],
        "observation": observation,
        "prompt": json.loads(row["prompt"]) if row["prompt"] else None,
        "usage": usage(json.loads(row["usage"])),
        **_in_vain(json.loads(row["context"])),
        "rejected": [
            {"n": n, "tool": tool, "label": label, "raw": raw, "reason": reason}
            for n, tool, label, raw, reason in json.loads(row["rejected"])
        ],
    }


def _in_vain(context: dict[str, Any]) -> dict[str, Any]:
    """The model that answered and those that failed, by their names; empty if the first one answered."""
    if "in_vain" not in context:
        return {}
    failed = [{"model": name, "code": code} for name, code in context["in_vain"]]
    return {"answered_by": context.get("model", ""), "in_vain": failed}


def item(row: Row) -> dict[str, Any]:
    """An entry of the conversation."""
    return {
        "id": f"item-{row['id'] // PLACES}-{row['id'] % PLACES}",
        "type": row["type"],
        "role": row["role"],
        "at": iso(row["at_ms"]),
        "session": row["session"],
        "run_id": row["run_id"],
        "turn_id": row["turn_id"],
        "step": row["step"],
        "sequence": row["sequence"],
        **json.loads(row["content"]),
    }


def wake(row: Row) -> dict[str, Any]:
    """A wake-up and its disposition."""
    return {
        "input_id": row["input_id"],
        "session": row["session"],
        "sequence": row["sequence"],
        "kind": row["kind"],
        "priority": f"P{row['priority']}",
        "source": row["source"],
        "type": row["type"],
        "text": row["text"],
        "by": row["who"],
        "accepted_at": iso(row["accepted_at_ms"]),
        "expires_at": at(row["expires_at_ms"]),
        "disposition": row["disposition"],
        "run_id": row["run_id"],
        "turn_id": row["turn_id"],
        "reason": row["reason"],
    }


def effect(row: Row) -> dict[str, Any]:
    """A command and its effect."""
    return {
        "call": f"{row['session']}/{row['run_id']}.{row['step']}.{row['n']}",
        "session": row["session"],
        "run_id": row["run_id"],
        "turn_id": row["turn_id"],
        "generation": row["generation"],
        "agent": row["agent"],
        "pool": row["pool"],
        "tool": row["tool"],
        "args": json.loads(row["args"]),
        "resource": row["resource"],
        "state": row["state"],
        "owner": row["owner"],
        "incarnation": row["incarnation"],
        "claim_sequence": row["claim_sequence"],
        "attempts": row["attempts"],
        "effect_key": row["effect_key"],
        "text": row["text"],
        "data": json.loads(row["data"]),
        "rule": row["rule"],
        "error": row["error"],
        "after": json.loads(row["waits_for"]),
        "blocks": row["resource"] if row["state"] == "unknown" else "",
        "settled_by": row["settled_by"],
        "verdict": row["verdict"],
        "note": row["note"],
        "late": row["late"],
        "sequence": row["sequence"],
        "outcome_sequence": row["outcome_sequence"],
        "decided_at": iso(row["decided_at_ms"]),
        "claimed_at": at(row["claimed_at_ms"]),
        "ended_at": at(row["ended_at_ms"]),
    }


def delivery(row: Row) -> dict[str, Any]:
    """A notification and its result."""
    return {
        "delivery_id": row["delivery_id"],
        "session": row["session"],
        "channel": row["channel"],
        "channel_kind": row["channel_kind"],
        "record": row["record"],
        "kinds": json.loads(row["kinds"]),
        "title": row["title"],
        "state": row["state"],
        "owner": row["owner"],
        "claims": row["claims"],
        "error": row["error"],
        "first_at": iso(row["first_at_ms"]),
        "last_at": iso(row["last_at_ms"]),
        "sequence": row["sequence"],
    }


def artifact(row: Row) -> dict[str, Any]:
    """An artifact and its provenance."""
    return {
        "artifact_id": row["artifact_id"],
        "session": row["session"],
        "name": row["name"],
        "media_type": row["media_type"],
        "size_bytes": row["size_bytes"],
        "sha256": row["sha256"],
        "run_id": row["run_id"],
        "call": row["call"],
        "acting_as": row["acting_as"],
        "derived_from": json.loads(row["derived_from"]),
        "by": row["who"],
        "at": iso(row["at_ms"]),
        "sequence": row["sequence"],
    }


def memory(row: Row) -> dict[str, Any]:
    """A memory."""
    return {
        "memory_id": row["memory_id"],
        "session": row["session"],
        "call": row["call"],
        "topic": row["topic"],
        "text": row["text"],
        "at": iso(row["at_ms"]),
        "sequence": row["sequence"],
    }


def entry(row: Row) -> dict[str, Any]:
    """An entry of the timeline."""
    return {
        "sequence": row["sequence"],
        "at": iso(row["at_ms"]),
        "session": row["session"],
        "kind": row["kind"],
        "what": row["what"],
        "why": row["why"],
        "who": row["who"],
        **json.loads(row["ids"]),
        **json.loads(row["details"]),
        "run_id": row["run_id"],
        "turn_id": row["turn_id"],
    }


def usage(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded usage, with its ``cost`` in the currency of the prices."""
    shown = {name: recorded[name] for name in ("prompt", "completion", ESTIMATED) if name in recorded}
    return {**shown, "cost": recorded[COST] / MICROS} if COST in recorded else shown


def usage_of_run(db: sqlite3.Connection, key: tuple[str, str, int]) -> dict[str, Any]:
    """Of one run; empty if it called no language model."""
    where = "WHERE workspace = ? AND session = ? AND run_id = ?"
    (row,) = select(db, f"SELECT {_SUMS} FROM spending {where}", key)  # noqa: S608 - column names of this code
    if row["calls"] is None:
        return {}
    whole = _usage_row(row)
    return {
        name: value for name, value in whole.items() if value or name in ("calls", "prompt", "completion")
    }


def usage_of_session(db: sqlite3.Connection, workspace: str, session: str) -> dict[str, Any]:
    """In total, and for each of the last UTC days with a call, newest first."""
    key = (workspace, session)
    (ever,) = select(db, f"SELECT {_SUMS} FROM spending WHERE workspace = ? AND session = ?", key)  # noqa: S608 - column names of this code
    days = select(
        db,
        f"SELECT day, {_SUMS} FROM spending WHERE workspace = ? AND session = ?"  # noqa: S608 - column names of this code
        " GROUP BY day ORDER BY day DESC LIMIT ?",
        (*key, DAYS_MAX),
    )
    return {"ever": _usage_row(ever), "days": [{"day": _date(row["day"]), **_usage_row(row)} for row in days]}


def usage_of_all(db: sqlite3.Connection) -> dict[str, Any]:
    """Of all sessions, in total."""
    (ever,) = select(db, f"SELECT {_SUMS} FROM spending", ())  # noqa: S608 - column names of this code
    return _usage_row(ever)


def _usage_row(row: Row) -> dict[str, Any]:
    # A reservation may be settled on the day after it.
    counts = {name: max(0, row[name] or 0) for name in ("calls", "prompt", "completion", "estimated")}
    return {**counts, "cost": max(0, row["micros"] or 0) / MICROS}


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
