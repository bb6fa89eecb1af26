"""Finds packs by name, through the entry-point group ``anchorwatch.packs``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import cast

from anchorwatch.core.errors import NotFound
from anchorwatch.packs.port import Pack

GROUP = "anchorwatch.packs"


def names() -> list[str]:
    """The names of all installed packs."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


@cache
def load(name: str) -> Pack:
    """The pack of that name.

    Raises:
        NotFound: none is installed; the hint lists those that are.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return cast("Pack", entry.load())
    raise NotFound(f"there is no pack {name!r}", hint=f"installed: {', '.join(names()) or 'none'}")
