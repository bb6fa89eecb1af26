"""Settling an unknown effect over HTTP, on a real server: once, with who and when."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from anchorwatch.core.effect.state import Claimed, Outcome, Owner
from anchorwatch.core.errors import Fenced
from anchorwatch.core.records import Kind

from tests.integration.gateway.conftest import House
from tests.support.sessions import Decided, ScriptedSession
from tests.support.waiting import eventually

PATH = "/api/effects/resolve"
OWNER = Owner("executor-1", "i1")


@dataclass
class Lost:
    """A command whose answer was lost."""

    house: House
    session: ScriptedSession
    command: Decided

    @property
    def call(self) -> str:
        return f"fleet/{self.command.call}"

    async def resolve(self, verdict: str = "done", key: str | None = "k", **more: Any) -> Any:
        body = {"call": self.call, "verdict": verdict, **more}
        return await self.house.http.post(PATH, json=body, headers={"Idempotency-Key": key} if key else {})

    async def shown(self, state: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            page = (await self.house.http.get("/api/effects", params={"session": "fleet"})).json()
            found: dict[str, Any] = page["data"][0]
            return found if found["state"] == state else None

        return await eventually(look, what=f"it is shown as {state}") or {}


def unknown(command: Decided) -> Outcome:
    return Outcome(
        command.call, "fire", "unknown", "lost", {}, resource="fire/x", effect_key="k", turn_id="turn_1"
    )


@pytest.fixture
async def lost(house: House) -> Lost:
    await house.make_session()
    session = ScriptedSession(house.bus)
    await session.acquire(agent="keeper@1")
    command = await session.command("fire")
    await session.record(command, Claimed(OWNER, 1, "k"), unknown(command))
    return Lost(house, session, command)


async def test_resolved_effect_shows_caller_time_and_verdict(lost: Lost) -> None:
    assert (await lost.shown("unknown"))["blocks"] == "fire/x"
    answer = await lost.resolve("not-done", note="the console shows none")
    assert answer.status_code == 200, answer.text
    response = answer.json()
    assert (response["verdict"], response["by"], response["replayed"]) == ("not-done", "a person", False)
    assert answer.headers["Idempotency-Key"] == "k"
    after = await lost.shown("resolved")
    assert (after["verdict"], after["note"]) == ("not_done", "the console shows none")
    assert (after["settled_by"], after["blocks"], after["ended_at"]) == ("a person", "", response["at"])
    assert await lost.session.records(lost.command) == [Kind.CLAIM, Kind.OUTCOME, Kind.CLAIM, Kind.OUTCOME]


async def test_resolution_is_repeated_after_a_restart(lost: Lost) -> None:
    first = (await lost.resolve()).json()
    await lost.house.restart_gateway()
    assert (await lost.resolve()).json() == {**first, "replayed": True}


async def test_second_resolution_names_the_first_caller(lost: Lost) -> None:
    await lost.resolve("done", note="I saw it")
    answer = await lost.resolve("not-done", key="another")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "it was done, says a person: I saw it" in answer.json()["message"]


async def test_resolution_key_with_another_body_conflicts(lost: Lost) -> None:
    await lost.resolve("done")
    answer = await lost.resolve("not-done")
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")
    assert answer.json()["first_body_sha256"]


async def test_concurrent_resolutions_resolve_once(lost: Lost) -> None:
    answers = await asyncio.gather(*(lost.resolve(key=f"k{n}") for n in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 11
    assert (await lost.session.records(lost.command)).count(Kind.OUTCOME) == 2


async def test_late_executor_cannot_overwrite_a_resolution(lost: Lost) -> None:
    stale = await lost.session.effect(lost.command)
    await lost.resolve()
    done = Outcome(lost.command.call, "fire", "succeeded", "I did it", {}, effect_key="k")
    with pytest.raises(Fenced):
        await lost.session.effects.append(
            lost.session.ref, lost.command.pool, lost.command.call, stale, done, 1
        )


async def test_only_unknown_outcomes_can_be_resolved(lost: Lost) -> None:
    (running,) = await lost.session.commands(("fire", {"item": "y"}))
    await lost.session.record(running, Claimed(OWNER, 1, "k2"))
    for what in ("has no outcome yet", "is succeeded, which is certain"):
        answer = await lost.house.http.post(PATH, json={"call": f"fleet/{running.call}", "verdict": "done"})
        assert answer.status_code == 409
        assert what in answer.json()["message"]
        await lost.session.record(running, Outcome(running.call, "fire", "succeeded", "", {}))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"call": "fleet/9.9.9", "verdict": "done"}, 404, "not_found"),
        ({"call": "nobody/1.1.1", "verdict": "done"}, 404, "not_found"),
        ({"call": "no call", "verdict": "done"}, 422, "bad_input"),
        ({"call": "fleet/1.1.1", "verdict": "perhaps"}, 422, "bad_input"),
        ({"call": "fleet/1.1.1"}, 422, "bad_input"),
        ({"call": "fleet/1.1.1", "verdict": "done", "by": "me"}, 422, "bad_input"),
    ],
)
async def test_invalid_resolution_is_refused(
    lost: Lost, body: dict[str, str], status: int, code: str
) -> None:
    answer = await lost.house.http.post(PATH, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["hint"]
