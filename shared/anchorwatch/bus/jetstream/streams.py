"""Makes streams, buckets and object stores, or compares existing ones with the topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anchorwatch.bus.jetstream.api import NANOSECONDS, NameTaken, api
from anchorwatch.bus.jetstream.link import Link
from anchorwatch.bus.port import StreamMissing, StreamState, ranges
from anchorwatch.core.errors import BadInput, ConfigDiffers, Unavailable
from anchorwatch.topology.streams import BucketSpec, Source, StreamLimits, StreamSpec

KV_HISTORY_MAX = 64
_DEDUPE_WINDOW_S = 120.0


def _plain(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _seconds(value: object) -> str:
    return f"{int(str(value)) / NANOSECONDS:g} s"


def _sources(value: object) -> str:
    return "; ".join(f"{name} {src} → {dest}" for name, src, dest in _source_rows(value)) or "none"


# Fields that must be equal: the topology's name, how to show a value, and the server's default.
_CHECKED: dict[str, tuple[str, Callable[[object], str], object]] = {
    "subjects": ("subjects", _plain, []),
    "retention": ("retention", _plain, "limits"),
    "storage": ("storage", _plain, "file"),
    "discard": ("discard", _plain, "old"),
    "max_msgs": ("messages_max", _plain, -1),
    "max_bytes": ("bytes_max", _plain, -1),
    "max_msg_size": ("message_bytes_max", _plain, -1),
    "max_age": ("age_max", _seconds, 0),
    "max_msgs_per_subject": ("per_subject_max", _plain, -1),
    "duplicate_window": ("dedupe_window", _seconds, 0),
    "num_replicas": ("replicas", _plain, 1),
    "allow_atomic": ("atomic_batches", _plain, False),
    "allow_msg_schedules": ("schedules", _plain, False),
    "allow_msg_ttl": ("message_ttl", _plain, False),
    "allow_direct": ("direct reads", _plain, False),
    "allow_rollup_hdrs": ("rollups", _plain, False),
    "deny_purge": ("deny_purge", _plain, False),
    "sources": ("sources", _sources, []),
}


class Streams:
    """Makes and checks streams over one connection. ``replicas``: of each stream that it makes."""

    def __init__(self, link: Link, replicas: int) -> None:
        self._link = link
        self._replicas = replicas

    async def ensure(self, wanted: Mapping[str, Any], *, adjustable: bool = False) -> None:
        """Make the stream, or compare the existing one.

        Raises:
            ConfigDiffers: it exists and differs; the message names each difference.
            Unavailable: another client is making it.
        """
        name = wanted["name"]
        try:
            found = await self.info(name)
        except StreamMissing:
            try:
                found = await api(self._link, f"STREAM.CREATE.{name}", wanted, f"make stream {name}")
            except NameTaken as taken:
                found = await self._made_by_another(name, taken)
        ignored = _limits_config(StreamLimits()) if adjustable else {}
        _compare({**wanted, **ignored}, {**found["config"], **ignored})

    async def ensure_stream(self, spec: StreamSpec) -> None:
        await self.ensure(stream_config(spec, self._replicas), adjustable=spec.adjustable)

    async def limits(self, name: str) -> StreamLimits:
        config = (await self.info(name))["config"]
        return StreamLimits(
            config.get("max_bytes", -1),
            config.get("max_age", 0) / NANOSECONDS,
            config.get("max_msg_size", -1),
        )

    async def set_limits(self, name: str, limits: StreamLimits) -> None:
        config, wanted = (await self.info(name))["config"], _limits_config(limits)
        if any(config.get(key) != value for key, value in wanted.items()):
            await api(self._link, f"STREAM.UPDATE.{name}", {**config, **wanted}, f"change stream {name}")

    async def ensure_bucket(self, spec: BucketSpec) -> None:
        await self.ensure(bucket_config(spec, self._replicas))

    async def ensure_object_store(self, name: str) -> None:
        await self.ensure(object_store_config(name, self._replicas))

    async def info(self, name: str, *, details: bool = False) -> dict[str, Any]:
        """The server's description of the stream; with ``details``, each deleted sequence too."""
        question = {"deleted_details": True} if details else None
        return await api(self._link, f"STREAM.INFO.{name}", question, f"stream {name}")

    async def _made_by_another(self, name: str, taken: NameTaken) -> dict[str, Any]:
        try:
            return await self.info(name)
        except StreamMissing:
            raise Unavailable(f"stream {name} is being made by another client: {taken}") from taken

    async def state(self, name: str) -> StreamState:
        state = (await self.info(name))["state"]
        return StreamState(state["first_seq"], state["last_seq"], state["messages"], state["bytes"])

    async def metadata(self, name: str) -> dict[str, str]:
        found: dict[str, str] = (await self.info(name))["config"].get("metadata") or {}
        # The server adds its own.
        return {key: value for key, value in found.items() if not key.startswith("_nats")}

    async def holes(self, name: str) -> list[tuple[int, int]]:
        """The sequences that the stream does not hold: deleted, or reported as lost by the server."""
        state = (await self.info(name, details=True))["state"]
        missing = {*(state.get("deleted") or ()), *((state.get("lost") or {}).get("msgs") or ())}
        first = state["first_seq"] if state["messages"] else state["last_seq"] + 1
        below = [(1, first - 1)] if first > 1 else []
        return below + ranges(sequence for sequence in missing if sequence >= first)

    async def counts(self, name: str, filter_: str) -> dict[str, int]:
        """The server's count of messages for each matching subject."""
        found, offset = dict[str, int](), 0
        while True:
            question = {"subjects_filter": filter_, "offset": offset}
            info = await api(self._link, f"STREAM.INFO.{name}", question, f"stream {name}")
            page: dict[str, int] = info["state"].get("subjects") or {}
            found |= page
            # Not len(found): a new subject moves known ones into the next page, where they repeat.
            offset += len(page)
            if not page or offset >= int(info.get("total", 0)):
                return found

    async def leader(self, name: str) -> str:
        """The name of the server that leads the stream; empty without a leader or a cluster."""
        cluster = (await self.info(name)).get("cluster") or {}
        return str(cluster.get("leader", ""))

    async def purge(self, stream: str, subject: str, keep_from: int | None = None) -> int:
        request: dict[str, Any] = {"filter": subject}
        if keep_from is not None:
            request["seq"] = keep_from
        answer = await api(self._link, f"STREAM.PURGE.{stream}", request, f"purge {subject} of {stream}")
        return int(answer.get("purged", 0))


