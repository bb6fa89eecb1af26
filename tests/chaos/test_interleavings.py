"""The interleavings that broke the protocol before it was built (docs/protocol.md), on one real server and on three.

Those in which the server is what matters; each writer speaks to a server of its own. The others are held by the machines' tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.bus.port import Bus, Expect, KeyValue, Page
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect.state import Claimed, EffectState, Owner
from anchorwatch.core.errors import Fenced, Unavailable
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Control, TakeOver
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.service.context import WallClock
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.topology.streams import ANCHORS_BUCKET, TICKS, journal_stream
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_planner.wakeups import WakeupTimers, timer_of_session

from tests.support.eventually import persist
from tests.support.journal_writer import P1, P2, JournalWriter, acquire, step
from tests.support.nats_server import Cluster, NatsServer, start_cluster
from tests.support.waiting import eventually

ROUNDS = 12
ELECTION_S_MAX = 40.0
STALE_READS = 200


@dataclass
class Place:
    """The servers of a test, and a connection to each."""

    cluster: Cluster
    buses: list[JetStreamBus]

    def writer(self, session: str, n: int) -> JournalWriter:
        """A session's journal, by the ``n``-th server."""
        return JournalWriter(self.buses[n % len(self.buses)], session)

    async def leader(self) -> NatsServer:
        """The server that leads the journal; alone, it is the only one."""
        if len(self.buses) == 1:
            return self.cluster.servers[0]
        name = await eventually(lambda: self.buses[0].leader(journal_stream()), ELECTION_S_MAX)
        return self.cluster.named(name)


