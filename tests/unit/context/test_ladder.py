"""How a conversation is shown shorter: what goes first, and what no rung may take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.context import prompt
from anchorwatch.context.digest import request_bytes
from anchorwatch.context.ladder import Rung, is_no_op
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.facts import Observation
from anchorwatch.core.session.critical import Labelled
from anchorwatch.core.session.state import Call, Input, PastTurn, SessionState, Step, Turn
from anchorwatch.models.tokens import Counter
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.packs import BENCH, TOOLS, bench_agent

AGENT = bench_agent(Path())
SEEN = Observation("i-1 running", {"tasks_queued": 0}, 5_000, "abcd")
ANCHOR = Anchor(
    workspace="default",
    session="s",
    agent="keeper@1",
    objectives=("500 proofs per hour",),
    constraints=("never stop the last one",),
)
CRITICAL = ("CRITICAL: at most 4 instances",)
LONG = "\n".join(f"log line {n} of the output" for n in range(200))


def tick(n: int) -> Input:
    return Input(n, f"i{n}", "tick", 1, 0)


def quiet(run: int) -> PastTurn:
    return PastTurn(
        run, "no_action", "nothing had to be done", (tick(run),), 0, (Step(1, "All is well.", ()),)
    )


def busy(run: int, text: str = LONG) -> PastTurn:
    calls = tuple(Call(n, "look", {"item": "a"}, state="succeeded", text=f"{n} {text}") for n in (1, 2))
    return PastTurn(
        run, "success", "looked", (tick(run),), 0, (Step(1, "I look", calls), Step(2, "done", ()))
    )


def state(*history: PastTurn, steps: tuple[Step, ...] = ()) -> SessionState:
    turn = Turn(99, "turn_99", 0, 9, 8, (tick(99),), steps)
    return SessionState(
        anchor=ANCHOR,
        told=ANCHOR,
        told_sequence=77,
        turn=turn,
        history=history,
        critical=tuple(map(Labelled, CRITICAL)),
    )


def contents(of: SessionState, rung: Rung) -> list[str]:
    request = prompt.build(of, AGENT, BENCH, TOOLS, SEEN, heartbeat_s=300, rung=rung)
    return [str(message["content"]) for message in request.messages]


def test_quiet_turns_in_a_row_are_one_line_and_the_newest_stay() -> None:
    shown = contents(state(*map(quiet, range(1, 9))), Rung.FOLDED)
    assert shown[1] == '[runs 1–6: 6 turns without actions, omitted; triggers: 6 × "tick"]'
    assert "[run 7]" in shown[2]


def test_turn_with_an_action_or_a_message_is_not_folded() -> None:
    said = replace(quiet(2), inputs=(Input(2, "i2", "message", 0, 0, "is all well?"),))
    history = (quiet(1), said, busy(3), replace(quiet(4), outcome="unresolved"), quiet(5), quiet(6), quiet(7))
    assert [is_no_op(each) for each in history] == [True, False, False, False, True, True, True]
    shown = "\n".join(contents(state(*history), Rung.FOLDED))
    assert '[run 1: no actions, omitted; triggers: 1 × "tick"]' in shown
    assert "is all well?" in shown
    assert "[run 5: no actions" in shown


def test_old_outputs_have_placeholders_and_the_newest_are_whole() -> None:
    shown = contents(state(busy(1), busy(2)), Rung.OLD_OUTPUTS)
    outputs = [each for each in shown if "log line 0" in each]
    assert [each.startswith("[call 1.1.") for each in outputs] == [True, True, False, False]
    assert "log line 199" in outputs[0]
    all_cut = [each for each in contents(state(busy(1), busy(2)), Rung.PAST_OUTPUTS) if "log line 0" in each]
    assert all(each.startswith("[call ") for each in all_cut)


def test_earlier_steps_give_way_before_the_last_one_in_a_turn() -> None:
    steps = busy(1).steps[:1]
    of = state(steps=(*steps, replace(steps[0], number=2)))
    by_rung = {
        rung: [each.startswith("[call ") for each in contents(of, rung) if "log line 0" in each]
        for rung in (Rung.PAST_OUTPUTS, Rung.EARLIER_STEPS, Rung.ALL_OUTPUTS)
    }
    assert by_rung == {
        Rung.PAST_OUTPUTS: [False] * 4,
        Rung.EARLIER_STEPS: [True, True, False, False],
        Rung.ALL_OUTPUTS: [True] * 4,
    }


HISTORIES = st.lists(st.sampled_from(["quiet", "busy"]), max_size=8).map(
    lambda kinds: tuple((quiet if kind == "quiet" else busy)(run) for run, kind in enumerate(kinds, 1))
)


@settings(deadline=None)
@given(HISTORIES, st.integers(0, 3))
def test_rung_is_never_longer_than_the_last_and_keeps_every_pair(
    history: tuple[PastTurn, ...], steps: int
) -> None:
    of = state(*history, steps=tuple(replace(busy(99).steps[0], number=n) for n in range(1, steps + 1)))
    before = None
    for rung in Rung:
        request = prompt.build(of, AGENT, BENCH, TOOLS, SEEN, heartbeat_s=300, rung=rung)
        tokens = Counter().sent(request)
        assert before is None or tokens <= before, rung.name
        before = tokens
        _check_pairs(request.messages)
        system = request.messages[0]["content"]
        for order in (*ANCHOR.objectives, *ANCHOR.constraints, *CRITICAL):
            assert f"- {order}\n" in system


def _check_pairs(messages: Any) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert waiting == []


@pytest.mark.parametrize("rung", list(Rung))
def test_same_state_and_rung_give_the_same_bytes(rung: Rung) -> None:
    of = state(quiet(1), busy(2), quiet(3))
    first = prompt.build(of, AGENT, BENCH, TOOLS, SEEN, heartbeat_s=300, rung=rung)
    again = prompt.build(of, AGENT, BENCH, TOOLS, SEEN, heartbeat_s=300, rung=rung)
    assert request_bytes(first) == request_bytes(again)
