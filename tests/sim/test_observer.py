"""What the observer answers was looked at after it was asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from anchorwatch.packs import registry
from anchorwatch.service.observations import ask
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh

from tests.support.packs import BENCH, Sink, bench_agent


def test_observation_is_never_older_than_its_request(tmp_path: Path) -> None:
    """An agent that launches and looks again must not be shown the world before the launch, and launch once more."""

    async def main() -> None:
        mesh = SimMesh(probe_interval_s=0.1)
        registry.register(BENCH)
        sink = Sink(tmp_path)
        await mesh.open("observer")
        await mesh.session("s", bench_agent(tmp_path))
        for value in range(20):
            sink.set_world(ready=value, slow_s=0.05)
            await asyncio.sleep(0.01 * (value % 7))
            sink.set_world(ready=value + 100, slow_s=0.05)
            answers = await asyncio.gather(*(ask(mesh.bus, "default", "keeper") for _ in range(3)))
            assert [each.facts["ready"] for each in answers] == [value + 100] * 3
        await mesh.close()

    run_virtual(main(), 1)
