"""Bodies of records: a frozen dataclass declares the fields once, and both directions follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import CallId

T = TypeVar("T")

_CALL: Final = TypeAdapter(tuple[int, int, int])
_OWNER: Final = TypeAdapter(tuple[str, str])
Call = Annotated[
    CallId,
    BeforeValidator(
        lambda value: value if isinstance(value, CallId) else CallId(*_CALL.validate_python(value))
    ),
    PlainSerializer(lambda call: [call.run, call.step, call.n]),
]
"""A command, stored as [run, step, n]."""
OwnerPair = Annotated[
    Owner,
    BeforeValidator(
        lambda value: value if isinstance(value, Owner) else Owner(*_OWNER.validate_python(value))
    ),
    PlainSerializer(lambda owner: [owner.instance, owner.incarnation]),
]
"""A process, stored as [instance, incarnation]."""


_ADAPTERS: Final[dict[type, TypeAdapter[Any]]] = {}


def _adapter(body: type[T]) -> TypeAdapter[T]:
    if (adapter := _ADAPTERS.get(body)) is None:
        adapter = _ADAPTERS[body] = TypeAdapter(body)
    return adapter


def read_body(stored: Mapping[str, Any], body: type[T]) -> T:
    """The body of a record as ``body``. Fields that it does not declare are ignored.

    Raises:
        Damaged: a field is missing or has the wrong type.
    """
    try:
        return _adapter(body).validate_python(stored)
    except (ValidationError, TypeError, RecursionError) as error:
        problems = error.errors(include_url=False) if isinstance(error, ValidationError) else []
        what = f"{'.'.join(map(str, problems[0]['loc']))}: {problems[0]['msg']}" if problems else str(error)
        raise Damaged(f"a field is missing or odd: {what}"[:300]) from None


def write_body(value: object) -> dict[str, Any]:
    """The stored form of a body."""
    stored: dict[str, Any] = _adapter(type(value)).dump_python(value, by_alias=True)
    return stored
