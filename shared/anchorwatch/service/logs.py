"""Logs of a service: one JSON object a line on stderr, with secrets hidden wherever they stand."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable

import structlog
from structlog.typing import EventDict, WrappedLogger

from anchorwatch.settings import Settings, secret_names

HIDDEN = "[hidden]"
# Shorter values are words of ordinary text: to hide them would hide the text, and they are no secrets anyway.
SECRET_CHARS_MIN = 6
SECRET_KEYS = frozenset(
    {"authorization", "password", "secret", "token", "api_key", "model_key", "nats_password"}
)
# These tell at `info` what we tell ourselves, some of it with URLs that hold a key.
TALKATIVE = ("httpx2", "httpcore2", "openai", "nats", "urllib3", "asyncio", "uvicorn.access", "uvicorn.error")


class Redactor:
    """Hides known secrets in rendered lines, tracebacks included, and whatever stands under a secret's name."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: list[str] = []
        for secret in secrets:
            self.hide(secret)

    def hide(self, secret: str) -> None:
        """Never show ``secret`` again."""
        if len(secret) >= SECRET_CHARS_MIN:
            # As it stands within a JSON string. The longest first: one secret may contain another.
            self._secrets = sorted({*self._secrets, json.dumps(secret)[1:-1]}, key=len, reverse=True)

    def by_name(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        for key in event:
            if key.lower() in SECRET_KEYS:
                event[key] = HIDDEN
        return event

    def by_value(self, line: str) -> str:
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN)
        return line


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Renders, then hides."""

    def __init__(self, redactor: Redactor) -> None:
        shared: list[structlog.typing.Processor] = [
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            redactor.by_name,
        ]
        super().__init__(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.EventRenamer("event"),
                structlog.processors.JSONRenderer(default=str, ensure_ascii=True),
            ],
        )
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.by_value(super().format(record))


_redactor = Redactor()


def hide(secret: str) -> None:
    """Never log ``secret``: for those that are no settings, such as a webhook's."""
    _redactor.hide(secret)


def without_secrets(text: str) -> str:
    """``text`` with every known secret hidden: for what is kept elsewhere than in the log."""
    return _redactor.by_value(text)


def configure(settings: Settings, **always: str) -> structlog.stdlib.BoundLogger:
    """Send everything, also what libraries log, to stderr as JSON; returns a logger bound to ``always``."""
    for name in secret_names():
        value = getattr(settings, name)
        if value is not None:
            _redactor.hide(value.get_secret_value())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(_redactor))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            _redactor.by_name,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger("anchorwatch").bind(**always)
    return logger
