"""A cron expression as a set of slots. A slot is a wall-clock minute, and nothing else: it knows no zone and no instant.

So a change of the clock cannot touch which slots there are; `zones` says when each of them comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

from anchorwatch.core.errors import BadInput

FIELDS = 5
MINUTE = timedelta(minutes=1)
EXAMPLES = (
    "five fields: minute hour day-of-month month day-of-week, such as `0 9 * * MON-FRI` or `*/15 * * * *`"
)
STEPS_MAX = {"minute": 59, "hour": 23, "day-of-month": 31, "month": 12, "day-of-week": 7}
"""The highest step of each field: beyond it there is only the field's first value, which is not what the step says."""
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a slot has no zone


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression that was checked."""

    expression: str

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read an expression of five fields.

        Raises:
            BadInput: it cannot be read, or names no minute that ever comes.
        """
        expression = " ".join(text.split())
        if len(expression.split()) != FIELDS:
            raise BadInput(f"the cron expression {text[:80]!r} has not five fields", hint=f"write {EXAMPLES}")
        cron = cls(expression)
        try:
            found = cron.following(_ANY_DAY)
        except CronSimError as error:
            raise BadInput(f"the cron expression {text[:80]!r}: {error}", hint=f"write {EXAMPLES}") from None
        if found is None:
            raise BadInput(f"the cron expression {text[:80]!r} names a day that never comes")
        return cron

    @classmethod
    def asked(cls, text: str) -> Cron:
        """As `parse`, where a person asks for it: also what would be read as something else than it says is refused.

        Raises:
            BadInput: as `parse`; or a step is beyond its field.
        """
        cron = cls.parse(text)
        for (name, step_max), written in zip(STEPS_MAX.items(), cron.expression.split(), strict=True):
            steps = [term.partition("/")[2] for term in written.split(",") if "/" in term]
            if any(int(step) > step_max for step in steps):
                raise BadInput(
                    f"the cron expression {text[:80]!r}: the {name} {written!r} steps beyond its field",
                    hint=f"a step of the {name} is at most {step_max}; write {EXAMPLES}",
                )
        return cron

    def slots(self, after: datetime) -> Iterator[datetime]:
        """Every slot after ``after``, in order; it ends where the next one is 50 years away."""
        yield from CronSim(self.expression, after)

    def following(self, slot: datetime) -> datetime | None:
        """The first slot after ``slot``; None: there is none within the next 50 years."""
        return next(self.slots(slot), None)

    def at_or_before(self, slot: datetime) -> datetime | None:
        """The last slot that is not after ``slot``; None: there is none within the 50 years before."""
        return next(CronSim(self.expression, slot + MINUTE, reverse=True), None)
