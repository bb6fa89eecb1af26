"""The limits of the stream of events, by the settings and the disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.cli.doctor_bus import events
from anchorwatch.service.provisioning import events_limits
from anchorwatch.settings import Settings
from anchorwatch.testing.bus import SimServer, run
from anchorwatch.topology.streams import EVENTS, EVENTS_SPEC, StreamLimits

SMALL_DISK = 48 * 1024**2


@pytest.mark.parametrize(
    ("store", "settings", "bytes_max"),
    [
        (True, {}, SMALL_DISK // 8),
        (False, {}, 1024**3),
        (True, {"events_bytes_max": 30 * 1024**2}, 30 * 1024**2),
    ],
)
def test_stream_of_events_has_a_share_of_a_small_disk(
    *, store: bool, settings: dict[str, int], bytes_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store:
        (tmp_path / "nats").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=SMALL_DISK))
    limits = events_limits(Settings(data_dir=tmp_path, **settings))  # type: ignore[arg-type]  # each of its own type
    assert limits == StreamLimits(bytes_max, 30 * 86_400, 256 * 1024)


def test_doctor_shows_the_limits_and_warns_near_them() -> None:
    async def main() -> None:
        server = SimServer()
        server.ensure_stream(EVENTS_SPEC.with_limits(StreamLimits(10_000, 86_400, 4_096)))
        bus = server.connect()
        check = await events(bus, Settings())
        assert (check.state, check.name) == ("passed", "events")
        assert "an event at most 4 KiB, kept for 1 days" in check.detail
        for _ in range(3):
            await bus.publish(Message("aw.event.a.b.c", b"x" * 3_000))
        check = await events(bus, Settings())
        assert check.state == "warning"
        assert "nearly full" in check.detail
        await bus.set_limits(EVENTS, StreamLimits())
        assert "no limit of bytes" in (await events(bus, Settings())).detail

    run(main())
