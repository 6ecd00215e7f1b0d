"""No secret reaches a log, whatever wrote the line: our own events, other libraries, tracebacks."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from shared.logs import configure_logging, redact
from shared.settings import Settings

OPENAI = "sk-proj-hunter2_AbC-0123456789abcdef"
TAVILY = "tvly-dev-hunter2AbC0123456789"
URL = "postgresql://cragline:hunter2-pw@localhost:5432/db"
JWT = "Bearer eyJhbGci.hunter2payload.hunter2signature-_x"
SECRETS = {"openai": OPENAI, "tavily": TAVILY, "url": URL, "jwt": JWT, "redis": "redis://:hunter2@h:6379/0"}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (URL, "postgresql://cragline:***@localhost:5432/db"),
        ("redis://:hunter2@h:6379/0", "redis://:***@h:6379/0"),
        ("to redis://u:hunter2:x@h and http://a:hunter2@b/c", "to redis://u:***@h and http://a:***@b/c"),
        ("amqp://u:hunter2@with-at@host/x", "amqp://u:***@host/x"),
        (f"key {OPENAI}.", "key [key]."),
        (f"'{TAVILY}'", "'[key]'"),
        (f"Authorization: {JWT}\nnext", "Authorization: [key]\nnext"),
        ("authorization: bearer hunter2hunter2", "authorization: [key]"),
        ('{"Authorization": "Bearer abc+/hunter2=="}', '{"Authorization": "[key]"}'),
    ],
)
def test_keys_and_passwords_are_taken_out(text: str, redacted: str) -> None:
    assert redact(text) == redacted
    assert redact(redact(text)) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "the task sk-1 of run 12:30 at a@b.example",
        "http://localhost:5555/tasks?x=a:b@c",
        "https://example.org/a:b/c@d",
        "bearer of news",
        "task-0123456789 risk-assessment-of-long-words",
        "crag.retrieve[12] succeeded in 0.5s",
    ],
)
def test_ordinary_lines_stay_what_they_are(text: str) -> None:
    assert redact(text) == text


# -- through the handler that every process uses ----------------------------------------------------------


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., io.StringIO]]:
    """Configures logging with the given settings; gives back what goes to stderr."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    stream = io.StringIO()

    def configure(**values: Any) -> io.StringIO:
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging(Settings(_env_file=None, **values))
        return stream

    yield configure
    root.handlers = before
    root.setLevel(level)
    structlog.reset_defaults()


def leaks(text: str) -> bool:
    return "hunter2" in text


def fail_with(secret: str) -> None:
    carried = secret  # a local variable, which some traceback formatters print
    raise ValueError(f"refused: {carried}")


@pytest.mark.parametrize("log_json", [False, True])
@pytest.mark.parametrize("name", SECRETS)
def test_an_event_of_ours_holds_no_secret(logged: Any, name: str, log_json: bool) -> None:
    stream = logged(log_json=log_json)
    secret = SECRETS[name]
    structlog.get_logger().warning(
        f"tried {secret}", url=secret, nested={"deep": [secret]}, error=ValueError(secret)
    )
    assert "tried" in stream.getvalue() and not leaks(stream.getvalue())


@pytest.mark.parametrize("log_json", [False, True])
@pytest.mark.parametrize("name", SECRETS)
def test_a_line_of_another_library_holds_no_secret(logged: Any, name: str, log_json: bool) -> None:
    stream = logged(log_json=log_json)
    logging.getLogger("other.library").warning(
        "connecting to %s with %r", SECRETS[name], {"k": SECRETS[name]}
    )
    assert "connecting to" in stream.getvalue() and not leaks(stream.getvalue())


@pytest.mark.parametrize("log_json", [False, True])
@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("name", SECRETS)
def test_a_traceback_is_there_and_holds_no_secret(logged: Any, name: str, ours: bool, log_json: bool) -> None:
    stream = logged(log_json=log_json)
    try:
        fail_with(SECRETS[name])
    except ValueError:
        if ours:
            structlog.get_logger().exception("it failed")
        else:
            logging.getLogger("celery.somewhere").exception("it failed")
    text = stream.getvalue()
    assert "it failed" in text and "fail_with" in text and "ValueError" in text
    assert not leaks(text)


def test_local_variables_are_not_part_of_a_traceback(logged: Any) -> None:
    """They hold questions, documents, and keys in shapes that no pattern knows."""
    stream = logged()
    question = "what does the patient have"
    try:
        raise ValueError(str(len(question)))
    except ValueError:
        structlog.get_logger().exception("it failed")
    assert "patient" not in stream.getvalue().replace('question = "what does the patient have"', "")


def test_json_lines_are_one_object_each(logged: Any) -> None:
    stream = logged(log_json=True)
    structlog.get_logger().info("first\nline", run_id=7)
    logging.getLogger("other").warning("second %s", "x")
    try:
        fail_with("nothing secret")
    except ValueError:
        logging.getLogger("other").exception("third")
    first, second, third = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["run_id"], first["level"]) == ("first\nline", 7, "info")
    assert (second["event"], second["level"]) == ("second x", "warning")
    assert "Traceback" in third["exception"]


def test_what_is_bound_to_a_task_is_on_its_lines(logged: Any) -> None:
    stream = logged(log_json=True)
    with structlog.contextvars.bound_contextvars(run_id=9, node="decide"):
        structlog.get_logger().info("in")
        logging.getLogger("other").warning("foreign")
    structlog.get_logger().info("out")
    inside, foreign, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert inside["run_id"] == foreign["run_id"] == 9 and "run_id" not in outside


def test_the_level_is_the_least_that_is_written_and_chatty_libraries_are_quiet(logged: Any) -> None:
    stream = logged(log_level="warning")
    structlog.get_logger().info("unseen")
    structlog.get_logger().warning("seen")
    assert "unseen" not in stream.getvalue() and "seen" in stream.getvalue()
    logged(log_level="debug")
    logging.getLogger("httpx").info("HTTP Request: POST")
    assert "HTTP Request" not in stream.getvalue()
