"""Webhooks: one for each record and channel, whatever the receiver and the notifier go through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch_notifier.sender import BACKOFF_S_MIN

from tests.integration.notifier.conftest import Notifiers, settled
from tests.support.nats_server import free_ports
from tests.support.receiver import SECRET, Answer, Receiver, receiving
from tests.support.sessions import ScriptedSession
from tests.support.waiting import eventually


def hook(url: str, more: str = "", name: str = "hook") -> str:
    return f'[[channel]]\nname = "{name}"\nkind = "webhook"\nurl = "{url}"\nsecret = "{SECRET}"\n{more}\n'


async def turns(session: ScriptedSession, count: int, outcome: str = "failed") -> int:
    last = 0
    for n in range(count):
        await session.acquire(f"turn_{n}")
        last = await session.end(outcome, f"reason {n}")
    return last


async def test_notice_is_posted_signed_and_recorded(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession
) -> None:
    async with receiving(Receiver()) as receiver:
        notifiers.channels(hook(receiver.url))
        await notifiers.start()
        last = await turns(session, 1)
        await settled(bus, last)
        (id_,) = receiver.taken
        content = receiver.taken[id_]
        assert receiver.problems == []
        assert id_.startswith(f"{last}-hook-")
        assert (content["type"], content["data"]["title"]) == ("turn_failed", "fleet: turn 1 ended failed")
        assert (content["data"]["text"], content["data"]["record"]) == ("reason 0", last)
        (record,) = await session.last("sent.*")
        assert (record.body["state"], record.body["channel"]) == ("sent", "hook")


async def test_successful_turn_is_sent_only_to_subscribed_channels(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession
) -> None:
    async with receiving(Receiver()) as usual, receiving(Receiver()) as every:
        notifiers.channels(hook(usual.url) + hook(every.url, 'on = ["turn_ended"]', "every"))
        await notifiers.start()
        await settled(bus, await turns(session, 2, "success"))
        assert (len(usual.taken), len(every.taken)) == (0, 2)


def flaky(n: int) -> Answer:
    """Every second request fails, in some way or other."""
    return (200, 500, 200, (429, "0"), 200, 404, 204)[n % 7]


async def test_flaky_receiver_takes_each_once(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch_notifier.sender.BACKOFF_S_MIN", 0.05)
    async with receiving(Receiver(flaky)) as receiver:
        notifiers.channels(hook(receiver.url))
        await notifiers.start()
        await settled(bus, await turns(session, 10))
        assert len(receiver.taken) == 10
        assert receiver.problems == []
        assert [record.body["state"] for record in await session.last("sent.*")] == ["sent"] * 10


async def test_answer_that_never_comes_leads_to_the_same_id_again(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch_notifier.channels.WEBHOOK_TIMEOUT_S", 0.5)
    async with receiving(Receiver(lambda n: None if n == 1 else 200)) as receiver:
        notifiers.channels(hook(receiver.url))
        await notifiers.start()
        await settled(bus, await turns(session, 1))
        assert len(receiver.requests) >= 2
        assert len(set(receiver.requests)) == 1


async def test_notifier_killed_while_sending_sends_the_same_id_again(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession
) -> None:
    async with receiving(Receiver(lambda n: None if n == 1 else 200)) as receiver:
        notifiers.channels(hook(receiver.url))
        first = await notifiers.start()
        last = await turns(session, 3)

        async def arrived() -> bool:
            return bool(receiver.requests)

        await eventually(arrived)
        await notifiers.kill(first)
        await notifiers.start()
        await settled(bus, last)
        assert len(receiver.taken) == 3
        assert receiver.requests.count(receiver.requests[0]) == 2


# A busy machine has so long to bring the other channel's all.
LEFT_ALONE_S = 4


def in_seconds() -> str:
    return str(LEFT_ALONE_S)


def as_a_date() -> str:
    """At least so long from now; such a date has whole seconds."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=LEFT_ALONE_S + 1), usegmt=True)


