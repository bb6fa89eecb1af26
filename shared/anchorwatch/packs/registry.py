"""Finds packs by name: those that were registered in this process, then the entry-point group ``anchorwatch.packs``."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import cast

from anchorwatch.core.errors import NotFound
from anchorwatch.packs.port import HasStarter, Pack, Starter

GROUP = "anchorwatch.packs"
_known: dict[str, Pack] = {}


def register(pack: Pack) -> None:
    """Register a pack in this process; it takes precedence over an installed one of the same name."""
    _known[pack.name] = pack


def names() -> list[str]:
    """The names of all packs."""
    return sorted({entry.name for entry in entry_points(group=GROUP)} | set(_known))


def load(name: str) -> Pack:
    """The named pack.

    Raises:
        NotFound: it is unknown (the hint lists the known ones), or its module cannot be imported.
    """
    if name not in _known:
        for entry in entry_points(group=GROUP):
            if entry.name == name:
                _known[name] = _import(entry)
                break
        else:
            raise NotFound(f"unknown pack {name!r}", hint=f"installed: {', '.join(names()) or 'none'}")
    return _known[name]


def starters() -> list[Starter]:
    """The starters of all packs that have one, by the pack's name.

    Raises:
        NotFound: an installed pack cannot be imported.
    """
    packs = [load(name) for name in names()]
    return [pack.starter() for pack in packs if isinstance(pack, HasStarter)]


def _import(entry: EntryPoint) -> Pack:
    try:
        return cast("Pack", entry.load())
    except Exception as error:
        raise NotFound(
            f"the pack {entry.name!r} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"check that {entry.value} can be imported; a process finds only what was installed before its start",
        ) from error
