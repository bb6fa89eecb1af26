"""The one tree of errors.

    AnchorWatchError
    ├── BadInput                  what was given cannot be taken
    │   ├── TooLarge
    │   └── BadSettings
    ├── NotFound
    ├── Conflict
    │   └── IdempotencyConflict   same key, another body
    ├── Refused                   understood, and not done
    │   ├── SessionDeleted
    │   ├── TurnNotActive     the turn that was meant does not run (any more)
    │   ├── ChangedSince      the session is not as it was when it was shown
    │   └── SessionQuarantined    its journal is damaged; only a repair is taken
    ├── Denied                    credentials do not allow it
    ├── Unavailable               try again: nothing is known to have happened
    ├── Fenced                    another writer was first; reload and decide again
    ├── Damaged                   a record cannot be trusted
    │   └── NewerSchema
    └── ConfigDiffers             a stream or bucket is not what this version needs

Every error answers three questions: what (``message``), the way out (``hint``), and whether the same call may be
tried again (``retryable``). ``code`` is stable: programs compare it, people search for it.
"""

from __future__ import annotations

from typing import ClassVar


class AnchorWatchError(Exception):
    """Something went wrong in Anchor Watch."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None, *, hint: str = "") -> None:
        self.message = message or (type(self).__doc__ or self.code).strip().splitlines()[0]
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class BadInput(AnchorWatchError):
    """What was given cannot be taken."""

    code = "bad_input"
    http_status = 422
    exit_code = 2


class TooLarge(BadInput):
    """What was given is larger than the limit."""

    code = "too_large"
    http_status = 413


class BadSettings(BadInput):
    """A setting has a value that cannot be used."""

    code = "bad_settings"


class NotFound(AnchorWatchError):
    """There is nothing of that name."""

    code = "not_found"
    http_status = 404
    exit_code = 4


class Conflict(AnchorWatchError):
    """It exists already, and is not the same."""

    code = "conflict"
    http_status = 409
    exit_code = 5


class IdempotencyConflict(Conflict):
    """The idempotency key was used before with another body."""

    code = "idempotency_conflict"

    def __init__(self, message: str | None = None, *, hint: str = "", first_body_sha256: str = "") -> None:
        super().__init__(message, hint=hint)
        self.first_body_sha256 = first_body_sha256


class Refused(AnchorWatchError):
    """It was understood, and will not be done."""

    code = "refused"
    http_status = 409
    exit_code = 5


class SessionDeleted(Refused):
    """The session was deleted."""

    code = "session_deleted"
    http_status = 410


class TurnNotActive(Refused):
    """The turn that was meant does not run."""

    code = "turn_not_active"


class ChangedSince(Refused):
    """The session has changed since it was shown."""

    code = "changed_since"


class SessionQuarantined(Refused):
    """The session is quarantined: its journal is damaged."""

    code = "session_quarantined"


class Denied(AnchorWatchError):
    """The credentials do not allow this."""

    code = "denied"
    http_status = 403
    exit_code = 5


class Unavailable(AnchorWatchError):
    """A part that is needed did not answer in time."""

    code = "unavailable"
    retryable = True
    http_status = 503
    exit_code = 3


class Fenced(AnchorWatchError):
    """Another writer was first; reload and decide again."""

    code = "fenced"
    retryable = True
    http_status = 409
    exit_code = 5


class Damaged(AnchorWatchError):
    """A record cannot be trusted.

    ``sequence``: where it stands in the journal (0: not said); ``register``: its kind of register.
    """

    code = "damaged"

    def __init__(
        self, message: str | None = None, *, hint: str = "", sequence: int = 0, register: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.sequence = sequence
        self.register = register


class NewerSchema(Damaged):
    """A record was written by a newer version than this one."""

    code = "newer_schema"


class ConfigDiffers(AnchorWatchError):
    """A stream or bucket exists with a configuration that this version cannot use."""

    code = "config_differs"
