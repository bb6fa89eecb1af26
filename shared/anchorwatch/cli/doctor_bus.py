"""The doctor's checks of the bus: durability of acknowledged writes, streams, buckets and packs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from anchorwatch.bus.port import Bus, StreamMissing
from anchorwatch.cli import doctor_journal, doctor_services, doctor_stuck, doctor_wakes
from anchorwatch.cli.checks import Check, failed, passed, warned
from anchorwatch.cli.doctor_wakes import Neglected
from anchorwatch.core.errors import AnchorWatchError, NotFound
from anchorwatch.packs import registry
from anchorwatch.packs.port import HasHealth
from anchorwatch.service.connect import connect
from anchorwatch.service.provisioning import check_streams_exist
from anchorwatch.settings import DAY_S, Settings
from anchorwatch.topology.streams import BUCKETS, EVENTS, STREAMS

CONNECT_S_MAX = 5.0
REQUEST_S_MAX = 5.0
EVENTS_NEAR_SHARE = 0.85
"""Above the share at which the observer frees space."""
ASK_SERVER = "$SYS.REQ.SERVER.PING.JSZ"
REPLICAS_DURABLE = 3
"""With fewer copies, the loss of one node loses acknowledged writes."""


async def examine(mesh: Settings, system: Settings) -> tuple[list[Check], list[Neglected]]:
    """Run the checks that need the bus; also returns the sessions that have no scheduled wake-up.

    ``mesh``: the settings of the mesh's user. ``system``: those of the system account, which queries the servers.
    """
    checks = [await _durability(system)]
    try:
        bus = await connect(mesh, "anchorwatch-doctor", timeout_s=CONNECT_S_MAX)
    except AnchorWatchError as error:
        return [*checks, failed("bus", error.message, error.hint)], []
    try:
        checks += [await _streams(bus), await events(bus, mesh), await _buckets(bus), *await _packs(bus)]
        checks += [
            await doctor_services.models(bus, mesh.workspace),
            await doctor_services.requests(bus),
            await doctor_services.channels(bus),
        ]
        checks += await doctor_journal.examine(bus)
        checks += await doctor_stuck.examine(bus)
        try:
            wakes, neglected = await doctor_wakes.examine(bus)
        except AnchorWatchError as error:
            return [*checks, failed("wakes", error.message, error.hint)], []
        return [*checks, *wakes], neglected
    finally:
        await bus.close()


async def _durability(system: Settings) -> Check:
    """Query the running servers: a configuration file does not show what a server does."""
    try:
        bus = await connect(system, "anchorwatch-doctor-system", timeout_s=CONNECT_S_MAX)
        try:
            answers = await ask_servers(bus)
        finally:
            await bus.close()
    except AnchorWatchError as error:
        return failed("durable", f"a server did not report its sync settings: {error.message}", error.hint)
    return judge(answers, system.nats_replicas)


async def ask_servers(system: Bus) -> list[dict[str, Any]]:
    """The JetStream status of each server of the cluster, by a connection to the system account.

    Raises:
        Unavailable: a server did not answer.
    """
    first = await _ask(system)
    group = first.get("data", {}).get("meta_cluster", {})
    others = {str(each.get("name", "")) for each in group.get("replicas") or ()}
    others.add(str(group.get("leader", "")))
    others -= {"", str(first.get("server", {}).get("name", ""))}
    return [first, *[await _ask(system, server_name=name, exact_match=True) for name in sorted(others)]]


async def _ask(system: Bus, **which: object) -> dict[str, Any]:
    question = json.dumps({"config": True, **which}).encode()
    answer: dict[str, Any] = json.loads(await system.request(ASK_SERVER, question, REQUEST_S_MAX))
    return answer


def judge(answers: Sequence[dict[str, Any]], replicas: int) -> Check:
    """Check that servers with these answers keep each acknowledged write."""
    for answer in answers:
        config = answer.get("data", {}).get("config", {})
        if not config.get("sync_always", False):
            interval_s = config.get("sync_interval", 0) / 1e9
            name = answer.get("server", {}).get("name", "")
            return failed(
                "durable",
                f"no: server {name} syncs to disk every {interval_s:.0f} s; a power cut loses the writes since the last sync",
                "set jetstream { sync_interval: always } on every server",
            )
    size = max((each["data"].get("meta_cluster", {}).get("cluster_size", 1) for each in answers), default=1)
    if size > 1 and replicas < REPLICAS_DURABLE:
        return failed(
            "durable",
            f"no: {size} servers with {replicas} copies of each stream: one lost disk loses data",
            "set ANCHORWATCH_NATS_REPLICAS=3",
        )
    where = f"{size} servers, {replicas} copies" if size > 1 else "one server: a lost disk loses all data"
    return passed("durable", f"yes: the server syncs each write before it acknowledges it ({where})")


async def _streams(bus: Bus) -> Check:
    try:
        await check_streams_exist(bus)
    except AnchorWatchError as error:
        return failed("streams", error.message, error.hint)
    for spec in STREAMS:
        try:
            # Read first: `ensure_stream` would create it, and the doctor changes nothing.
            await bus.stream_state(spec.name)
            await bus.ensure_stream(spec)
        except (StreamMissing, NotFound):
            return failed(
                "streams",
                f"{spec.name} is missing",
                "start the services: each creates missing streams and buckets",
            )
        except AnchorWatchError as error:
            return failed("streams", f"{spec.name}: {error.message}", error.hint)
    return passed("streams", f"{', '.join(spec.name for spec in STREAMS)} have their required configuration")


async def events(bus: Bus, settings: Settings) -> Check:
    """The limits of the stream of events, and how much of them is used."""
    try:
        state, limits = await asyncio.gather(bus.stream_state(EVENTS), bus.limits(EVENTS))
    except AnchorWatchError as error:
        return failed("events", error.message, error.hint)
    if limits.bytes_max <= 0:
        return warned(
            "events",
            "EVENTS has no limit of bytes: a publisher can fill the disk",
            "start an observer: it sets ANCHORWATCH_EVENTS_BYTES_MAX",
        )
    text = (
        f"{_mib(state.bytes)} of {_mib(limits.bytes_max)} used; an event at most {limits.message_bytes_max // 1024} KiB,"
        f" kept for {limits.age_max_s / DAY_S:g} days; at most {settings.publisher_connections_max} connections of"
        " publishers to the embedded server"
    )
    if state.bytes > limits.bytes_max * EVENTS_NEAR_SHARE:
        return warned(
            "events",
            f"nearly full, and then new events are refused: {text}",
            "the observer removes events that it has routed: check that it runs and follows (`anchorwatch status`),"
            " or raise ANCHORWATCH_EVENTS_BYTES_MAX",
        )
    return passed("events", text)


def _mib(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"


async def _buckets(bus: Bus) -> Check:
    for spec in BUCKETS:
        try:
            await (await bus.bucket(spec.name)).revision()
            await bus.ensure_bucket(spec)
        except (StreamMissing, NotFound):
            return failed(
                "buckets",
                f"{spec.name} is missing",
                "start the services: each creates missing streams and buckets",
            )
        except AnchorWatchError as error:
            return failed("buckets", f"{spec.name}: {error.message}", error.hint)
    return passed("buckets", f"{', '.join(spec.name for spec in BUCKETS)} have their required configuration")


async def _packs(bus: Bus) -> list[Check]:
    checks = []
    for pack in map(registry.load, registry.names()):
        if isinstance(pack, HasHealth):
            health = await pack.health(bus)
            checks.append(
                warned(pack.name, "its system does not answer (expected if this mesh does not run it)")
                if health is None
                else passed(pack.name, health)
            )
    return checks
