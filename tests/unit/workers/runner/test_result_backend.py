"""What the result backend does not keep, without a Redis."""

import gc
import weakref

from celery import Celery

from shared.queue import RESULT_BACKEND


def test_the_results_of_a_header_are_not_kept_in_memory() -> None:
    """The stock backend holds each of them until it is ready, which nobody here is ever told."""
    app = Celery(
        "unit", broker="memory://", backend=f"{RESULT_BACKEND}+redis://127.0.0.1:9/0", set_as_current=False
    )
    header = [app.AsyncResult(f"part-{number}") for number in range(3)]
    group = app.GroupResult("group", header)
    kept = [weakref.ref(one) for one in [*header, group]]
    del header, group
    gc.collect()
    assert [one() for one in kept] == [None] * 4
