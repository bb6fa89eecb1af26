"""The valid changes between two anchors."""

from __future__ import annotations

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.records import Kind

_REBUILDS = frozenset({Kind.QUARANTINED, Kind.REPAIRED})
"""If anchors before it cannot be read, such an anchor has the highest values that they may have had."""
_GROWS = ("run_id", "generation", "inputs_through", "run_count", "reset_count")


def wrong_with(before: Anchor | None, kind: str, anchor: Anchor, *, unread: bool) -> str:
    """The rule that ``anchor`` violates after ``before``; empty if none. ``unread``: anchors between them cannot be read."""
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
        return f"its run is {anchor.run_id}, expected {wanted}"
    return ""
