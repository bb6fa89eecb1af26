"""The yard's instances: in memory for speed, and in the database for the next yard after a crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anchorwatch.packs import NotFound, Refused

from anchorwatch_fleet.instances import (
    LAST_ERROR_CHARS_MAX,
    Instance,
    Priority,
    Report,
    State,
)
from anchorwatch_fleet.yard.book import Book

HUNG_AFTER_S = 6.0
LOADING_S_MAX = 30.0
ENDED_LISTED_MAX = 20


class Roster:
    """Instances by id. A change of state is on disk before the call returns; job counts need not be: they are reported again."""

    def __init__(self, book: Book, now_ms: Callable[[], int]) -> None:
        self._book = book
        self._now_ms = now_ms
        self._instances = {each.id: each for each in book.instances()}
        self._heard_ms: dict[str, int] = {}

    def find(self, instance_id: str) -> Instance | None:
        return self._instances.get(instance_id)

    def get(self, instance_id: str) -> Instance:
        """The instance with this id.

        Raises:
            NotFound: the id is unknown; the hint lists live instances.
        """
        instance = self._instances.get(instance_id)
        if instance is None:
            live = ", ".join(each.id for each in self.live()) or "none"
            raise NotFound(f"unknown instance {instance_id!r}", hint=f"live: {live}")
        return instance

    def live(self) -> list[Instance]:
        return [each for each in self._instances.values() if each.live]

    def listed(self) -> list[Instance]:
        """Live instances and the latest ended ones, oldest first."""
        ended = sorted(
            (each for each in self._instances.values() if not each.live), key=lambda each: each.since_ms
        )
        shown = {each.id for each in ended[-ENDED_LISTED_MAX:]}
        return [each for each in self._instances.values() if each.live or each.id in shown]

    def check_room(self, count: int, limit: int | None) -> None:
        """Check that ``count`` more fit below the limit.

        Raises:
            Refused: they do not.
        """
        live = len(self.live())
        if limit is not None and live + count > limit:
            raise Refused(f"{live} live and {count} more would exceed the limit of {limit}")

    # ------------------------------------------------------------ changes

    def begin(self, instance_id: str, epoch: int, effect_key: str, priority: Priority) -> None:
        """Record that an instance, or a new epoch of it, is about to load."""
        before = self._instances.get(instance_id)
        self._heard_ms.pop(instance_id, None)
        self._set(
            Instance(
                instance_id,
                "loading",
                self._now_ms(),
                epoch=epoch,
                priority=before.priority if before else priority,
                effect_key=effect_key,
                jobs_done=0,
                # Its earlier rate still estimates its speed.
                rate_ph=before.rate_ph if before else None,
            )
        )

    def started(self, instance_id: str, pid: int) -> None:
        """Record its process."""
        self._set(replace(self._instances[instance_id], pid=pid))

    def end(
        self, instance_id: str, state: State, error: str, status: int | None = None, signal: int | None = None
    ) -> None:
        """Record the end of a live instance as ``stopped`` or ``exited``; an ended one stays unchanged."""
        instance = self._instances.get(instance_id)
        if instance is not None and instance.live:
            self._set(
                replace(
                    instance,
                    state=state,
                    since_ms=self._now_ms(),
                    pid=None,
                    job=None,
                    last_error=error[:LAST_ERROR_CHARS_MAX],
                    exit_status=status,
                    exit_signal=signal,
                )
            )

    def lose(self, instance_id: str, state: State, error: str) -> None:
        """As `end`, without its last reports: its stored job count is from its start and therefore dropped."""
        instance = self._instances.get(instance_id)
        if instance is not None and instance.live:
            self._instances[instance_id] = replace(instance, jobs_done=None)
        self.end(instance_id, state, error)

    def hear(self, report: Report) -> None:
        """Apply a worker's report. A report of an ended instance or epoch is ignored."""
        instance = self._instances.get(report.instance)
        if instance is None or not instance.live or instance.epoch != report.epoch:
            return
        self._heard_ms[instance.id] = self._now_ms()
        said = replace(
            instance,
            jobs_done=report.jobs_done,
            rate_ph=report.rate_ph if report.rate_ph is not None else instance.rate_ph,
            job=report.job,
            job_done_at_ms=report.job_done_at_ms,
            last_error=report.last_error[:LAST_ERROR_CHARS_MAX],
        )
        if said.state == report.state:
            self._instances[said.id] = said
        else:
            self._set(replace(said, state=report.state, since_ms=self._now_ms()))

    def mark_hung(self, deaf_until_ms: int) -> None:
        """Mark instances as hung after a long silence, which counts from ``deaf_until_ms``, when the yard could listen."""
        now_ms = self._now_ms()
        for each in self.live():
            patience_s = LOADING_S_MAX if each.state == "loading" else HUNG_AFTER_S
            silent_ms = now_ms - max(self._heard_ms.get(each.id, each.since_ms), deaf_until_ms)
            if each.state != "hung" and silent_ms > patience_s * 1000:
                error = f"silent for {silent_ms // 1000} s"
                self._set(replace(each, state="hung", since_ms=now_ms, last_error=error))

    def _set(self, instance: Instance) -> None:
        self._book.keep(instance)
        self._instances[instance.id] = instance