@pytest.fixture(scope="module", params=[1, 3], ids=["one", "three"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("servers")
    made = start_cluster(directory) if request.param == 3 else Cluster([NatsServer(directory).start()])
    try:
        yield made
    finally:
        made.kill9()


@pytest.fixture
async def place(cluster: Cluster) -> AsyncIterator[Place]:
    size = len(cluster.servers)
    buses = [
        await jetstream.connect(url, user=None, password=None, name=f"n{n}", replicas=size)
        for n, url in enumerate(cluster.urls)
    ]
    await persist(lambda: ensure_topology(buses[0]), ELECTION_S_MAX)
    yield Place(cluster, buses)
    for bus in buses:
        await bus.close()


async def held(writer: JournalWriter) -> SessionState:
    """A session whose turn P1 holds."""
    state = await writer.created()
    return await writer.do(state, acquire(state, P1))


async def test_interleaving_1_step_races_takeover_and_one_wins(place: Place) -> None:
    for n in range(ROUNDS):
        one, two = (place.writer(f"race-{n}", which) for which in (n, n + 1))
        state = await held(one)
        raced = await asyncio.gather(
            one.do(state, step(1, P1)), two.do(state, TakeOver(P2, 1, 2_500, "raced")), return_exceptions=True
        )
        assert sorted(type(each) is SessionState for each in raced) == [False, True]
        assert [type(each) for each in raced if not isinstance(each, SessionState)] == [Fenced]
        after = await one.journal.load(one.ref, state.head + 1)
        assert after.head == state.head + 1, "nothing else was written"


async def test_interleaving_2_step_racing_cancel_commits_whole_or_not(place: Place) -> None:
    for n in range(ROUNDS):
        one, two = (place.writer(f"batch-{n}", which) for which in (n, n + 1))
        state = await held(one)
        raced = await asyncio.gather(
            one.do(state, step(1, P1, count=5)),
            two.do(state, Control(Kind.CANCELLED, "person", 2_400)),
            return_exceptions=True,
        )
        won = [isinstance(each, SessionState) for each in raced]
        assert sum(won) == 1, raced
        commands = SessionSubjects(one.ref).command("default")

        async def all_read() -> Page | None:
            # A replica that is late answers with a page that ends before.
            page = await one.bus.range(journal_stream(), commands, 1, reach=state.head + 1)  # noqa: B023 - awaited here
            return page if page.up_to > state.head else None  # noqa: B023 - awaited here

        page = await eventually(all_read, what="the server has the records")
        assert page is not None
        assert len(page.messages) == (5 if won[0] else 0)


async def test_interleaving_3_shared_message_id_makes_one_writer_lose(
    place: Place,
) -> None:
    for n in range(ROUNDS):
        writers = [place.writer(f"shared-{n}", which) for which in (n, n + 1)]
        subjects = SessionSubjects(writers[0].ref)
        subject = subjects.effect("default", CallId(1, 1, 1), "claim")
        family = Expect(subjects.effect_family("default", CallId(1, 1, 1)), 0)
        claims = await asyncio.gather(
            *(
                Committer(writer.bus, journal_stream(), new_id=lambda: f"same-{n}").commit(  # noqa: B023 - called at once
                    [Write(subject, f"{which}".encode())], family
                )
                for which, writer in enumerate(writers)
            ),
            return_exceptions=True,
        )
        assert sorted(isinstance(claim, int) for claim in claims) == [False, True], claims
        assert [type(claim) for claim in claims if not isinstance(claim, int)] == [Fenced]


async def test_interleaving_4_stale_server_is_not_trusted_after_stop(
    place: Place,
) -> None:
    writer = place.writer("stale", 0)
    state = await held(writer)
    old = await place.leader()
    others = [
        bus for bus, server in zip(place.buses, place.cluster.servers, strict=True) if server is not old
    ]
    writer = JournalWriter((others or place.buses)[0], "stale")
    reader = JournalWriter(place.buses[place.cluster.servers.index(old)], "stale")
    old.pause()
    try:
        if not others:
            old.resume()
        fenced = await persist(
            lambda: writer.do(state, Control(Kind.CANCELLED, "person", 2_400)), ELECTION_S_MAX
        )
    finally:
        old.resume()
    seen: list[Anchor] = []
    while len(seen) < STALE_READS:
        with contextlib.suppress(Unavailable):
            anchor, sequence = await reader.journal.read_anchor(reader.ref, fenced.head)
            assert sequence == fenced.head
            seen.append(anchor)
    assert {anchor.fence.run for anchor in seen} == {2}


async def test_interleaving_4_racing_claim_and_cancel_see_each_other(
    place: Place,
) -> None:
    """After a claim the executor reads the anchor, and after a cancel the person reads the claims: from servers that may lag."""
    ident = CallId(1, 1, 1)
    for n in range(ROUNDS):
        claimer, claimers_eyes, canceller, cancellers_eyes = (
            place.writer(f"cross-{n}", n + k) for k in range(4)
        )
        state = await held(claimer)
        state = await claimer.do(state, step(1, P1))

        async def claim(by: JournalWriter = claimer, eyes: JournalWriter = claimers_eyes) -> bool:
            owner = Owner("executor-1", "aa")
            claimed = await by.effects.append(
                by.ref, "default", ident, EffectState(), Claimed(owner, 1, "k"), 2_000
            )
            anchor, _ = await persist(
                lambda: eyes.journal.read_anchor(eyes.ref, claimed.head), ELECTION_S_MAX
            )
            return anchor.fence.run > ident.run

        async def cancel(
            by: JournalWriter = canceller, eyes: JournalWriter = cancellers_eyes, state: SessionState = state
        ) -> bool:
            fenced = await by.do(state, Control(Kind.CANCELLED, "person", 2_400))
            effect = await persist(
                lambda: eyes.effects.look(eyes.ref, "default", ident, fenced.head), ELECTION_S_MAX
            )
            return 0 < effect.first_claim < fenced.head

        is_refused, may_have_run = await asyncio.gather(claim(), cancel())
        assert is_refused or may_have_run, "it would run, and nobody would say so"


async def test_interleaving_5_one_of_many_executors_claims_on_any_node(place: Place) -> None:
    ident = CallId(1, 1, 1)
    for n in range(ROUNDS):
        writers = [place.writer(f"claims-{n}", which) for which in range(6)]
        claims = await asyncio.gather(
            *(
                writer.effects.append(
                    writer.ref, "default", ident, EffectState(), Claimed(Owner(f"e-{which}", "aa"), 1, "k"), 1
                )
                for which, writer in enumerate(writers)
            ),
            return_exceptions=True,
        )
        [won] = [claim for claim in claims if isinstance(claim, EffectState)]
        assert {type(claim) for claim in claims if claim is not won} == {Fenced}
        for writer in writers[:3]:
            stands = await persist(
                lambda writer=writer, won=won: writer.effects.look(writer.ref, "default", ident, won.head),  # type: ignore[misc]
                ELECTION_S_MAX,
            )
            assert stands.claim is not None
            assert won.claim is not None
            assert (stands.head, stands.claim.owner) == (won.head, won.claim.owner)


async def test_interleaving_11_schedule_moves_only_earlier(
    place: Place,
) -> None:
    clock = WallClock()
    for n in range(ROUNDS):
        ref = place.writer(f"tick-{n}", 0).ref
        in_an_hour = clock.now_ms() + 3_600_000
        wishes = [in_an_hour + minutes * 60_000 for minutes in (3, 1, 0, 2)]

        async def ensure(bus: Bus, at: int, ref: SessionRef = ref) -> None:
            await persist(lambda: WakeupTimers(bus, clock).ensure(timer_of_session(ref), at), ELECTION_S_MAX)

        async def earliest_stands(ref: SessionRef = ref, at: int = in_an_hour) -> bool:
            page = await place.buses[0].last(TICKS, [SessionSubjects(ref).tick_schedule])
            return [json.loads(each.payload)["at_ms"] for each in page.messages] == [at]

        await asyncio.gather(*(ensure(place.buses[k % len(place.buses)], at) for k, at in enumerate(wishes)))
        # A server that lags may answer late, but nothing later than the earliest was ever allowed to stand last.
        await eventually(earliest_stands, ELECTION_S_MAX)


async def test_interleaving_12_view_shows_the_current_anchor(
    place: Place,
) -> None:
    writer = place.writer("viewed", 0)
    state = await held(writer)
    state = await writer.do(state, Control(Kind.DELETED, "person", 2_400))
    last = await writer.bus.last(journal_stream(), [SessionSubjects(writer.ref).anchor_change])
    for bus in place.buses:
        view = await bus.bucket(ANCHORS_BUCKET)

        async def is_shown(view: KeyValue = view) -> bool:
            entry = await view.get(f"{writer.ref.workspace}.{writer.ref.session}")
            return entry is not None and entry.value == last.messages[0].payload

        await eventually(is_shown, ELECTION_S_MAX)