@pytest.mark.parametrize("says", [in_seconds, as_a_date])
async def test_receiver_that_sets_a_delay_gets_it_and_delays_no_other(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, says: Callable[[], str]
) -> None:
    asked: list[float] = []

    def busy(n: int) -> Answer:
        asked.append(time.monotonic())
        return (429, says()) if n == 1 else 200

    async with receiving(Receiver(busy)) as slow, receiving(Receiver()) as quick:
        notifiers.channels(hook(slow.url, name="slow") + hook(quick.url, name="quick"))
        await notifiers.start()
        last = await turns(session, 5)

        async def quick_is_done() -> bool:
            return len(quick.taken) == 5

        await eventually(quick_is_done)
        assert len(slow.taken) < 5
        await settled(bus, last)
        assert len(slow.taken) == 5
        assert asked[1] - asked[0] >= LEFT_ALONE_S - 0.1
        assert len(quick.requests) == 5


@pytest.mark.parametrize("says", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
async def test_retry_after_never_shortens_our_backoff(
    notifiers: Notifiers, session: ScriptedSession, says: str
) -> None:
    asked: list[float] = []

    def busy(_: int) -> Answer:
        asked.append(time.monotonic())
        return 429, says

    async with receiving(Receiver(busy)) as receiver:
        notifiers.channels(hook(receiver.url))
        await notifiers.start()
        await turns(session, 3)

        async def asked_thrice() -> bool:
            return len(asked) >= 3

        await eventually(asked_thrice)
        assert asked[1] - asked[0] >= BACKOFF_S_MIN / 2
        assert asked[2] - asked[1] >= BACKOFF_S_MIN


async def test_unavailable_receiver_gets_everything_on_its_return(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch_notifier.sender.BACKOFF_S_MAX", 0.2)
    (port,) = free_ports(1)
    notifiers.channels(hook(f"http://127.0.0.1:{port}/hook"))
    await notifiers.start()
    last = await turns(session, 20)
    async with receiving(Receiver(), port) as receiver:
        await settled(bus, last)
        assert len(receiver.taken) == 20
        assert len(receiver.requests) == 20


async def test_delivery_is_abandoned_after_a_day(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch_notifier.sender.GIVE_UP_S", 3.0)
    monkeypatch.setattr("anchorwatch_notifier.sender.BACKOFF_S_MIN", 0.2)
    async with receiving(Receiver(lambda _: 500)) as receiver:
        notifiers.channels(hook(receiver.url))
        await notifiers.start()
        await settled(bus, await turns(session, 1))
        (record,) = await session.last("sent.*")
        assert (record.body["state"], record.body["error"]) == ("failed", "the receiver answered 500")
        assert len(receiver.requests) > 1


class Chatty(Receiver):
    """Says something to each notice, and counts the connections that they come on. ``endless``: it never ends."""

    endless = False
    connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await self._head(reader):
                headers = dict(line.split(": ", 1) for line in head[1:])
                self._take(headers, await reader.readexactly(int(headers["content-length"])))
                writer.write(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
                while self.endless:
                    writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
                    await writer.drain()
                writer.write(b"0\r\n\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def test_one_connection_serves_many_notices(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession
) -> None:
    async with receiving(Chatty()) as receiver:
        notifiers.channels(hook(receiver.url))
        await notifiers.start()
        for _ in range(5):
            await settled(bus, await turns(session, 1))
        assert isinstance(receiver, Chatty)
        assert (len(receiver.taken), receiver.connections) == (5, 1)


async def test_answer_without_end_is_an_answer(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession
) -> None:
    endless = Chatty()
    endless.endless = True
    async with receiving(endless) as receiver:
        notifiers.channels(hook(receiver.url))
        await notifiers.start()
        await settled(bus, await turns(session, 3))
        assert (len(receiver.taken), len(receiver.requests)) == (3, 3)
