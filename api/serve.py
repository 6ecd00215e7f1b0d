"""`python -m api.serve`: the HTTP API with uvicorn, as a part of the stack or in a container."""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import uvicorn

from api.app import create_app
from api.security import is_loopback
from shared.errors import CraglineError
from shared.logs import configure_logging
from shared.settings import Settings, get_settings

_A_DAY = 86_400  # seconds
_GRACE = 5  # seconds that open answers (a progress stream) get when the server is told to stop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m api.serve")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--embedded", action="store_true", help="on loopback, no key is needed")
    words = parser.parse_args()
    try:
        settings = get_settings()
        configure_logging(settings)
        tempfile.tempdir = str(_spool(settings))
        open_ = words.embedded and is_loopback(words.host)
        app = create_app(settings, open_on_loopback=open_)
    except CraglineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    uvicorn.run(
        app,
        host=words.host,
        port=words.port,
        log_config=None,  # ours
        access_log=False,  # it would show queries; the middleware writes a line without them
        proxy_headers=False,  # whoever asks can write them
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )
    return 0


def _spool(settings: Settings) -> Path:
    """The folder for bodies of requests while they are read: /tmp may be small, or in memory. What an
    earlier process left behind there is removed once it is a day old."""
    folder = settings.home / "spool"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in folder.iterdir():
        if left.stat().st_mtime < time.time() - _A_DAY:
            shutil.rmtree(left, ignore_errors=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
