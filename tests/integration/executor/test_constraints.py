"""A rule that people give a session as a constraint: executors judge it before the claim, and again under the fence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.effect.state import Claimed, Owner
from anchorwatch.core.facts import Observation
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import Direct
from anchorwatch.service.observations import encode_answer
from anchorwatch.topology.subjects import RPC_OBSERVE

from tests.integration.executor.conftest import Executors
from tests.support.packs import Sink
from tests.support.sessions import ScriptedSession, now_ms

TEXT = "never run more than two instances"
RULE = "command.tool == 'look' || observation.instances < 2"
DEAD = Owner("executor-9", "gone")


async def see(bus: Bus, instances: Callable[[int], int | None]) -> list[int]:
    """Answer as the observer would; ``instances`` gets the number of the request."""
    asked: list[int] = []

    async def observed(_subject: str, _payload: bytes) -> bytes:
        asked.append(len(asked) + 1)
        return encode_answer(Observation("seen", {"instances": instances(asked[-1])}, now_ms(), "d2"))

    await bus.subscribe(RPC_OBSERVE.filter(), observed, queue="observer")
    return asked


async def constrain(session: ScriptedSession, rule: str = RULE) -> None:
    await session.do(Direct("ada", now_ms(), "constraints", "add", (TEXT,), rule=rule))


async def test_rule_of_a_constraint_stops_the_third_launch(
    executors: Executors, session: ScriptedSession, bus: Bus, sink: Sink
) -> None:
    await see(bus, lambda _: len(sink.effects()))
    await constrain(session)
    await executors.start()
    outcomes = []
    for item in ("a", "b", "c"):
        command = await session.command("fire", item=item)
        outcomes.append(await session.outcome(command))
    assert [each.state for each in outcomes] == ["succeeded", "succeeded", "refused"]
    assert outcomes[2].rule == "constraint"
    assert outcomes[2].text == f"{TEXT} [{RULE}]: the rule is not true"
    assert await session.records(command) == [Kind.OUTCOME], "refused before a claim"
    assert len(sink.effects()) == 2
    assert (await session.outcome(await session.command("look"))).state == "succeeded"


async def test_rule_is_judged_again_under_the_fence(
    executors: Executors, session: ScriptedSession, bus: Bus, sink: Sink
) -> None:
    asked = await see(bus, lambda number: 0 if number == 1 else 2)
    await constrain(session)
    await executors.start()
    command = await session.command("fire")
    done = await session.outcome(command)
    assert (done.state, done.rule, len(asked)) == ("refused", "constraint", 2)
    assert await session.records(command) == [Kind.CLAIM, Kind.OUTCOME]
    assert sink.effects() == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("observation.instances != 5", "cannot be evaluated: KeyError"),
        ("facts.unknown_fact < 2", "cannot be evaluated: KeyError"),
        ("command.args.item", "the rule is not true"),
    ],
)
async def test_constraint_with_an_unknown_fact_refuses(
    executors: Executors, session: ScriptedSession, bus: Bus, sink: Sink, rule: str, words: str
) -> None:
    await see(bus, lambda _: None)
    await constrain(session, rule)
    await executors.start()
    done = await session.outcome(await session.command("fire"))
    assert (done.state, words in done.text) == ("refused", True)
    assert sink.effects() == []


async def test_begun_command_that_a_rule_forbids_is_unknown(
    executors: Executors, session: ScriptedSession, bus: Bus, sink: Sink
) -> None:
    await see(bus, lambda _: 2)
    await constrain(session)
    command = await session.command("set")
    await session.record(command, Claimed(DEAD, 1, "key"))
    executors.peers.dead.add(DEAD.instance)
    await executors.start()
    done = await session.outcome(command)
    assert done.state == "unknown"
    assert RULE in done.text
    assert sink.effects() == []


async def test_withdrawn_constraint_has_no_rule(
    executors: Executors, session: ScriptedSession, bus: Bus
) -> None:
    asked: list[Any] = await see(bus, lambda _: 2)
    await constrain(session)
    await session.do(Direct("ada", now_ms(), "constraints", "remove", (TEXT,)))
    await executors.start()
    assert (await session.outcome(await session.command("fire"))).state == "succeeded"
    assert asked == []
