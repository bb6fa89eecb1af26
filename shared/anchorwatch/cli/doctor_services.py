"""The doctor's requests to services: the models that planners call, and the channels by which the notifier reaches people.

The services answer, not the settings of the shell that runs the doctor.
"""

from __future__ import annotations

import json
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.cli.checks import Check, failed, named, note, passed, session, warned
from anchorwatch.cli.render import many
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.names import SessionRef
from anchorwatch.topology.streams import ANCHORS_BUCKET
from anchorwatch.topology.subjects import RPC_NOTIFIER, RPC_PLANNER

MODELS, CHANNELS, REQUESTS = "models", "notifications", "requests"
REQUEST_S_MAX = 5.0


async def models(bus: Bus, workspace: str) -> Check:
    """The planners' view of the models of a workspace's agents, without a call to a model."""
    try:
        rows = await _ask(bus, RPC_PLANNER.at(verb="models"), {"workspace": workspace})
    except AnchorWatchError as error:
        return failed(MODELS, f"no planner reports the state of the models: {error.message}", error.hint)
    if failing := [said for row in rows if (said := _trouble(row))]:
        return failed(MODELS, named(failing), "`anchorwatch models` shows the details")
    if not rows:
        return note(MODELS, f"no agent is defined in workspace {workspace}")
    return passed(MODELS, f"{named([_used(row) for row in rows])}; no failed calls")


async def requests(bus: Bus) -> Check:
    """Whether the part of each session's request that nothing shortens fits into its budget, by the planners' count."""
    view, broken = await bus.bucket(ANCHORS_BUCKET), []
    keys = sorted(await view.keys())
    for key in keys:
        ref = SessionRef(*key.split(".", 1))
        try:
            rows = await _ask(
                bus, RPC_PLANNER.at(verb="fixed"), {"workspace": ref.workspace, "session": ref.session}
            )
        except AnchorWatchError as error:
            return warned(
                REQUESTS, f"the request of {session(ref)} is not counted: {error.message}", error.hint
            )
        for row in rows:
            if row["tokens"] > row["budget"]:
                lines = f", with {row['labelled']} labelled lines" if row["labelled"] else ""
                broken.append(f"{session(ref)}: {row['tokens']} of {row['budget']} tokens{lines}")
    if broken:
        hint = "withdraw labelled lines (`anchorwatch critical`), shorten objectives, or raise context_tokens_max"
        return failed(REQUESTS, f"no turn can call a model, its request is too large: {named(broken)}", hint)
    return passed(REQUESTS, f"the fixed part fits in {many(len(keys), 'session')}")


async def channels(bus: Bus) -> Check:
    """Whether critical notices reach people."""
    try:
        rows = await _ask(bus, RPC_NOTIFIER.at(verb="channels"), {})
    except AnchorWatchError as error:
        return failed(CHANNELS, f"no notifier reports its channels: {error.message}", error.hint)
    if names := [f"{row['name']} ({row['kind']})" for row in rows if row["critical"]]:
        return passed(CHANNELS, f"critical notices are sent to {named(names)}")
    return warned(
        CHANNELS,
        "no channel gets every critical notice of the mesh; the log keeps them, and notifies no person",
        "set ANCHORWATCH_NOTIFY to a file of channels (docs/notifications.md)",
    )


async def _ask(bus: Bus, subject: str, question: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a service's answer.

    Raises:
        AnchorWatchError: it does not answer, or answers with an error.
    """
    answer = json.loads(await bus.request(subject, json.dumps(question).encode(), REQUEST_S_MAX))
    if "error" in answer:
        raise AnchorWatchError(answer["error"]["message"], hint=answer["error"]["hint"])
    rows: list[dict[str, Any]] = answer["result"]
    return rows


def _used(row: dict[str, Any]) -> str:
    by = f"of {', '.join(row['agents'])}"
    return f"{row['model']} at {row['endpoint']}, {by}" if row["is_llm"] else f"the rules of the pack, {by}"


def _trouble(row: dict[str, Any]) -> str:
    if row["problem"]:
        return f"{row['name']} cannot be called: {row['problem']}"
    if row["failures"]:
        why = row["fault"]["why"] if row["fault"] else "unknown reason"
        return f"{row['name']} at {row['endpoint']} failed {row['failures']} times in a row: {why}"
    return ""
