"""Consumers: made, or attached to when they are there and are as wanted."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from anchorwatch.bus.jetstream.api import CALL_TIMEOUT_S, NANOSECONDS, api
from anchorwatch.bus.jetstream.consumers import PULL_S_MAX, JetStreamConsumer, consumer_info, state_of
from anchorwatch.bus.jetstream.failures import NameTaken
from anchorwatch.bus.jetstream.link import Link
from anchorwatch.bus.jetstream.times import rfc3339
from anchorwatch.bus.port import ConsumerSpec, ConsumerState, Stored, StreamMissing
from anchorwatch.core.errors import ConfigDiffers, NotFound, Unavailable

EPHEMERAL_IDLE_S_MAX = 60.0
KEYS_A_FETCH = 1000


class Consumers:
    """Makes consumers over one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def consumer(self, spec: ConsumerSpec) -> JetStreamConsumer:
        name = spec.durable or f"e{secrets.token_hex(8)}"
        if spec.durable is None or not await self._attach(spec):
            await self._create(spec, name)
        consumer = JetStreamConsumer(self._link, spec.stream, name, ephemeral=spec.durable is None)
        try:
            await consumer.open()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def last_headers(self, stream: str, filter_: str) -> list[Stored]:
        """The last message of every subject that matches, without payload, however many there are."""
        name = f"k{secrets.token_hex(8)}"
        config = {
            "name": name,
            "ack_policy": "none",
            "deliver_policy": "last_per_subject",
            "filter_subject": filter_,
            "headers_only": True,
            "replay_policy": "instant",
            "inactive_threshold": int(PULL_S_MAX * NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        request = {"stream_name": stream, "config": config, "action": "create"}
        made = await api(
            self._link, f"CONSUMER.CREATE.{stream}.{name}.{filter_}", request, f"keys of {stream}"
        )
        found: list[Stored] = []
        consumer = JetStreamConsumer(self._link, stream, name, ephemeral=True)
        try:
            await consumer.open()
            while len(found) < made["num_pending"]:
                deliveries = await consumer.fetch(KEYS_A_FETCH, CALL_TIMEOUT_S)
                if not deliveries:
                    raise Unavailable(f"keys of {stream}: {len(found)} of {made['num_pending']} came")
                found += [delivery.stored for delivery in deliveries]
        finally:
            await consumer.close()
        return found

    async def delete(self, stream: str, durable: str) -> None:
        await api(
            self._link, f"CONSUMER.DELETE.{stream}.{durable}", None, f"delete consumer {durable} of {stream}"
        )

    async def states(self, stream: str) -> dict[str, ConsumerState]:
        """How far each durable consumer is; the server tells of some hundred at a time."""
        found: dict[str, ConsumerState] = {}
        offset = 0
        while True:
            page = await api(
                self._link, f"CONSUMER.LIST.{stream}", {"offset": offset}, f"consumers of {stream}"
            )
            rows = page.get("consumers") or []
            found |= {row["name"]: state_of(row) for row in rows if row["config"].get("durable_name")}
            offset += len(rows)
            if not rows or offset >= page["total"]:
                return found

    async def _attach(self, spec: ConsumerSpec) -> bool:
        """Whether the durable consumer exists, and is as ``spec`` says."""
        try:
            info = await consumer_info(self._link, spec.stream, str(spec.durable))
        except StreamMissing:
            raise
        except NotFound:
            return False
        found = info["config"]
        if spec.filters_before and set(_filters(found)) == set(spec.filters_before):
            found = await self._filter_anew(spec, found)
        _compare(spec, found)
        return True

    async def _filter_anew(self, spec: ConsumerSpec, found: Mapping[str, Any]) -> dict[str, Any]:
        config = {key: value for key, value in found.items() if not key.startswith("filter_subject")}
        config |= _filtering(spec)
        subject = f"CONSUMER.CREATE.{spec.stream}.{spec.durable}"
        if len(spec.filters) == 1:
            subject += f".{spec.filters[0]}"
        request = {"stream_name": spec.stream, "config": config, "action": "update"}
        answer = await api(self._link, subject, request, f"filters of consumer {spec.durable}")
        return dict(answer["config"])

    async def _create(self, spec: ConsumerSpec, name: str) -> None:
        request = {"stream_name": spec.stream, "config": _config(spec, name), "action": "create"}
        subject = f"CONSUMER.CREATE.{spec.stream}.{name}"
        if len(spec.filters) == 1:
            # So permissions can limit who reads what.
            subject += f".{spec.filters[0]}"
        try:
            await api(self._link, subject, request, f"consumer {name} of {spec.stream}")
        except NameTaken as taken:
            if spec.durable is None or not await self._attach(spec):
                raise Unavailable(
                    f"consumer {name} of {spec.stream} is being made by somebody else: {taken}"
                ) from taken


def _config(spec: ConsumerSpec, name: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": int(spec.ack_wait_s * NANOSECONDS),
        "max_ack_pending": spec.ack_pending_max,
        "replay_policy": "instant",
        "deliver_policy": "all",
    }
    config |= _filtering(spec)
    if spec.durable is None:
        config["inactive_threshold"] = int(EPHEMERAL_IDLE_S_MAX * NANOSECONDS)
    else:
        config["durable_name"] = name
    if spec.start_sequence is not None:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": max(spec.start_sequence, 1)}
    elif spec.start_time_ms is not None:
        config |= {"deliver_policy": "by_start_time", "opt_start_time": rfc3339(spec.start_time_ms)}
    return config


def _filtering(spec: ConsumerSpec) -> dict[str, Any]:
    if len(spec.filters) == 1:
        return {"filter_subject": spec.filters[0]}
    return {"filter_subjects": list(spec.filters)} if spec.filters else {}


def _filters(config: Mapping[str, Any]) -> list[str]:
    return config.get("filter_subjects") or [each for each in [config.get("filter_subject")] if each]


def _compare(spec: ConsumerSpec, found: Mapping[str, Any]) -> None:
    """Check an existing consumer.

    Raises:
        ConfigDiffers: it cannot serve; each difference is named.
    """
    filters = _filters(found)
    ack_wait_s = found.get("ack_wait", 0) / NANOSECONDS
    differences = []
    if set(filters) != set(spec.filters):
        differences.append(f"filters {_list(spec.filters)} wanted, {_list(filters)} found")
    if ack_wait_s != spec.ack_wait_s:
        differences.append(f"ack_wait {spec.ack_wait_s:g} s wanted, {ack_wait_s:g} s found")
    if found.get("ack_policy") != "explicit":
        differences.append(f"ack_policy explicit wanted, {found.get('ack_policy')} found")
    if differences:
        raise ConfigDiffers(
            f"consumer {spec.durable} of {spec.stream}: {'; '.join(differences)}",
            hint="delete the consumer to have it made anew; its place in the stream is lost with it",
        )


def _list(filters: object) -> str:
    return ", ".join(sorted(map(str, filters))) if isinstance(filters, (list, tuple)) and filters else "none"
