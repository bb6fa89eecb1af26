"""The recent health of a model, and whether to call it before the next one of a list. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from anchorwatch.core.errors import Damaged
from anchorwatch.core.times import backoff_s, left_ms

FAILURES_MAX = 2
"""Failed calls in a row, retries included, before a model is skipped for a while."""
REST_MS, REST_MS_MAX = 30_000, 600_000
"""First and longest backoff of a failing model: it doubles with each failure."""
WHY_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class Health:
    """``failures`` in a row, and the last one's ``code`` and reason.

    ``counted`` and ``reported``: tokens of the last request that had a report. Instants are milliseconds since 1970; 0: never.
    ``asked_again_ms``: until then it is skipped if there is another model.
    """

    failures: int = 0
    code: str = ""
    why: str = ""
    failed_at_ms: int = 0
    asked_again_ms: int = 0
    answered_at_ms: int = 0
    counted: int = 0
    reported: int = 0

    def is_worth_asking(self, now_ms: int) -> bool:
        return not left_ms(self.asked_again_ms, now_ms, REST_MS_MAX)

    def failed(self, code: str, why: str, now_ms: int, *, for_good: bool = False) -> Health:
        """After a call that failed. ``for_good``: no later call can succeed until a person changes something."""
        failures = self.failures + 1
        beyond = failures if for_good else failures - FAILURES_MAX + 1
        rest_ms = round(1000 * backoff_s(beyond, REST_MS / 1000, REST_MS_MAX / 1000)) if beyond > 0 else 0
        return replace(
            self,
            failures=failures,
            code=code,
            why=why[:WHY_CHARS_MAX],
            failed_at_ms=now_ms,
            asked_again_ms=now_ms + rest_ms if rest_ms else 0,
        )

    def answered(self, now_ms: int, counted: int, reported: int | None) -> Health:
        """After a call that was answered; it resets the failures. ``reported``: None if the endpoint reported no usage."""
        over = replace(self, failures=0, asked_again_ms=0, answered_at_ms=now_ms)
        return over if reported is None else replace(over, counted=counted, reported=reported)

    @property
    def changed_at_ms(self) -> int:
        return max(self.failed_at_ms, self.answered_at_ms)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def read_health(value: object) -> Health:
    """The stored health; of a newer release only the known fields.

    Raises:
        Damaged: the value is not a health record.
    """
    if not isinstance(value, dict):
        raise Damaged("a model's health cannot be read")
    known = {name: value[name] for name in Health.__slots__ if name in value}
    for name, given in known.items():
        if not isinstance(given, str if name in {"code", "why"} else int):
            raise Damaged("a model's health cannot be read")
    return Health(**known)
