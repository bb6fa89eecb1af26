"""Compares an existing stream or consumer with the wanted spec, with the texts of the real bus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from anchorwatch.bus.port import ConsumerSpec
from anchorwatch.core.errors import ConfigDiffers
from anchorwatch.topology.streams import StreamSpec

_Spec = TypeVar("_Spec", StreamSpec, ConsumerSpec)
# A name, and the text of its value in a spec; equal texts are equal values.
_Rows = tuple[tuple[str, Callable[[_Spec], str]], ...]


def dedupe_window_s(spec: StreamSpec) -> float:
    """The server's dedupe window: not longer than the stream's maximum age."""
    return min(spec.dedupe_window_s, spec.age_max_s or spec.dedupe_window_s)


def _list(values: Iterable[str]) -> str:
    return ", ".join(sorted(values)) or "none"


def _on(value: bool) -> str:  # noqa: FBT001 - the value to show
    return "on" if value else "off"


_STREAM: _Rows[StreamSpec] = (
    ("subjects", lambda spec: _list(spec.subjects)),
    ("retention", lambda spec: "workqueue" if spec.work_queue else "limits"),
    ("discard", lambda spec: "new" if spec.bytes_max > 0 else "old"),
    ("bytes_max", lambda spec: str(spec.bytes_max)),
    ("message_bytes_max", lambda spec: str(spec.message_bytes_max)),
    ("age_max", lambda spec: f"{spec.age_max_s:g} s"),
    ("per_subject_max", lambda spec: str(spec.per_subject_max)),
    ("dedupe_window", lambda spec: f"{dedupe_window_s(spec):g} s"),
    ("atomic_batches", lambda spec: _on(spec.atomic_batches)),
    ("schedules", lambda spec: _on(spec.schedules)),
    ("message_ttl", lambda spec: _on(spec.message_ttl)),
    ("sources", lambda spec: _list(f"{each.stream} {each.src} → {each.dest}" for each in spec.sources)),
)
_CONSUMER: _Rows[ConsumerSpec] = (
    ("filters", lambda spec: _list(spec.filters)),
    ("ack_wait", lambda spec: f"{spec.ack_wait_s:g} s"),
)


def check_stream(found: StreamSpec, wanted: StreamSpec) -> None:
    """Compare two specs of one stream.

    Raises:
        ConfigDiffers: they differ; the message names each difference.
    """
    if wanted.adjustable:
        found = found.with_limits(wanted.limits)
    _check(f"stream {wanted.name}", _STREAM, found, wanted)


def check_consumer(name: str, found: ConsumerSpec, wanted: ConsumerSpec) -> None:
    """Compare two specs of one durable consumer, without its start.

    Raises:
        ConfigDiffers: they differ; the message names each difference.
    """
    _check(f"consumer {name} of {wanted.stream}", _CONSUMER, found, wanted)


def _check(what: str, rows: _Rows[_Spec], found: _Spec, wanted: _Spec) -> None:
    differences = [
        f"{name} {shown(wanted)} wanted, {shown(found)} found"
        for name, shown in rows
        if shown(wanted) != shown(found)
    ]
    if differences:
        raise ConfigDiffers(f"{what}: {'; '.join(differences)}")


__all__ = ["check_consumer", "check_stream", "dedupe_window_s"]
