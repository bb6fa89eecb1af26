"""Runs the notifier: one worker for each stream, one sender for each channel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog
from anchorwatch.core.letters import DeadLetter
from anchorwatch.journal.deliveries import DeliveryJournal
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.topology.subjects import RPC_NOTIFIER

from anchorwatch_notifier import routes
from anchorwatch_notifier.channels import Channel, make_channel
from anchorwatch_notifier.letter_notices import read_letter_notice
from anchorwatch_notifier.sender import Sender
from anchorwatch_notifier.worker import CONSUMER, LETTERS, SERVICE, NoticeWorker

ChannelOf = Callable[[routes.Route, structlog.stdlib.BoundLogger], Channel]


async def run(
    context: ServiceContext,
    channel_of: ChannelOf = make_channel,
    known: Sequence[routes.Route] | None = None,
) -> None:
    """Notify until a stop request. ``channel_of`` creates the channel of a route; ``known`` replaces the settings' routes."""
    known = routes.load(context.settings.notify) if known is None else known
    senders = [make_sender(context, route, channel_of(route, context.log)) for route in known]
    letters = DeadLetters(context)
    journal = NoticeWorker(context, senders, letters)
    dead = NoticeWorker(context, senders, letters, LETTERS, read_letter_notice)

    async def channels(_subject: str, _question: bytes) -> bytes:
        return routes.described(known)

    answering = await context.bus.subscribe(RPC_NOTIFIER.at(verb="channels"), channels, queue=SERVICE)
    try:
        async with asyncio.TaskGroup() as work:
            work.create_task(journal.run(), name="journal")
            work.create_task(dead.run(), name="dead letters")
            for worker, stream in ((journal, CONSUMER.stream), (dead, LETTERS.stream)):
                retrier = DeadLetterRetrier(
                    context, letters, worker, SERVICE, f"dead-{SERVICE}-{stream.lower()}", _of(stream)
                )
                work.create_task(retrier.run(), name=f"letters of {stream}")
    finally:
        await answering.close()
        for sender in senders:
            await sender.close()


def _of(stream: str) -> Callable[[DeadLetter], bool]:
    return lambda letter: letter.address.stream == stream


def make_sender(context: ServiceContext, route: routes.Route, channel: Channel) -> Sender:
    """The sender of one channel."""
    journal = DeliveryJournal(context.bus, context.committer, context.identity.execution_id)
    return Sender(context, route, channel, journal)
