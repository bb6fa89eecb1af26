"""The error tree.

    AnchorWatchError
    ├── BadInput                  the input is invalid
    │   ├── TooLarge
    │   └── BadSettings
    │       └── NotInstalled      an optional package is missing
    ├── NotFound
    ├── Conflict
    │   └── IdempotencyConflict   same key, different body
    ├── Refused                   valid, but not allowed now
    │   ├── SessionDeleted
    │   ├── TurnNotActive         the named turn is not running
    │   ├── ChangedSince          the session changed after its preview
    │   └── SessionQuarantined    its journal is damaged; only a repair is accepted
    ├── Denied                    credentials do not allow it
    ├── Unavailable               no answer; retry
    ├── Fenced                    another writer was first; reload and decide again
    ├── Damaged                   a record is unreadable or altered
    │   └── NewerSchema
    ├── OtherStoreFormat          the store was made by a release with another format
    └── ConfigDiffers             a stream or bucket has another configuration

Every error says what is wrong (``message``), what to do (``hint``), and whether a retry makes sense (``retryable``).
``code`` is stable: programs compare it, people search for it.
"""

from __future__ import annotations

from typing import ClassVar


class AnchorWatchError(Exception):
    """Base class of all errors of Anchor Watch."""

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
    """The input is invalid."""

    code = "bad_input"
    http_status = 422
    exit_code = 2


class TooLarge(BadInput):
    """The input exceeds its size limit."""

    code = "too_large"
    http_status = 413


class BadSettings(BadInput):
    """A setting has an invalid value."""

    code = "bad_settings"


class NotInstalled(BadSettings):
    """An optional package is not installed. ``extra``: the extra of the distribution that brings it."""

    code = "not_installed"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed", hint=f"pip install 'anchorwatch[{extra}]'")


class NotFound(AnchorWatchError):
    """Not found."""

    code = "not_found"
    http_status = 404
    exit_code = 4


class Conflict(AnchorWatchError):
    """It already exists and differs."""

    code = "conflict"
    http_status = 409
    exit_code = 5


class IdempotencyConflict(Conflict):
    """The idempotency key was used before with a different body."""

    code = "idempotency_conflict"

    def __init__(self, message: str | None = None, *, hint: str = "", first_body_sha256: str = "") -> None:
        super().__init__(message, hint=hint)
        self.first_body_sha256 = first_body_sha256


class Refused(AnchorWatchError):
    """The request is valid, but not allowed in this state."""

    code = "refused"
    http_status = 409
    exit_code = 5


class SessionDeleted(Refused):
    """The session was deleted."""

    code = "session_deleted"
    http_status = 410


class TurnNotActive(Refused):
    """The named turn is not running."""

    code = "turn_not_active"


class ChangedSince(Refused):
    """The session changed after its preview."""

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
    """A required part did not answer in time."""

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
    """A record is unreadable or altered.

    ``sequence``: its journal sequence (0: unknown); ``register``: its kind of register.
    """

    code = "damaged"

    def __init__(
        self, message: str | None = None, *, hint: str = "", sequence: int = 0, register: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.sequence = sequence
        self.register = register


class NewerSchema(Damaged):
    """A record was written by a newer version."""

    code = "newer_schema"


class OtherStoreFormat(AnchorWatchError):
    """The store was made by a release whose format this release does not read."""

    code = "other_store_format"
    http_status = 409
    exit_code = 5


class ConfigDiffers(AnchorWatchError):
    """A stream or bucket exists with a configuration that this version cannot use."""

    code = "config_differs"
