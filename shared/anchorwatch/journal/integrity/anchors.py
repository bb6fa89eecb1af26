"""What may change from one anchor to the next."""

from __future__ import annotations

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.records import Kind

_REBUILDS = frozenset({Kind.QUARANTINED, Kind.REPAIRED})
"""Where anchors before it cannot be read, such a one is as high as they may have been."""
_GROWS = ("run_id", "generation", "inputs_through", "run_count", "reset_count")


def wrong_with(before: Anchor | None, kind: str, anchor: Anchor, *, unread: bool) -> str:
    """What is against the rules when ``anchor`` follows ``before``; empty: nothing. ``unread``: others between cannot be read."""
    if before is None:
        return "" if unread or kind == Kind.CREATED else f"a session begins with `created`, not `{kind[:40]}`"
    for name in _GROWS:
        old, new = getattr(before, name), getattr(anchor, name)
        if new < old:
            return f"{name} falls from {old} to {new}"
    if anchor.fence.run < before.fence.run:
        return f"the fence falls from {before.fence.run} to {anchor.fence.run}"
    if unread or kind in _REBUILDS:
        return ""
    wanted = before.run_id + (1 if kind == Kind.ACQUIRED else 0)
    if anchor.run_id != wanted:
        return f"its run is {anchor.run_id}, the one that follows is {wanted}"
    return ""
