"""The notifier's real code with channels behind their port: what a channel does concerns no turn, and no other channel."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.codec import decode
from anchorwatch.core.letters import DeadLetter
from anchorwatch.edges import Edge
from anchorwatch.journal.deliveries import read_delivery
from anchorwatch.journal.letters import find_message
from anchorwatch.packs import registry
from anchorwatch.service.context import ServiceContext
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life
from anchorwatch.topology.streams import DEAD, journal_stream
from anchorwatch_notifier import main as notifier
from anchorwatch_notifier.channels import NotSent
from anchorwatch_notifier.notices import Notice
from anchorwatch_notifier.sender import BACKOFF_S_MAX

from tests.support.letters import PoisonPack, in_state, letters, mesh_test, only_letter, order
from tests.support.packs import bench_agent

JOURNAL = journal_stream()
ROUTE = '[[channel]]\nname = "{name}"\nkind = "log"\non = ["turn_ended", "dead_letter", "effect_unknown"]\n'


class FakeChannel:
    """A receiver. ``fails`` says what the n-th sending (from 1) raises; what raises nothing has arrived."""

    def __init__(
        self,
        fails: Callable[[int], BaseException | None] = lambda _: None,
        *,
        deduplicates: bool = True,
        known: bool | None = None,
    ) -> None:
        self.fails = fails
        self.deduplicates = deduplicates
        self.known = known
        self.tries: list[tuple[float, str]] = []
        self.taken: list[tuple[str, Notice]] = []

    async def send(self, delivery_id: str, notice: Notice) -> None:
        self.tries.append((asyncio.get_running_loop().time(), delivery_id))
        error = self.fails(len(self.tries))
        if error is not None:
            raise error
        if not self.deduplicates or delivery_id not in {id_ for id_, _ in self.taken}:
            self.taken.append((delivery_id, notice))

    async def arrived(self, delivery_id: str) -> bool | None:
        del delivery_id
        return self.known

    async def close(self) -> None:
        pass

    def told(self, kind: str) -> list[Notice]:
        return [notice for _, notice in self.taken if kind in notice.kinds]


def settings(tmp_path: Path, *names: str) -> dict[str, Any]:
    file = tmp_path / "notify.toml"
    file.write_text("".join(ROUTE.format(name=name) for name in names))
    return {"notify": file}


def notifying(channels: Mapping[str, FakeChannel]) -> tuple[str, Callable[[ServiceContext], Any]]:
    made: Any = lambda route, _log: channels[route.name]  # noqa: E731 - one expression
    return "notifier", functools.partial(notifier.run, channel_of=made)


def agent(tmp_path: Path, pack: PoisonPack) -> Any:
    registry.register(pack)
    return bench_agent(tmp_path, pack=pack.name, heartbeat_s=3600)


async def states(mesh: SimMesh, ref: Any) -> list[str]:
    """How each delivery of the session stands, by its last record."""
    last: dict[str, str] = {}
    for _, subject, payload in await mesh.records(ref):
        if subject.startswith("sent."):
            last[subject] = read_delivery(decode(payload).body).state
    return list(last.values())


def test_a_delivery_that_fails_runs_no_turn_again_and_a_broken_channel_holds_up_no_other(
    tmp_path: Path,
) -> None:
    broken = FakeChannel(lambda _: NotSent("nobody answers"))
    works = FakeChannel()

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"broken": broken, "works": works}))
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
        for runs in range(1, 6):
            await mesh.until_rest(ref, runs)
            await mesh.until(lambda runs=runs: _is(len(works.taken) == runs), within_s=5)  # type: ignore[misc]
            await mesh.say(ref, f"m{runs}", kind="trigger")
        await mesh.until_rest(ref, 6)
        await asyncio.sleep(2 * 3600)
        anchor = await mesh.anchor(ref)
        # Heartbeats of an hour, and nothing beside them.
        assert anchor.run_count == anchor.run_id <= 6 + 2
        assert len(works.taken) == anchor.run_count
        assert len({id_ for id_, _ in works.taken}) == anchor.run_count
        gaps = [
            later - before for (before, _), (later, _) in zip(broken.tries, broken.tries[1:], strict=False)
        ]
        assert len(broken.tries) < 60, "it is left alone, longer each time"
        assert max(gaps) <= 2 * BACKOFF_S_MAX, "and not for ever"
        assert await letters(mesh.bus) == [], "a receiver that is away is no fault of the message"

    mesh_test(body, **settings(tmp_path, "broken", "works"))


async def _is(value: bool) -> bool:  # noqa: FBT001 - the value is the answer
    return value


@pytest.mark.parametrize("seed", range(6))
def test_a_planner_that_dies_tells_of_an_ended_turn_once(tmp_path: Path, seed: int) -> None:
    channel = FakeChannel(deduplicates=False)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
        planner = mesh.processes["planner-1"]
        for n in range(8):
            await mesh.say(ref, f"m{n}", kind="trigger")
            await asyncio.sleep(0.003 * ((seed * 5 + n * 3) % 17))
            await planner.kill()
            await planner.start()
        await mesh.until_rest(ref, 1)
        await asyncio.sleep(60)
        anchor = await mesh.until_rest(ref, 1)
        runs = [notice.data["run"] for notice in channel.told("turn_ended")]
        assert sorted(runs) == list(range(1, anchor.run_count + 1))

    mesh_test(body, seed, **settings(tmp_path, "ops"))


@pytest.mark.parametrize("wait_s", [7.0, 3_000.0])
def test_a_receiver_that_says_when_is_left_alone_until_then(tmp_path: Path, wait_s: float) -> None:
    channel = FakeChannel(lambda n: NotSent("429", wait_s) if n == 1 else None)

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
        await mesh.until_rest(ref, 1)
        await mesh.until(lambda: _is(len(channel.taken) == 1), within_s=wait_s + 120)
        (first, id_), (second, again) = channel.tries
        assert id_ == again
        assert wait_s <= second - first <= wait_s + 61

    mesh_test(body, **settings(tmp_path, "ops"))


@pytest.mark.parametrize(
    ("known", "state", "sent"), [(None, "unknown", 1), (True, "sent", 1), (False, "sent", 2)]
)
def test_a_timeout_after_sending_is_settled_by_asking_and_else_unknown_and_not_sent_again(
    tmp_path: Path,
    known: bool | None,  # noqa: FBT001 - what the channel answers
    state: str,
    sent: int,
) -> None:
    channel = FakeChannel(
        lambda n: NotSent("no answer in time") if n == 1 else None, deduplicates=False, known=known
    )

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
        await mesh.until_rest(ref, 1)

        async def ended() -> bool:
            return await states(mesh, ref) == [state]

        await mesh.until(ended, within_s=120)
        await asyncio.sleep(600)
        assert len(channel.tries) == sent

    mesh_test(body, **settings(tmp_path, "ops"))


def test_the_notifiers_own_faults_are_a_letter_and_notify_nobody(tmp_path: Path) -> None:
    """Neither through the channel that is at fault nor through the one that works."""
    faulty = FakeChannel(lambda _: ZeroDivisionError("a fault of the notifier"))
    works = FakeChannel()

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"faulty": faulty, "works": works}))
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
        await mesh.until_rest(ref, 1)
        await mesh.until(in_state(mesh.bus, "open"), within_s=300)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert (letter.address.service, letter.address.handler, letter.tries) == ("notifier", "record", 8)
        await asyncio.sleep(600)
        assert len(faulty.tries) == 8
        assert [notice.kinds for _, notice in works.taken] == [("turn_ended",)]
        faulty.fails = lambda _: None
        await order(mesh.bus, letter, "retry", mesh.server.now_ms())
        await mesh.until(in_state(mesh.bus, "done"), within_s=10)
        assert [notice.kinds for _, notice in faulty.taken] == [("turn_ended",)]

    mesh_test(body, **settings(tmp_path, "faulty", "works"))


def test_a_notice_whose_letter_cannot_be_written_at_first_is_not_stuck(tmp_path: Path) -> None:
    pack = PoisonPack()
    faulty = FakeChannel(lambda _: ZeroDivisionError("a fault of the notifier"))

    def fail(_: Life) -> None:
        raise ZeroDivisionError("a fault of writing letters")

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"faulty": faulty}))
        for reach in (1, 2):
            mesh.watch.plan(Edge.NOTIFIER_LETTER_BEFORE, reach, fail)
        await mesh.session("s", agent(tmp_path, pack))
        await mesh.until(in_state(mesh.bus, "open"), within_s=600)
        assert mesh.crashes == []

    mesh_test(body, **settings(tmp_path, "faulty"))


def test_a_letter_that_could_not_be_told_of_and_has_moved_on_can_be_retried(tmp_path: Path) -> None:
    """The record that the notifier failed on is replaced by then."""
    channel = FakeChannel(lambda _: ZeroDivisionError("a fault of the notifier") if pack.broken else None)
    pack = PoisonPack()
    pack.broken = True

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        ref = await mesh.session("s", agent(tmp_path, pack))
        await mesh.until_rest(ref, 1, within_s=300)

        async def letter(service: str, stream: str, state: str) -> DeadLetter | None:
            found = [each for each in await letters(mesh.bus) if each.state == state]
            of = [each for each in found if (each.address.service, each.address.stream) == (service, stream)]
            return of[0] if of else None

        async def told_in_vain() -> bool:
            return await letter("notifier", DEAD, "open") is not None

        async def gone_on() -> bool:
            return await letter("executor", JOURNAL, "done") is not None

        async def settled() -> bool:
            return await letter("notifier", DEAD, "done") is not None

        await mesh.until(told_in_vain, within_s=300)
        untold = await letter("notifier", DEAD, "open")
        cause = await letter("executor", JOURNAL, "open")
        assert untold is not None
        assert cause is not None
        pack.broken = False
        await order(mesh.bus, cause, "retry", mesh.server.now_ms(), "k1")
        await mesh.until(gone_on, within_s=60)
        assert (await find_message(mesh.bus, untold.address)).sequence > untold.address.sequence
        await order(mesh.bus, untold, "retry", mesh.server.now_ms(), "k2")
        await mesh.until(settled, within_s=10)
        assert channel.told("dead_letter") == []

    mesh_test(body, **settings(tmp_path, "ops"))


def test_people_are_told_of_each_opening_of_a_letter_once(tmp_path: Path) -> None:
    channel = FakeChannel(deduplicates=False)
    pack = PoisonPack()
    pack.broken = True

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        ref = await mesh.session("s", agent(tmp_path, pack))
        await mesh.until_rest(ref, 1, within_s=300)
        await mesh.until(lambda: _is(len(channel.told("dead_letter")) >= 1), within_s=5)
        await mesh.processes["notifier-1"].kill()
        await mesh.processes["notifier-1"].start()
        await asyncio.sleep(10)
        (notice,) = channel.told("dead_letter")
        assert notice.severity == "critical"
        assert notice.content()["letter"] == "executor-s-1-1-1"
        assert notice.content()["session"] == "s"
        assert "this pack cannot connect" in notice.text
        (id_,) = [id_ for id_, each in channel.taken if each is notice]
        assert id_.startswith("dead-")

    mesh_test(body, **settings(tmp_path, "ops"))
