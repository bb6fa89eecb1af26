"""Object stores as the server keeps them: bytes under a name, written once."""

from __future__ import annotations

from anchorwatch.bus.port import StreamMissing
from anchorwatch.core.errors import Conflict


class Objects:
    """All object stores of a server."""

    def __init__(self) -> None:
        self._stores: dict[str, dict[str, bytes]] = {}

    def ensure(self, store: str) -> None:
        """Make the store, if there is none of that name."""
        self._stores.setdefault(store, {})

    def put(self, store: str, name: str, data: bytes) -> None:
        """Write once; the same bytes again are no error.

        Raises:
            Conflict: it exists with other bytes.
            StreamMissing: there is no such store.
        """
        if self._store(store).setdefault(name, data) != data:
            raise Conflict(f"object {name} of {store} exists with other content")

    def get(self, store: str, name: str) -> bytes | None:
        return self._store(store).get(name)

    def delete(self, store: str, name: str) -> None:
        self._store(store).pop(name, None)

    def _store(self, name: str) -> dict[str, bytes]:
        found = self._stores.get(name)
        if found is None:
            raise StreamMissing(f"there is no object store {name}")
        return found


__all__ = ["Objects"]
