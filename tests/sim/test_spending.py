"""A day's budget, in the planner's real code: when it is spent no model is asked, and the next day it goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path

from anchorwatch.core.agents import AgentSpec, Limits
from anchorwatch.core.session.spending import DAY_MS
from anchorwatch.models.corrected import UNPROVED_RATIO
from anchorwatch.models.port import ModelReply

from tests.sim.test_compaction import Scene, playing
from tests.sim.test_planner import agent, once

DAY_TOKENS = 4_000


def spec(tmp_path: Path) -> AgentSpec:
    made: AgentSpec = agent(tmp_path, once(), heartbeat_s=5, limits=Limits(day_tokens_max=DAY_TOKENS))
    return made


def never(number: int) -> ModelReply:
    raise AssertionError(f"nothing had to be summed up, and it was asked {number} times")


def test_daily_budget_stops_the_model_until_the_next_day(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        async def spent() -> bool:
            return (await scene.mesh.anchor(scene.ref)).last_run_outcome == "over_budget"

        await scene.mesh.until(spent, within_s=300)
        asked = len(scene.talker.sent)
        # Nothing is ever reported, so each request counts with the reserve of a count that nothing has proved.
        counted = [math.ceil(tokens * UNPROVED_RATIO) for tokens in scene.talker.sent]
        used = sum(counted)
        day = scene.mesh.server.now_ms() // DAY_MS
        assert used - counted[-1] < DAY_TOKENS <= used, "the call that spent the rest was the last"
        assert (await scene.state()).spent.ever.all == used, "what is not reported counts as it was counted"

        async def goes_on() -> bool:
            return len(scene.talker.sent) > asked

        scene.mesh.server.step_clock(24 * 3_600)
        await scene.mesh.until(goes_on, within_s=300)
        assert scene.mesh.server.now_ms() // DAY_MS > day
        assert (await scene.mesh.anchor(scene.ref)).last_run_outcome == "no_action"
        warned = [
            anchor["record"]["body"]["warning"]
            for anchor in await scene.mesh.anchors(scene.ref)
            if "warning" in json.dumps(anchor["record"])
        ]
        assert len(warned) == 1, "people hear of it once in a day"
        assert "of 4000 tokens" in warned[0]

    playing(spec(tmp_path), never, body)
