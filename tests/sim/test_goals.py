"""A numeric objective in the planner's real code: compared with what each turn observes, and told once when it is missed."""

from __future__ import annotations

from pathlib import Path

from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Direct
from anchorwatch.core.session.goals import MISSED_RUNS

from tests.sim.test_emergency import Scene, notices, playing

GOAL = "ready >= 5"


def test_missed_objective_is_one_notice_of_its_streak(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        def make(state: SessionState, id_: str) -> Direct:
            del state
            return Direct("ada", scene.mesh.server.now_ms(), "objectives", "set", (GOAL,), control_id=id_)

        await scene.mesh.order(scene.ref, "goal", make)
        before = (await scene.mesh.anchor(scene.ref)).objectives_missed.get(GOAL, 0)
        counts = [
            (await scene.next_turn()).objectives_missed.get(GOAL, 0) - before for _ in range(MISSED_RUNS + 1)
        ]
        assert counts == list(range(1, MISSED_RUNS + 2))
        missed = [each for each in notices(scene.mesh, scene.ref) if "objective_missed" in each.kinds]
        assert [each.data["missed"] for each in missed] == [[GOAL]]
        scene.sees(ready=5)
        assert (await scene.next_turn()).objectives_missed == {}

    playing(tmp_path, body, ready=3)
