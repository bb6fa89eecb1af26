"""A cron expression as a set of slots. A slot is a wall-clock minute without zone or instant.

So a clock change does not alter the set of slots; `zones` maps each slot to its instant (ADR 11).
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
"""The largest step of each field: a larger one would match only the field's first value."""
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a slot has no zone


@dataclass(frozen=True, slots=True)
class Cron:
    """A validated cron expression."""

    expression: str

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Parse an expression of five fields.

        Raises:
            BadInput: it is invalid, or no minute ever matches.
        """
        expression = " ".join(text.split())
        if len(expression.split()) != FIELDS:
            raise BadInput(
                f"the cron expression {text[:80]!r} does not have five fields", hint=f"write {EXAMPLES}"
            )
        cron = cls(expression)
        try:
            found = cron.following(_ANY_DAY)
        except CronSimError as error:
            raise BadInput(f"the cron expression {text[:80]!r}: {error}", hint=f"write {EXAMPLES}") from None
        if found is None:
            raise BadInput(f"the cron expression {text[:80]!r} names a day that never occurs")
        return cron

    @classmethod
    def asked(cls, text: str) -> Cron:
        """As `parse`, for a person's input: a misleading expression is refused too (INV-807).

        Raises:
            BadInput: as `parse`; or a step exceeds its field.
        """
        cron = cls.parse(text)
        for (name, step_max), written in zip(STEPS_MAX.items(), cron.expression.split(), strict=True):
            steps = [term.partition("/")[2] for term in written.split(",") if "/" in term]
            if any(int(step) > step_max for step in steps):
                raise BadInput(
                    f"the cron expression {text[:80]!r}: the {name} {written!r} has a step that exceeds its field",
                    hint=f"a step of the {name} is at most {step_max}; write {EXAMPLES}",
                )
        return cron

    def slots(self, after: datetime) -> Iterator[datetime]:
        """Every slot after ``after``, in order; up to a gap of 50 years."""
        yield from CronSim(self.expression, after)

    def following(self, slot: datetime) -> datetime | None:
        """The first slot after ``slot``; None: none within the next 50 years."""
        return next(self.slots(slot), None)

    def at_or_before(self, slot: datetime) -> datetime | None:
        """The last slot that is not after ``slot``; None: none within the previous 50 years."""
        return next(CronSim(self.expression, slot + MINUTE, reverse=True), None)
