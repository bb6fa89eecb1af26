"""Who this process is."""

from __future__ import annotations

import re
import socket
import uuid

from anchorwatch.core.names import check_token
from anchorwatch.service.context import Identity

_NOT_IN_A_TOKEN = re.compile(r"[^A-Za-z0-9_-]+")
INSTANCE_CHARS_MAX = 63


def identify(service: str, instance: str | None) -> Identity:
    """The identity of this process: ``instance`` when given, else the service and the host's name, which a restart keeps.

    Raises:
        BadInput: ``instance`` cannot stand in a subject.
    """
    name = check_token(instance, "instance") if instance else default_instance(service, socket.gethostname())
    return Identity(service=service, instance=name, incarnation=uuid.uuid4().hex)


def default_instance(service: str, host: str) -> str:
    """``executor-<host>``, with whatever a subject cannot hold replaced."""
    return f"{service}-{_NOT_IN_A_TOKEN.sub('-', host)}"[:INSTANCE_CHARS_MAX].rstrip("-")
