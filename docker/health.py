"""Health of one container, for the health checks of docker-compose.yml.

    python /opt/cragline/health.py worker NAME     the worker NAME@<this host> answers through the broker
    python /opt/cragline/health.py beat FILE       beat has written its schedule FILE lately
    python /opt/cragline/health.py flower PORT     Flower answers on 127.0.0.1:PORT
    python /opt/cragline/health.py api PORT        the HTTP API answers on 127.0.0.1:PORT

Exit code 0: healthy. 1: not, with one line why. 2: wrong usage.
"""

import http.client
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

SYNC_SECONDS = 180.0  # beat writes its schedule that often, and at its start
PATIENCE = 5.0  # seconds for an answer; a worker with all threads busy still answers


class Unhealthy(Exception):
    """Why the part is not healthy, in words fit for `docker inspect`: no secrets."""


def worker(name: str) -> None:
    """Raise Unhealthy unless the worker `name` of this host answers a ping that goes through Redis."""
    from shared.queue import make_app  # imports that the other checks need not pay
    from shared.settings import get_settings

    node = f"{name}@{socket.gethostname()}"
    app = make_app(get_settings())
    try:
        answers = app.control.ping(destination=[node], timeout=PATIENCE)
    except Exception as error:  # noqa: BLE001 - the text of the broker's client may quote the URL
        raise Unhealthy(f"the broker cannot be asked: {type(error).__name__}") from None
    finally:
        app.close()
    if not answers:
        raise Unhealthy(f"{node} does not answer")


def beat(schedule: str) -> None:
    """Raise Unhealthy when `schedule` was not written for more than two of beat's intervals."""
    path = Path(schedule)
    # the database behind it adds endings of its own, and may keep the news in a second file
    written = [file.stat().st_mtime for file in path.parent.glob(f"{path.name}*")]
    if not written:
        raise Unhealthy("beat has not written its schedule yet")
    age = time.time() - max(written)
    if age > 2 * SYNC_SECONDS + 40:
        raise Unhealthy(f"beat wrote its schedule {age:.0f} seconds ago")


def flower(port: str) -> None:
    """Raise Unhealthy unless Flower answers."""
    _ask("Flower", port, "/healthcheck")


def api(port: str) -> None:
    """Raise Unhealthy unless the HTTP API answers."""
    _ask("the API", port, "/healthz")


def _ask(who: str, port: str, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Unhealthy(f"{who} does not answer: {type(error).__name__}") from None
    finally:
        connection.close()
    if status != 200:
        raise Unhealthy(f"{who} answers {status}")


CHECKS: dict[str, Callable[[str], None]] = {"worker": worker, "beat": beat, "flower": flower, "api": api}


def main(words: list[str]) -> int:
    if len(words) != 2 or words[0] not in CHECKS:
        print(__doc__)
        return 2
    try:
        CHECKS[words[0]](words[1])
    except Unhealthy as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
