"""Pages of whole lists: together they are the list, whatever is added or removed between them."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from anchorwatch_gateway.requests import PAGE_BYTES_MAX, Window, page_of

Order = Literal["asc", "desc"]


def rows(names: str, text: str = "") -> list[dict[str, Any]]:
    return [{"name": each, "text": text} for each in names]


def page(
    found: list[dict[str, Any]], cursor: str | None = None, limit: int = 2, order: Order = "asc"
) -> tuple[str, str | None]:
    answer = page_of(found, Window(limit, cursor, order, None), lambda row: str(row["name"]))
    return "".join(each["name"] for each in answer.data), answer.next


@pytest.mark.parametrize(("order", "whole"), [("asc", "abcde"), ("desc", "edcba")])
def test_pages_make_up_the_list_in_order(order: Order, whole: str) -> None:
    seen, cursor = page(rows("ebdac"), order=order)
    while cursor is not None:
        more, cursor = page(rows("ebdac"), cursor, order=order)
        seen += more
    assert seen == whole


def test_cursor_survives_the_removal_of_its_entry() -> None:
    assert page(rows("abcd")) == ("ab", "b")
    assert page(rows("acd"), "b") == ("cd", None)


def test_full_last_page_has_no_cursor() -> None:
    assert page(rows("ab")) == ("ab", None)
    assert page([]) == ("", None)


def test_page_is_bounded_in_bytes_and_not_empty() -> None:
    large = rows("abc", "x" * (PAGE_BYTES_MAX // 2))
    assert page(large, limit=200) == ("a", "a")
    assert page(rows("ab", "x" * (2 * PAGE_BYTES_MAX)), limit=200) == ("a", "a")
