"""The doctor's look at models: whether each that an agent asks has answered, the last time that it was asked."""

from __future__ import annotations

import json
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.cli.checks import Check, failed, named, passed
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.topology.subjects import RPC_PLANNER

MODELS = "models"
ASK_S_MAX = 5.0


async def examine(bus: Bus, workspace: str) -> Check:
    """What planners know of the models of a workspace's agents; nothing is asked of the models themselves."""
    question = json.dumps({"workspace": workspace}).encode()
    try:
        answer = json.loads(await bus.request(RPC_PLANNER.at(verb="models"), question, ASK_S_MAX))
    except AnchorWatchError as error:
        return failed(MODELS, f"no planner says how they are: {error.message}", "is one running?")
    if "error" in answer:
        return failed(MODELS, answer["error"]["message"], answer["error"]["hint"])
    rows: list[dict[str, Any]] = answer["result"]
    silent = [said for row in rows if (said := _trouble(row))]
    if silent:
        return failed(MODELS, named(silent), "`anchorwatch models` says more of each")
    return passed(MODELS, f"{len(rows)} asked by agents, and none was silent the last time")


def _trouble(row: dict[str, Any]) -> str:
    if row["problem"]:
        return f"{row['name']} cannot be asked: {row['problem']}"
    if row["failures"]:
        why = row["fault"]["why"] if row["fault"] else "it did not say why"
        return f"{row['name']} at {row['endpoint']} did not answer, {row['failures']} times in a row: {why}"
    return ""
