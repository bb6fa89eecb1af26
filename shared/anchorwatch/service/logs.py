"""Logs of a service: one JSON object a line on stderr, with every secret redacted."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable

import structlog
from structlog.typing import EventDict, WrappedLogger

from anchorwatch.settings import Settings, secret_names

HIDDEN = "[hidden]"
# A shorter value occurs in ordinary text, which its redaction would hide.
SECRET_CHARS_MIN = 6
SECRET_KEYS = frozenset(
    {"authorization", "password", "secret", "token", "api_key", "model_key", "nats_password"}
)
# At `info`, these libraries repeat our own events, and some log URLs that contain a key.
NOISY_LOGGERS = (
    "httpx2",
    "httpcore2",
    "openai",
    "nats",
    "urllib3",
    "asyncio",
    "uvicorn.access",
    "uvicorn.error",
)


class Redactor:
    """Hides known secrets in rendered lines, including tracebacks, and the values of fields with a secret's name."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: list[str] = []
        for secret in secrets:
            self.hide(secret)

    def hide(self, secret: str) -> None:
        """Redact ``secret`` from now on."""
        if len(secret) >= SECRET_CHARS_MIN:
            # In its form within a JSON string. The longest first: one secret may contain another.
            self._secrets = sorted({*self._secrets, json.dumps(secret)[1:-1]}, key=len, reverse=True)

    def redact_fields(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        for key in event:
            if key.lower() in SECRET_KEYS:
                event[key] = HIDDEN
        return event

    def redact_line(self, line: str) -> str:
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN)
        return line


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Renders a line, then redacts it."""

    def __init__(self, redactor: Redactor) -> None:
        shared: list[structlog.typing.Processor] = [
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            redactor.redact_fields,
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
        return self._redactor.redact_line(super().format(record))


_redactor = Redactor()


def hide(secret: str) -> None:
    """Redact a secret that is not a setting, such as that of a webhook."""
    _redactor.hide(secret)


def redact(text: str) -> str:
    """``text`` without known secrets, for storage outside the log."""
    return _redactor.redact_line(text)


def configure(settings: Settings, **always: str) -> structlog.stdlib.BoundLogger:
    """Write every log, including those of libraries, to stderr as JSON; returns a logger bound to ``always``."""
    for name in secret_names():
        value = getattr(settings, name)
        if value is not None:
            _redactor.hide(value.get_secret_value())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(_redactor))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            _redactor.redact_fields,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger("anchorwatch").bind(**always)
    return logger
