"""The notifier's real code with channels behind their port: what a channel does concerns no turn, and no other channel."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import EffectState, Owner
from anchorwatch.core.letters import DeadLetter
from anchorwatch.core.names import SessionRef
from anchorwatch.core.tools import EffectClass
from anchorwatch.edges import Edge
from anchorwatch.journal.deliveries import Delivery, DeliveryJournal, read_delivery
from anchorwatch.journal.letters import find_message
from anchorwatch.packs import registry
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.worker import Done, RetryIn
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life
from anchorwatch.topology.streams import DEAD, journal_stream
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_notifier import main as notifier
from anchorwatch_notifier import routes
from anchorwatch_notifier.channels import NotSent
from anchorwatch_notifier.main import make_sender
from anchorwatch_notifier.notices import Notice, read_notice
from anchorwatch_notifier.sender import BACKOFF_S_MAX, Sender

from tests.support.letters import PoisonPack, in_state, letters, mesh_test, only_letter, order
from tests.support.packs import bench_agent
from tests.support.services import make_context

JOURNAL = journal_stream()
ROUTE = '[[channel]]\nname = "{name}"\nkind = "log"\non = ["turn_ended", "dead_letter", "effect_unknown"]\n'


class FakeChannel:
    """A receiver. ``fails`` says what the n-th sending (from 1) raises; what raises nothing has arrived."""

    def __init__(
        self,
        fails: Callable[[int], BaseException | None] = lambda _: None,
        *,
        effect_class: EffectClass = EffectClass.IDEMPOTENT,
        known: bool | None = None,
        rejects_used_id: bool = True,
    ) -> None:
        self.fails = fails
        self.effect_class = effect_class
        self.rejects_used_id = rejects_used_id
        self.known = known
        self.tries: list[tuple[float, str]] = []
        self.taken: list[tuple[str, Notice]] = []

    async def send(self, delivery_id: str, notice: Notice) -> None:
        self.tries.append((asyncio.get_running_loop().time(), delivery_id))
        error = self.fails(len(self.tries))
        if error is not None:
            raise error
        if self.effect_class is not EffectClass.IDEMPOTENT or delivery_id not in {
            id_ for id_, _ in self.taken
        }:
            self.taken.append((delivery_id, notice))

    async def arrived(self, delivery_id: str) -> bool | None:
        del delivery_id
        return self.known

    async def close(self) -> None:
        pass

    def report(self, kind: str) -> list[Notice]:
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


async def states(mesh: SimMesh, ref: SessionRef) -> list[str]:
    """How each delivery of the session stands, by its last record."""
    last: dict[str, str] = {}
    for _, subject, payload in await mesh.records(ref):
        if subject.startswith("sent."):
            last[subject] = read_delivery(decode(payload).body).state
    return list(last.values())


@pytest.mark.slow
def test_failed_delivery_reruns_no_turn_and_delays_no_channel(
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
def test_dying_planner_reports_an_ended_turn_once(tmp_path: Path, seed: int) -> None:
    channel = FakeChannel(effect_class=EffectClass.IRREVERSIBLE)

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
        runs = [notice.data["run"] for notice in channel.report("turn_ended")]
        assert sorted(runs) == list(range(1, anchor.run_count + 1))

    mesh_test(body, seed, **settings(tmp_path, "ops"))


@pytest.mark.slow
@pytest.mark.parametrize("wait_s", [7.0, 3_000.0])
def test_receiver_that_sets_a_delay_is_not_called_before_it(tmp_path: Path, wait_s: float) -> None:
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
def test_timeout_after_sending_is_settled_by_query_or_unknown(
    tmp_path: Path,
    known: bool | None,  # noqa: FBT001 - what the channel answers
    state: str,
    sent: int,
) -> None:
    channel = FakeChannel(
        lambda n: NotSent("no answer in time") if n == 1 else None,
        effect_class=EffectClass.IRREVERSIBLE if known is None else EffectClass.RECONCILABLE,
        known=known,
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


IDEMPOTENT, RECONCILABLE, IRREVERSIBLE = (
    EffectClass.IDEMPOTENT,
    EffectClass.RECONCILABLE,
    EffectClass.IRREVERSIBLE,
)
# Of an irreversible one: how its delivery ends, and how often it went out. The others end well at every edge, received once.
DEATHS = {
    Edge.NOTIFIER_CLAIM_BEFORE: ("sent", 1),
    Edge.NOTIFIER_CLAIM_AFTER: ("unknown", 0),
    Edge.NOTIFIER_SEND_BEFORE: ("unknown", 0),
    Edge.NOTIFIER_SEND_AFTER: ("unknown", 1),
    Edge.NOTIFIER_DELIVERY_BEFORE: ("unknown", 1),
    Edge.NOTIFIER_DELIVERY_AFTER: ("sent", 1),
    Edge.NOTIFIER_ACK_BEFORE: ("sent", 1),
}
CLAIMS = (Edge.NOTIFIER_CLAIM_BEFORE, Edge.NOTIFIER_CLAIM_AFTER)


class Ledger(FakeChannel):
    """A receiver that can be asked, if it is reconcilable."""

    async def arrived(self, delivery_id: str) -> bool | None:
        if self.effect_class is not RECONCILABLE:
            return None
        return delivery_id in {id_ for id_, _ in self.taken}


@pytest.mark.parametrize(
    ("effect_class", "edge", "state", "taken"),
    [
        *((RECONCILABLE, edge, "sent", 1) for edge in DEATHS),
        *((IDEMPOTENT, edge, "sent", 1) for edge in DEATHS if edge not in CLAIMS),
        *((IRREVERSIBLE, edge, *ends) for edge, ends in DEATHS.items()),
    ],
    ids=str,
)
def test_delivery_is_settled_by_class_whenever_its_notifier_dies(
    tmp_path: Path, effect_class: EffectClass, edge: Edge, state: str, taken: int
) -> None:
    channel, died = Ledger(effect_class=effect_class), list[str]()

    def die(life: Life) -> None:
        died.append(life.process.instance)
        life.die_here()

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        mesh.watch.plan(edge, 1, die)
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
        await mesh.until(lambda: _is(bool(died)), within_s=60)
        await mesh.processes["notifier-1"].start()

        async def ended() -> bool:
            return await states(mesh, ref) == [state]

        await mesh.until(ended, within_s=120)
        await asyncio.sleep(120)
        assert await ended()
        assert len(channel.taken) == taken

    mesh_test(body, **settings(tmp_path, "ops"))


@pytest.mark.parametrize(
    ("effect_class", "liveness", "known", "rejects", "state", "sent"),
    [
        (IDEMPOTENT, "alive", None, True, "sent", 1),
        (RECONCILABLE, "dead", True, False, "sent", 0),
        (RECONCILABLE, "dead", False, False, "sent", 1),
        (RECONCILABLE, "dead", None, False, "unknown", 0),
        (RECONCILABLE, "gone", True, False, "sent", 0),
        (RECONCILABLE, "gone", False, True, "sent", 1),
        # Its owner may only be stopped, and deliver it yet.
        (RECONCILABLE, "gone", False, False, "unknown", 0),
        (RECONCILABLE, "alive", False, True, "claimed", 0),
        (RECONCILABLE, "unknown", False, True, "claimed", 0),
        (IRREVERSIBLE, "dead", None, False, "unknown", 0),
        (IRREVERSIBLE, "gone", None, False, "unknown", 0),
        (IRREVERSIBLE, "alive", None, False, "claimed", 0),
    ],
)
def test_foreign_claim_is_settled_as_its_class_allows(
    tmp_path: Path,
    effect_class: EffectClass,
    liveness: str,
    known: bool | None,  # noqa: FBT001 - what the channel answers
    rejects: bool,  # noqa: FBT001 - whether the receiver rejects a used id
    state: str,
    sent: int,
) -> None:
    channel = FakeChannel(effect_class=effect_class, known=known, rejects_used_id=rejects)

    async def body(mesh: SimMesh) -> None:
        ref, notice = await noticed(mesh, tmp_path)
        sender, journal = sending(mesh, tmp_path, channel, liveness)
        id_, owner = notice.delivery_id("ops"), Owner("notifier-9", "other")
        claim = Delivery("ops", "log", notice.sequence, notice.kinds, notice.title, "claimed", owner)
        await journal.append(notice.ref, id_, EffectState(), claim, mesh.server.now_ms())
        result = await sender.deliver(notice, first=False)
        assert isinstance(result, RetryIn if state == "claimed" else Done)
        assert (await states(mesh, ref), len(channel.tries)) == ([state], sent)

    mesh_test(body)


async def noticed(mesh: SimMesh, tmp_path: Path) -> tuple[SessionRef, Notice]:
    """A session with one turn that has ended, and the notice of that."""
    await mesh.open("planner", "executor")
    ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
    await mesh.until_rest(ref, 1)
    page = await mesh.bus.range(JOURNAL, SessionSubjects(ref).anchor_change, 1, limit=100)
    (notice,) = [each for each in map(read_notice, page.messages) if each is not None]
    return ref, notice


def sending(
    mesh: SimMesh, tmp_path: Path, channel: FakeChannel, liveness: str = "dead"
) -> tuple[Sender, DeliveryJournal]:
    """The sender of one channel, as ``notifier-1`` has it, and the journal of deliveries."""
    context = make_context(mesh.bus, "notifier", "notifier-1", Peer(liveness))
    [route] = routes.load(settings(tmp_path, "ops")["notify"])
    return make_sender(context, route, channel), DeliveryJournal(mesh.bus, context.committer, "outside")


class Slow(FakeChannel):
    """A receiver that takes its time."""

    async def send(self, delivery_id: str, notice: Notice) -> None:
        await super().send(delivery_id, notice)
        await asyncio.sleep(5)


def test_delivery_in_flight_is_not_sent_a_second_time(tmp_path: Path) -> None:
    """A record that comes again, and its dead letter that is retried, may meet in one process."""
    channel = Slow(effect_class=IRREVERSIBLE)

    async def body(mesh: SimMesh) -> None:
        ref, notice = await noticed(mesh, tmp_path)
        sender, _ = sending(mesh, tmp_path, channel)
        in_flight = asyncio.create_task(sender.deliver(notice, first=True))
        await mesh.until(lambda: _is(bool(channel.tries)))
        assert isinstance(await sender.deliver(notice, first=False), RetryIn), "it is to come again later"
        assert await in_flight == Done()
        assert await sender.deliver(notice, first=False) == Done()
        assert (await states(mesh, ref), len(channel.tries)) == (["sent"], 1)

    mesh_test(body)


class Peer:
    """Says the same of every process."""

    def __init__(self, liveness: str) -> None:
        self._liveness = liveness

    async def alive(self, instance: str, incarnation: str) -> Any:
        del instance, incarnation
        return self._liveness


def test_delivery_sent_but_not_recorded_is_not_sent_again(tmp_path: Path) -> None:
    """Its own process goes on, and knows no more than another would."""
    channel = FakeChannel(effect_class=IRREVERSIBLE)

    def fail(_: Life) -> None:
        raise ZeroDivisionError("a fault of recording")

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        mesh.watch.plan(Edge.NOTIFIER_DELIVERY_BEFORE, 1, fail)
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))

        async def ended() -> bool:
            return await states(mesh, ref) == ["unknown"]

        await mesh.until(ended, within_s=120)
        assert len(channel.tries) == 1

    mesh_test(body, **settings(tmp_path, "ops"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hint_s", "tries", "within_s"), [(0.0, range(3, 7), 10), (1e12, range(2, 4), 2.5 * 3600)]
)
def test_hint_of_a_receiver_replaces_none_of_our_bounds(
    tmp_path: Path, hint_s: float, tries: range, within_s: float
) -> None:
    channel = FakeChannel(lambda _: NotSent("429", hint_s))

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        ref = await mesh.session("s", agent(tmp_path, PoisonPack()))
        await mesh.until_rest(ref, 1)
        await mesh.until(lambda: _is(bool(channel.tries)))
        await asyncio.sleep(within_s)
        first, _ = channel.tries[0]
        assert len([at for at, _ in channel.tries if at <= first + within_s]) in tries

    mesh_test(body, **settings(tmp_path, "ops"))


def test_notifier_faults_are_a_letter_and_send_no_notice(tmp_path: Path) -> None:
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


def test_notice_whose_letter_fails_at_first_is_not_stuck(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_unannounced_letter_that_has_moved_on_can_be_retried(tmp_path: Path) -> None:
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
        assert channel.report("dead_letter") == []

    mesh_test(body, **settings(tmp_path, "ops"))


def test_letter_opening_is_reported_once(tmp_path: Path) -> None:
    channel = FakeChannel(effect_class=EffectClass.IRREVERSIBLE)
    pack = PoisonPack()
    pack.broken = True

    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "executor", notifying({"ops": channel}))
        ref = await mesh.session("s", agent(tmp_path, pack))
        await mesh.until_rest(ref, 1, within_s=300)
        await mesh.until(lambda: _is(len(channel.report("dead_letter")) >= 1), within_s=5)
        await mesh.processes["notifier-1"].kill()
        await mesh.processes["notifier-1"].start()
        await asyncio.sleep(10)
        (notice,) = channel.report("dead_letter")
        assert notice.severity == "critical"
        assert notice.content()["letter"] == "executor-s-1-1-1"
        assert notice.content()["session"] == "s"
        assert "this pack cannot connect" in notice.text
        (id_,) = [id_ for id_, each in channel.taken if each is notice]
        assert id_.startswith("dead-")

    mesh_test(body, **settings(tmp_path, "ops"))
