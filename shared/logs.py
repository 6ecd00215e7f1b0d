"""Logging for every process: structlog in front, the standard library behind, secrets taken out."""

import logging
import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from shared.settings import Settings

# user:password@ in a URL, and the key formats of the providers in use
_URL_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):([^/\s]+)@")  # up to the last @: a password may hold one
_KEYS = re.compile(r"\b(?:(?:sk|tvly|crag)[-_][\w\-]{8,}|(?i:bearer)[-_ ]+[\w\-.~+/=]{8,})")


def redact(text: str) -> str:
    """`text` without URL passwords and API keys."""
    return _KEYS.sub("[key]", _URL_PASSWORD.sub(r"\1:***@", text))


def _redact_event(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {key: redact(value) if isinstance(value, str) else value for key, value in event.items()}


class _RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """Tracebacks and other libraries' messages pass here too."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure_logging(settings: Settings) -> None:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _redact_event,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    if settings.log_json:
        renderers: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # the default traceback shows local variables, keys and questions among them
        plain = structlog.dev.plain_traceback
        renderers = [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _RedactingFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for chatty in (
        "httpx",
        "httpx2",
        "openai",
        "celery.worker.strategy",
        "celery.app.trace",
        "alembic",
        "celery.beat",
    ):
        logging.getLogger(chatty).setLevel(logging.WARNING)
