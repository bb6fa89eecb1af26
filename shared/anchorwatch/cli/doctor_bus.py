"""The doctor's look at the bus: whether what was acknowledged is safe, and the streams are as they must be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anchorwatch.bus.port import Bus, StreamMissing
from anchorwatch.cli import doctor_journal, doctor_models, doctor_stuck, doctor_wakes
from anchorwatch.cli.checks import Check, failed, note, passed
from anchorwatch.cli.doctor_wakes import Neglected
from anchorwatch.core.errors import AnchorWatchError, NotFound
from anchorwatch.packs import registry
from anchorwatch.packs.port import HasHealth
from anchorwatch.service.connect import connect
from anchorwatch.service.provisioning import check_streams_exist
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import BUCKETS, STREAMS

CONNECT_S_MAX = 5.0
ASK_S_MAX = 5.0
ASK_SERVER = "$SYS.REQ.SERVER.PING.JSZ"
REPLICAS_DURABLE = 3
"""A cluster that keeps fewer copies loses what was acknowledged with one node."""


async def examine(mesh: Settings, system: Settings) -> tuple[list[Check], list[Neglected]]:
    """Look at the bus as the mesh's own user, and ask the server about itself as the system's; and what stands still."""
    checks = [await _durability(system)]
    try:
        bus = await connect(mesh, "anchorwatch-doctor", timeout_s=CONNECT_S_MAX)
    except AnchorWatchError as error:
        return [*checks, failed("bus", error.message, error.hint)], []
    try:
        checks += [await _streams(bus), await _buckets(bus), *await _packs(bus)]
        checks.append(await doctor_models.examine(bus, mesh.workspace))
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
    """From the servers themselves: what a file says is not what a server does."""
    try:
        bus = await connect(system, "anchorwatch-doctor-system", timeout_s=CONNECT_S_MAX)
        try:
            answers = await ask_servers(bus)
        finally:
            await bus.close()
    except AnchorWatchError as error:
        return failed("durable", f"a server does not say how it writes: {error.message}", error.hint)
    return judge(answers, system.nats_replicas)


async def ask_servers(system: Bus) -> list[dict[str, Any]]:
    """What each server of the cluster says of its JetStream; ``system``: a connection to the system's account.

    Raises:
        Unavailable: one of them does not answer.
    """
    first = await _ask(system)
    group = first.get("data", {}).get("meta_cluster", {})
    others = {str(each.get("name", "")) for each in group.get("replicas") or ()}
    others.add(str(group.get("leader", "")))
    others -= {"", str(first.get("server", {}).get("name", ""))}
    return [first, *[await _ask(system, server_name=name, exact_match=True) for name in sorted(others)]]


async def _ask(system: Bus, **which: object) -> dict[str, Any]:
    question = json.dumps({"config": True, **which}).encode()
    answer: dict[str, Any] = json.loads(await system.request(ASK_SERVER, question, ASK_S_MAX))
    return answer


def judge(answers: Sequence[dict[str, Any]], replicas: int) -> Check:
    """Whether servers that say this of themselves keep what they acknowledged."""
    for answer in answers:
        config = answer.get("data", {}).get("config", {})
        if not config.get("sync_always", False):
            interval_s = config.get("sync_interval", 0) / 1e9
            name = answer.get("server", {}).get("name", "")
            return failed(
                "durable",
                f"no: the server {name} syncs to disk every {interval_s:.0f} s, and a power cut takes what it acknowledged since",
                "set jetstream { sync_interval: always } on every server",
            )
    size = max((each["data"].get("meta_cluster", {}).get("cluster_size", 1) for each in answers), default=1)
    if size > 1 and replicas < REPLICAS_DURABLE:
        return failed(
            "durable",
            f"no: {size} servers, and {replicas} copies of each stream: one lost disk takes what it held",
            "set ANCHORWATCH_NATS_REPLICAS=3",
        )
    where = f"{size} servers, {replicas} copies" if size > 1 else "one server: a lost disk takes everything"
    return passed("durable", f"yes: the server syncs each write before it acknowledges it ({where})")


async def _streams(bus: Bus) -> Check:
    try:
        await check_streams_exist(bus)
    except AnchorWatchError as error:
        return failed("streams", error.message, error.hint)
    for spec in STREAMS:
        try:
            # Looked for first: to ensure it would make it, and a doctor changes nothing.
            await bus.stream_state(spec.name)
            await bus.ensure_stream(spec)
        except (StreamMissing, NotFound):
            return failed(
                "streams", f"{spec.name} is missing", "start the services: each makes what is missing"
            )
        except AnchorWatchError as error:
            return failed("streams", f"{spec.name}: {error.message}", error.hint)
    return passed("streams", f"{', '.join(spec.name for spec in STREAMS)} are as they must be")


async def _buckets(bus: Bus) -> Check:
    for spec in BUCKETS:
        try:
            await (await bus.bucket(spec.name)).revision()
            await bus.ensure_bucket(spec)
        except (StreamMissing, NotFound):
            return failed(
                "buckets", f"{spec.name} is missing", "start the services: each makes what is missing"
            )
        except AnchorWatchError as error:
            return failed("buckets", f"{spec.name}: {error.message}", error.hint)
    return passed("buckets", f"{', '.join(spec.name for spec in BUCKETS)} are as they must be")


async def _packs(bus: Bus) -> list[Check]:
    checks = []
    for pack in map(registry.load, registry.names()):
        if isinstance(pack, HasHealth):
            health = await pack.health(bus)
            checks.append(
                note(pack.name, "its system does not answer (not expected of a mesh without it)")
                if health is None
                else passed(pack.name, health)
            )
    return checks
