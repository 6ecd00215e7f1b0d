"""`python -m api.serve`: the HTTP API with uvicorn, as a part of the stack or in a container."""

import argparse
import ipaddress
import sys

import uvicorn

from api.app import create_app
from shared.errors import CraglineError
from shared.logs import configure_logging
from shared.settings import get_settings

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


def is_loopback(host: str) -> bool:
    """Whether `host`, without a port, is this machine by its loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main())
