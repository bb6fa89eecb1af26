"""The connection to the bus that the settings describe."""

from __future__ import annotations

from collections.abc import Callable

from anchorwatch.bus.port import Bus
from anchorwatch.settings import Settings

CONNECT_S_MAX = 10.0


async def connect(
    settings: Settings,
    name: str,
    *,
    on_error: Callable[[str], None] | None = None,
    timeout_s: float = CONNECT_S_MAX,
) -> Bus:
    """A connection of the settings' user; ``name`` is its name in the server's connection list.

    Raises:
        Unavailable: no server answers.
        Denied: the server refuses the credentials.
    """
    # The client library is slow to import, and only connections need it.
    from anchorwatch.bus import jetstream  # noqa: PLC0415

    password = settings.nats_password
    return await jetstream.connect(
        [url.strip() for url in settings.nats_url.split(",")],
        user=settings.nats_user,
        password=password.get_secret_value() if password is not None else None,
        name=name,
        inbox=inbox(settings.nats_user),
        connect_timeout_s=timeout_s,
        on_error=on_error,
        replicas=settings.nats_replicas,
        plain=settings.nats_client == "plain",
    )


def inbox(user: str | None) -> str:
    """The inbox prefix of a user; no other user may subscribe to it."""
    return f"_INBOX_{user or 'anonymous'}"
