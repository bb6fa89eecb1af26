"""The doctor's check of models: the last call to each model of an agent."""

from __future__ import annotations

import json
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.cli.checks import Check, failed, named, passed
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.topology.subjects import RPC_PLANNER

MODELS = "models"
REQUEST_S_MAX = 5.0


async def examine(bus: Bus, workspace: str) -> Check:
    """Report the planners' view of the models of a workspace's agents, without a call to a model."""
    question = json.dumps({"workspace": workspace}).encode()
    try:
        answer = json.loads(await bus.request(RPC_PLANNER.at(verb="models"), question, REQUEST_S_MAX))
    except AnchorWatchError as error:
        return failed(
            MODELS,
            f"no planner reports the state of the models: {error.message}",
            "check `anchorwatch status`",
        )
    if "error" in answer:
        return failed(MODELS, answer["error"]["message"], answer["error"]["hint"])
    rows: list[dict[str, Any]] = answer["result"]
    failing = [said for row in rows if (said := _trouble(row))]
    if failing:
        return failed(MODELS, named(failing), "`anchorwatch models` shows the details")
    return passed(MODELS, f"{len(rows)} in use; no failed calls")


def _trouble(row: dict[str, Any]) -> str:
    if row["problem"]:
        return f"{row['name']} cannot be called: {row['problem']}"
    if row["failures"]:
        why = row["fault"]["why"] if row["fault"] else "unknown reason"
        return f"{row['name']} at {row['endpoint']} failed {row['failures']} times in a row: {why}"
    return ""
