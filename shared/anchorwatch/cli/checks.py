"""What a check says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anchorwatch.core.names import SessionRef
from anchorwatch.settings import load

NAMED_MAX = 5
MARKS = {"passed": "ok     ", "failed": "FAILED ", "warning": "WARNING", "note": "note   "}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. A ``warning`` needs a person's attention, now or later; a ``note`` needs none."""

    name: str
    state: Literal["passed", "failed", "warning", "note"]
    detail: str
    hint: str = ""

    def line(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{MARKS[self.state]}  {self.name}: {self.detail}{hint}"

    def as_json(self) -> dict[str, str]:
        return {"name": self.name, "state": self.state, "detail": self.detail, "hint": self.hint}


def passed(name: str, detail: str) -> Check:
    """It is as it should be."""
    return Check(name, "passed", detail)


def failed(name: str, detail: str, hint: str = "") -> Check:
    """It is not, and this is the way out."""
    return Check(name, "failed", detail, hint)


def warned(name: str, detail: str, hint: str = "") -> Check:
    """It works, but a part of it was not looked at, is off, or is likely to be a mistake."""
    return Check(name, "warning", detail, hint)


def note(name: str, detail: str) -> Check:
    """Something to know."""
    return Check(name, "note", detail)


def as_verbs_take_it(name: str, workspace: str) -> str:
    """The name as other verbs print and take it, with its workspace where that is not the one that they speak to."""
    return name if workspace == load().workspace else f"{name} of workspace {workspace}"


def session(ref: SessionRef) -> str:
    """A session, as `as_verbs_take_it`."""
    return as_verbs_take_it(ref.session, ref.workspace)


def named(found: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = f", and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return "; ".join(found[:NAMED_MAX]) + more
