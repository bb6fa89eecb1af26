"""The notifier: tells people what the journal says, on the channels that want it."""

from __future__ import annotations

from anchorwatch.core.effect.state import Owner
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.deliveries import DeliveryJournal
from anchorwatch.service.context import ServiceContext
from anchorwatch.topology.streams import journal_stream

from anchorwatch_notifier import routes
from anchorwatch_notifier.channels import make_channel
from anchorwatch_notifier.desk import Desk
from anchorwatch_notifier.sender import Sender


async def run(context: ServiceContext) -> None:
    """Notify until told to stop."""
    senders = [make_sender(context, route) for route in routes.load(context.settings.notify)]
    try:
        await Desk(context, senders).run()
    finally:
        for sender in senders:
            await sender.close()


def make_sender(context: ServiceContext, route: routes.Route) -> Sender:
    """The sender of one channel."""
    identity = context.identity
    committer = Committer(context.bus, journal_stream())
    return Sender(
        route,
        make_channel(route, context.log),
        DeliveryJournal(context.bus, committer, identity.execution_id),
        context.clock,
        context.peers,
        Owner(identity.instance, identity.incarnation),
        context.log,
    )