def stream_config(spec: StreamSpec, replicas: int) -> dict[str, Any]:
    """The configuration of a stream for the server's API."""
    return {
        "name": spec.name,
        "subjects": list(spec.subjects),
        "retention": "workqueue" if spec.work_queue else "limits",
        "storage": "file",
        # Successive records share most of their bytes: names, headers, the anchor's fields.
        "compression": "s2",
        "max_msgs": -1,
        "max_consumers": -1,
        **_limits_config(spec.limits),
        "max_msgs_per_subject": spec.per_subject_max,
        # The server refuses a window longer than the age.
        "duplicate_window": int(
            min(spec.dedupe_window_s, spec.age_max_s or spec.dedupe_window_s) * NANOSECONDS
        ),
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_atomic": spec.atomic_batches,
        "allow_msg_schedules": spec.schedules,
        "allow_msg_ttl": spec.message_ttl,
        # The server turns it on for schedules. Elsewhere one header must not be able to empty a stream.
        "allow_rollup_hdrs": spec.schedules,
        **({"sources": _source_config(spec.sources)} if spec.sources else {}),
        **({"metadata": dict(spec.metadata)} if spec.metadata else {}),
    }


def _limits_config(limits: StreamLimits) -> dict[str, Any]:
    return {
        # By default the server would remove the oldest messages, perhaps before they were read.
        "discard": "new" if limits.bytes_max > 0 else "old",
        "max_bytes": limits.bytes_max,
        "max_age": int(limits.age_max_s * NANOSECONDS),
        "max_msg_size": limits.message_bytes_max,
    }


def bucket_config(spec: BucketSpec, replicas: int) -> dict[str, Any]:
    """The configuration of a key-value bucket, as any NATS client makes it."""
    if not 1 <= spec.history <= KV_HISTORY_MAX:
        raise BadInput(f"bucket {spec.name}: history is 1 to {KV_HISTORY_MAX}, not {spec.history}")
    return {
        "name": f"KV_{spec.name}",
        # A bucket with sources is written by the server alone.
        "subjects": [] if spec.sources else [f"$KV.{spec.name}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_consumers": -1,
        "max_msg_size": -1,
        "max_age": 0,
        "max_msgs_per_subject": spec.history,
        "duplicate_window": int(_DEDUPE_WINDOW_S * NANOSECONDS),
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": spec.key_ttl,
        "deny_delete": not spec.sources,
        **({"sources": _source_config(spec.sources)} if spec.sources else {}),
        # A view needs no sync for each message: the server copies again what a power cut takes.
        **({"persist_mode": "async"} if spec.sources and replicas == 1 else {}),
    }


def object_store_config(name: str, replicas: int) -> dict[str, Any]:
    """The configuration of an object store, as any NATS client makes it."""
    return {
        "name": f"OBJ_{name}",
        "subjects": [f"$O.{name}.C.>", f"$O.{name}.M.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_consumers": -1,
        "max_msg_size": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "duplicate_window": int(_DEDUPE_WINDOW_S * NANOSECONDS),
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
    }


def _source_config(sources: Sequence[Source]) -> list[dict[str, Any]]:
    return [
        {"name": source.stream, "subject_transforms": [{"src": source.src, "dest": source.dest}]}
        for source in sources
    ]


def _source_rows(value: object) -> list[tuple[str, str, str]]:
    rows = []
    for source in value if isinstance(value, list) else []:
        transforms = source.get("subject_transforms") or [
            {"src": source.get("filter_subject", ""), "dest": ""}
        ]
        rows += [(source["name"], each.get("src", ""), each.get("dest", "")) for each in transforms]
    return sorted(rows)


def _compare(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    differences = []
    for key, (name, shown, default) in _CHECKED.items():
        ours, theirs = wanted.get(key, default), found.get(key) or default
        same = (
            _source_rows(ours) == _source_rows(theirs)
            if key == "sources"
            else sorted(map(str, ours)) == sorted(map(str, theirs))
            if isinstance(ours, list) and isinstance(theirs, list)
            else ours == theirs
        )
        if not same:
            differences.append(f"{name} {shown(ours)} wanted, {shown(theirs)} found")
    if differences:
        raise ConfigDiffers(
            f"stream {wanted['name']}: {'; '.join(differences)}",
            hint="change it with `nats stream edit`, or start with another data directory; Anchor Watch does not change it",
        )
