"""Pages of lists that the gateway holds whole. Their cursor is the key of a page's last entry, so it outlives the entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from anchorwatch_gateway.reading import Window
from anchorwatch_gateway.replies import Page

PAGE_BYTES_MAX = 512 * 1024


def page_of(rows: Sequence[dict[str, Any]], window: Window, key: Callable[[dict[str, Any]], str]) -> Page:
    """The page of ``rows`` that ``window`` asks for, in the order of ``key``, which no two of them share."""
    descending = window.order == "desc"
    keyed = sorted(((key(row), row) for row in rows), key=lambda each: each[0], reverse=descending)
    if window.cursor is not None:
        after = window.cursor
        keyed = [each for each in keyed if (each[0] < after if descending else each[0] > after)]
    count = _fitting([row for _, row in keyed[: window.limit]])
    data = [row for _, row in keyed[:count]]
    return Page(data=data, next=keyed[count - 1][0] if len(keyed) > count else None)


def _fitting(rows: Sequence[dict[str, Any]]) -> int:
    """How many of ``rows``, from the first on, a page holds; one at least."""
    size = 0
    for count, row in enumerate(rows):
        size += len(json.dumps(row, ensure_ascii=False).encode())
        if count and size > PAGE_BYTES_MAX:
            return count
    return len(rows)
