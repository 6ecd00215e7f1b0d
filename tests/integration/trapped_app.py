"""The worker's Celery app with traps in its nodes, set off by words in a question.

RAISE-<n>     grading the n-th document raises an error that nobody expected
DIE-<word>    grading kills the whole process without a word, once, and then works
POISON        grading kills the whole process every time
SLOW-<ms>     grading takes its time

With TRAP_DEAF in the environment the worker takes no messages, as one whose consumer has lost its way.
"""

import os
import re
import time
from pathlib import Path
from typing import Any

from workers.nodes import grade_document as module

_original = module.grade_document


def _trapped(task: Any, resources: Any) -> Any:
    question, title = task["question"], task["document"]["title"]
    if (match := re.search(r"RAISE-(\w+)", question)) and title.endswith(match.group(1)):
        raise RuntimeError("the node broke, with sk-verysecretkey123456 in its message")
    if "POISON" in question:
        os._exit(9)
    if match := re.search(r"DIE-(\w+)", question):
        flag = Path(os.environ["TRAP_FOLDER"]) / match.group(1)
        if not flag.exists():
            flag.touch()
            os._exit(9)
    if match := re.search(r"SLOW-(\d+)", question):
        time.sleep(int(match.group(1)) / 1000)
    return _original(task, resources)


module.grade_document = _trapped  # before the graph modules take it

from celery.signals import worker_ready  # noqa: E402

from workers import attention  # noqa: E402
from workers.celery_app import app  # noqa: E402


def _deafen(sender: Any, **_: Any) -> None:
    sender.task_consumer.channel.qos.can_consume = lambda: False


if "TRAP_DEAF" in os.environ:
    attention._EVERY = 0.2
    worker_ready.connect(_deafen)

__all__ = ["app"]
