"""The verbs of dead letters say what the gateway said, and send each order under a key."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.cli.conftest import Run
from tests.unit.cli.gateways import Gateway

LETTER: dict[str, Any] = {
    "id": "observer-events-7",
    "service": "observer",
    "state": "open",
    "tries": 8,
    "session": None,
    "last_at": "2026-03-17T18:56:43.163+00:00",
    "message": {"stream": "EVENTS", "sequence": 7},
    "error": {"code": "damaged", "text": "not a record"},
}
PATH = "/api/dead-letters"


def test_list_has_filters(run: Run, remote: Gateway) -> None:
    remote.answer(f"GET {PATH}", (200, {"data": [], "next": None}))
    words = ["--state", "open", "--service", "planner", "--session", "fleet"]
    assert run("dead-letters", "list", *words).out.strip() == "no dead letters"
    assert remote.asked[-1].query | {"state": "open", "service": "planner", "session": "fleet"} == (
        remote.asked[-1].query
    )


def test_letter_is_shown_with_its_content(run: Run, remote: Gateway) -> None:
    remote.answer(f"GET {PATH}/observer-events-7", (200, {**LETTER, "content": {"instance": "w-1"}}))
    shown = json.loads(run("dead-letters", "show", "observer-events-7", "--json").out)
    assert shown["content"] == {"instance": "w-1"}


def test_retry_and_drop_have_a_key(run: Run, remote: Gateway) -> None:
    remote.answer(f"POST {PATH}/observer-events-7/retry", (202, {**LETTER, "state": "retried"}))
    remote.answer(f"POST {PATH}/observer-events-7/drop", (200, {**LETTER, "state": "dropped"}))
    assert run("dead-letters", "retry", "observer-events-7").out.strip() == "observer-events-7 is retried"
    assert remote.asked[-1].headers["idempotency-key"]
    dropped = run("dead-letters", "drop", "observer-events-7", "--note", "old", "--key", "k")
    assert dropped.out.strip() == "observer-events-7 is dropped"
    assert (remote.asked[-1].body, remote.asked[-1].headers["idempotency-key"]) == ({"note": "old"}, "k")
