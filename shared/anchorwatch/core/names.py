"""Names that people choose, and the text form of a command's identity."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anchorwatch.core.errors import BadInput

NAME_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"
NAME_FORM = "1-63 characters of a-z, 0-9 and '-', not starting with '-'"
_NAME = re.compile(NAME_PATTERN)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CALL = re.compile(rf"({NAME_PATTERN})/(\d+)\.(\d+)\.(\d+)")


def check_name(value: str, what: str = "name") -> str:
    """Return ``value`` if it is a valid workspace, session, agent or pool name.

    Raises:
        BadInput: it does not match ``[a-z0-9][a-z0-9-]{0,62}``.
    """
    if not _NAME.fullmatch(value):
        raise BadInput(
            f"{value[:80]!r} is not a valid {what}",
            hint=f"use {NAME_FORM}",
        )
    return value


def check_token(value: str, what: str = "token") -> str:
    """Return ``value`` if it is valid as one token of a subject.

    Raises:
        BadInput: it is empty, longer than 128 characters, or contains anything but letters, digits, ``_`` and ``-``.
    """
    if not _TOKEN.fullmatch(value):
        raise BadInput(f"{value[:80]!r} is not a valid {what}", hint="use letters, digits, '_' and '-'")
    return value


@dataclass(frozen=True, slots=True, order=True)
class SessionRef:
    """The identity of a session: workspace and name."""

    workspace: str
    session: str

    def __str__(self) -> str:
        return f"{self.workspace}/{self.session}"


@dataclass(frozen=True, slots=True, order=True)
class CallId:
    """A command's identity within its session: run, step, and position in the step (all counted from 1)."""

    run: int
    step: int
    n: int

    def __str__(self) -> str:
        return f"{self.run}.{self.step}.{self.n}"

    @classmethod
    def parse(cls, text: str) -> CallId:
        """Read ``RUN.STEP.N``.

        Raises:
            BadInput: it is not three numbers separated by dots.
        """
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):  # noqa: PLR2004 - run, step, n
            raise BadInput(
                f"{text[:80]!r} is not a call id", hint="write it as RUN.STEP.N, for example 15.2.1"
            )
        run, step, n = (int(part) for part in parts)
        return cls(run, step, n)


def parse_call(text: str) -> tuple[str, CallId]:
    """Read a printed call id ``SESSION/RUN.STEP.N``.

    Raises:
        BadInput: it has a different form.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise BadInput(
            f"{text[:80]!r} is not a call id", hint="write it as SESSION/RUN.STEP.N, as `effects` prints it"
        )
    return match[1], CallId(int(match[2]), int(match[3]), int(match[4]))
