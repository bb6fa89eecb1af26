"""The fleet pack: a fleet of workers that prove primes, the yard that runs them, and how an agent keeps them working.

`PACK` is the pack; `anchorwatch up` creates `default_agent` with the session `SESSION`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorwatch.packs import Pack

    from anchorwatch_fleet.config import SESSION, default_agent
    from anchorwatch_fleet.pack import FleetPack

    PACK: Pack = FleetPack()

__all__ = ["PACK", "SESSION", "default_agent"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - each name has its own type, above
    """Import a name on first use: workers import this package too and must not load the rest."""
    if name == "PACK":
        from anchorwatch_fleet.pack import FleetPack  # noqa: PLC0415 - see above

        value: Any = FleetPack()
    elif name in ("SESSION", "default_agent"):
        from anchorwatch_fleet import config  # noqa: PLC0415 - see above

        value = getattr(config, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
