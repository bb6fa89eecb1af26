"""The usage of model calls by step, turn, day and session, and how the last request showed each turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anchorwatch.core.agents import RULES
from anchorwatch.core.anchor import PromptProof
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import (
    CommitStep,
    Compact,
    EndTurn,
    PlannedCall,
    RequestModel,
    Reset,
    UndoReset,
)
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.spending import DAY_MS, Tokens
from anchorwatch.core.session.state import SeenObservation, Summary

from tests.unit.memory.book import START_MS, WRITER, Book
from tests.unit.memory.conftest import FLEET, Projected

PROOF = PromptProof(anchor_revision=1, anchor_sha256="a", sha256="b", tokens=70, model="m")
START_DAY = START_MS // DAY_MS


def head(book: Book, usage: dict[str, int], step: int = 1, **more: Any) -> StepHead:
    fields: dict[str, Any] = {"prompt": PROOF, "usage": usage, **more}
    return StepHead(step, "words", SeenObservation("d", fields.pop("at_ms", book.now_ms), "well"), **fields)


def turn(book: Book, last: StepHead, *before: StepHead, outcome: Any = "no_action") -> None:
    run = book.anchor(FLEET).run_id + 1
    book.acquire(FLEET, f"turn_{run}")
    for each in before:
        (call,) = (PlannedCall(1, "set", {}, "", "default", "x"),)
        book.do(FLEET, CommitStep(WRITER, each, (call,)))
        book.done(FLEET, _call(run, each.step))
    book.do(FLEET, EndTurn(WRITER, outcome, "", {}, book.now_ms + 9, last, last.prompt, book.now_ms))


def _call(run: int, step: int) -> Any:
    from anchorwatch.core.names import CallId  # noqa: PLC0415 - here alone

    return CallId(run, step, 1)


def test_usage_is_reported_by_step_turn_day_and_in_total(projected: Projected, book: Book) -> None:
    first = head(book, {"prompt": 100, "completion": 10, "cost_micros": 250_000}, calls=1)
    turn(book, head(book, {"prompt": 120, "completion": 5, "cost_micros": 125_000}, step=2), first)
    tomorrow = head(
        book, {"prompt": 70, "completion": 7, "estimated": 70}, at_ms=(START_DAY + 1) * DAY_MS + 5
    )
    turn(book, tomorrow)
    by_rules = head(book, {}, prompt=replace(PROOF, model=RULES))
    turn(book, by_rules)
    shown = projected.ask("turn", turn="1")
    assert [step["usage"] for step in shown["steps"]] == [
        {"prompt": 100, "completion": 10, "cost": 0.25},
        {"prompt": 120, "completion": 5, "cost": 0.125},
    ]
    assert shown["usage"] == {"calls": 2, "prompt": 220, "completion": 15, "cost": 0.375}
    assert projected.ask("turn", turn="2")["usage"] == {
        "calls": 1,
        "prompt": 70,
        "completion": 7,
        "estimated": 70,
    }
    used = projected.ask("session")["usage"]
    assert projected.ask("turn", turn="3")["usage"] == {}
    assert used["ever"] == {"calls": 3, "prompt": 290, "completion": 22, "estimated": 70, "cost": 0.375}
    newest, oldest = used["days"]
    assert (newest["calls"], newest["prompt"], newest["completion"]) == (1, 70, 7)
    assert (oldest["calls"], oldest["cost"]) == (2, 0.375)
    assert newest["day"] > oldest["day"]
    assert projected.ask("stats")["spending"] == used["ever"]
    state = book.state(FLEET).spent.ever
    assert (state.prompt, state.completion, state.cost) == (290, 22, 0.375), "as the session itself counts"


def test_call_for_a_summary_counts_in_the_usage(projected: Projected, book: Book) -> None:
    turn(book, head(book, {"prompt": 10}))
    book.acquire(FLEET, "turn_2")
    usage = {"prompt": 30, "completion": 4, "cost_micros": 9}
    book.do(FLEET, Compact(WRITER, Summary(1, 1, "quiet"), (50, 20), "", usage))
    ever = projected.ask("session")["usage"]["ever"]
    assert (ever["calls"], ever["prompt"], ever["completion"]) == (2, 40, 4)
    assert book.state(FLEET).spent.ever.all == 44, "and the budget knows of it"


def test_discarded_answers_count_for_their_turn_in_every_view(projected: Projected, book: Book) -> None:
    book.acquire(FLEET, "turn_1")
    reserves = {"prompt": 50, "completion": 0, "estimated": 50, "cost_micros": 5}
    book.do(FLEET, RequestModel(WRITER, "m", reserves, {}, book.now_ms))
    discarded = {"prompt": 90, "completion": 400, "cost_micros": 99, "reserved": 50, "reserved_micros": 5}
    book.do(FLEET, RequestModel(WRITER, "m", reserves, discarded, book.now_ms))
    shown = projected.ask("turn", turn="1")["usage"]
    assert shown == {"calls": 2, "prompt": 140, "completion": 400, "estimated": 50, "cost": 0.000104}
    last = {"prompt": 60, "completion": 3, "cost_micros": 7, "reserved": 50, "reserved_micros": 5}
    end = EndTurn(WRITER, "failed", "", {}, book.now_ms + 9, None, None, book.now_ms, usage=last)
    book.do(FLEET, end)
    whole = {"calls": 2, "prompt": 150, "completion": 403, "cost": 0.000106}
    assert projected.ask("turn", turn="1")["usage"] == whole
    assert projected.ask("session")["usage"]["ever"] == {"estimated": 0, **whole}
    book.acquire(FLEET, "turn_2")
    book.do(FLEET, RequestModel(WRITER, "m", reserves, {}, book.now_ms))
    nothing = {"reserved": 50, "reserved_micros": 5}
    book.do(FLEET, replace(end, usage=nothing))
    assert projected.ask("session")["usage"]["ever"] == {"estimated": 0, **whole}, "no answer, no call"
    assert book.state(FLEET).spent.ever == Tokens(150, 403, 106), "and the budget knows of it"
    line = next(each for each in projected.list("timeline") if each["kind"] == "model_request")
    assert line["what"] == "answer discarded: 490 tokens"


def test_step_names_the_models_that_answered_and_failed(projected: Projected, book: Book) -> None:
    turn(book, head(book, {}, context={"model": "small", "in_vain": [["openai", "model_unavailable"]]}))
    (step,) = projected.ask("turn", turn="1")["steps"]
    assert step["answered_by"] == "small"
    assert step["in_vain"] == [{"model": "openai", "code": "model_unavailable"}]
    ended = projected.list("timeline")[-1]
    assert "model small, after openai (model_unavailable) failed" in ended["why"]


def marks(projected: Projected) -> list[str]:
    return [each["in_prompt"] for each in projected.list("turns")]


def test_turn_that_the_prompt_shortens_is_marked(projected: Projected, book: Book) -> None:
    quiet = head(book, {})
    turn(book, quiet)
    turn(book, replace(quiet, step=2), head(book, {}, calls=1), outcome="no_action")
    book.say(FLEET, "m", "hello")
    turn(book, quiet)
    for _ in range(3):
        turn(book, quiet)
    assert set(marks(projected)) == {"whole"}, "nothing was left out"
    turn(book, replace(quiet, context={"rung": "folded", "summary": 1}))
    # A call was made in the second, a person wrote before the third, and the two newest are always whole.
    assert marks(projected) == ["summary", "whole", "whole", "skipped", "whole", "whole", "whole"]
    report = {entry["run_id"]: entry["in_prompt"] for entry in projected.list("timeline") if entry["run_id"]}
    assert (report[1], report[4], report[7]) == ("summary", "skipped", "whole")
    items = {item["run_id"]: item["in_prompt"] for item in projected.list("items") if item["run_id"]}
    assert (items[2], items[4]) == ("whole", "skipped")
    assert projected.ask("turn", turn="4")["in_prompt"] == "skipped"


def test_turn_with_excerpts_in_the_prompt_is_marked(projected: Projected, book: Book) -> None:
    for _ in range(4):
        turn(book, head(book, {}), outcome="success")
    turn(book, head(book, {}, context={"rung": "past_texts", "summary": 1, "shortened": [1, 2, 4]}))
    assert marks(projected) == ["summary", "shortened", "whole", "shortened", "whole"]


def test_archived_turn_is_marked_until_the_reset_is_undone(projected: Projected, book: Book) -> None:
    turn(book, head(book, {}))
    book.do(FLEET, Reset("p", book.now_ms, book.sequence))
    turn(book, head(book, {}))
    assert marks(projected) == ["archived", "whole"]
    book.do(FLEET, UndoReset("p", book.now_ms))
    assert marks(projected) == ["whole", "whole"]
    assert Kind.RESET_UNDONE in {entry["kind"] for entry in projected.list("timeline")}
