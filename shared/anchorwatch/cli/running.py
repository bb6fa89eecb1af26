"""The mesh that runs on a data directory: find it, show its status, stop it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.mesh import control
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.mesh.state import MeshFile, read_mesh

# Services, then the yard, then NATS: each may take as long as the supervisor allows.
STOP_S_MAX = 30.0
LOOK_S = 0.05
SHOWN_MAX = 1_000
"""More sessions or letters than this are not counted."""
ASKED = ("gateway", "memory")
"""The services that answer questions about sessions. If one is stopped, the question is skipped: it would only time out."""


def data_directory(flag: Path | None) -> DataDir:
    """The data directory: as the flag says, else as the settings say.

    Raises:
        BadSettings: the settings cannot be used.
    """
    if flag is not None:
        return DataDir.at(flag)
    from anchorwatch.settings import load

    return DataDir.at(load().data_dir)


def running_mesh(data: DataDir) -> MeshFile:
    """The mesh that runs on a data directory.

    Raises:
        Unavailable: none runs, or it is not ready yet.
    """
    holder = lock_holder(data)
    if holder is None:
        raise Unavailable(
            f"no mesh is running on {data.root}",
            hint="start it with `anchorwatch up`, or name one with --data-dir or --url",
        )
    mesh = read_mesh(data)
    if mesh is None:
        raise Unavailable(
            f"the mesh on {data.root} is starting or stopping",
            hint="`anchorwatch status` says when it is ready",
        )
    return mesh


def status(data: DataDir) -> dict[str, Any]:
    """The processes, as the supervisor and their presence entries (`heard.add`) tell.

    Raises:
        Unavailable: none runs.
    """
    from anchorwatch.cli import heard

    return heard.add(control.ask(data, {"verb": "status"}), data)


def attention(data: DataDir, state: dict[str, Any]) -> dict[str, Any]:
    """What needs a person: open dead letters and emergencies, and quarantined or held sessions with who and why.

    Null where it is unknown now. ``state``: as `status` gives it.
    """
    from anchorwatch.cli.api import Api

    found: dict[str, Any] = {
        "dead_letters_open": None,
        "quarantined": None,
        "held": None,
        "emergencies": None,
        "journal_lost": None,
    }
    mesh = read_mesh(data)
    if mesh is None or not all(each["ready"] for each in state["processes"] if each["service"] in ASKED):
        return found
    with contextlib.suppress(AnchorWatchError), Api(mesh.api_url, mesh.token, retry_s=0.0) as api:
        found["dead_letters_open"] = len(api.pages("/api/dead-letters", SHOWN_MAX, state="open"))
        loss = api.get("/api/journal")
        found["journal_lost"] = (
            [[each["first"], each["through"]] for each in loss["gaps"]] if loss["held"] else []
        )
        sessions = api.pages("/api/sessions", SHOWN_MAX)
        damaged = [each for each in sessions if each["quarantine"]]
        found["quarantined"] = [{"session": each["name"], **each["quarantine"]} for each in damaged]
        found["emergencies"] = [
            {"session": each["name"], "emergency": each["emergency"]}
            for each in sessions
            if each["emergency"]
        ]
        found["held"] = [
            {"session": each["name"], "held": kept}
            for each in sessions
            if (kept := [hold for hold in each.get("held", ()) if hold["by"] != "quarantine"])
        ]
    return found


def status_text(state: dict[str, Any]) -> str:
    """The status, for people."""
    from anchorwatch.cli.holding import emergency, held
    from anchorwatch.cli.render import local_time, one_line, table

    rows = [
        [
            each["instance"],
            said(each),
            str(each["pid"] or "-"),
            local_time(each["since"]),
            str(each["restarts"]),
            each["log"],
        ]
        for each in state["processes"]
    ]
    head = f"{'ready' if state['ready'] else 'not ready'}: {state['api_url']} · {state['nats_url']} · pid {state['pid']}"
    if not state["bus"]:
        head += "\nthe NATS server does not answer; the state of the other processes is unknown"
    elif state.get("dead_letters_open") is None:
        head += "\ndead letters and held sessions are unknown: the gateway or memory does not answer"
    if lost := state.get("journal_lost"):
        ranges = ", ".join(f"{first} to {through}" for first, through in lost)
        head += f"\nthe journal lost the records {ranges}: nothing starts until `anchorwatch journal accept`"
    if state.get("dead_letters_open"):
        head += f"\ndead letters: {state['dead_letters_open']} open; `anchorwatch dead-letters` lists them"
    for damaged in state.get("quarantined") or []:
        head += f"\nquarantined: {damaged['session']}: {one_line(damaged.get('reason', ''))}"
    for each in state.get("emergencies") or []:
        head += f"\nEMERGENCY: {each['session']}: {one_line(emergency(each))}"
    for each in state.get("held") or []:
        head += f"\nheld: {each['session']}: {one_line(held(each))}"
    return head + "\n" + table(["process", "state", "pid", "since", "restarts", "log"], rows)


def said(process: dict[str, Any]) -> str:
    """The state of a process, as text."""
    from anchorwatch.cli.render import local_time

    if process["ready"]:
        return "ready"
    if not process["announced"]:
        return "starting"
    return f"no heartbeat since {local_time(process['heard_at'])}" if process["heard_at"] else "no heartbeat"


def stop(data: DataDir) -> int | None:
    """Stop the mesh, and wait until it has ended; returns the supervisor's former pid, None if no mesh runs.

    Raises:
        Unavailable: it does not end.
    """
    if lock_holder(data) is None:
        return None
    pid = int(control.ask(data, {"verb": "stop"})["pid"])
    deadline = time.monotonic() + STOP_S_MAX
    # 0: its lock file was moved away, so the holder is unknown.
    while (holder := lock_holder(data)) is not None and holder.pid in (pid, 0):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the supervisor (pid {pid}) has not ended yet", hint=f"see {data.log('supervisor')}"
            )
        time.sleep(LOOK_S)
    return pid
