"""The installed command's entry: `main` of main.py, with a Ctrl-C at any moment a quiet end.

The imports of the commands take most of a second, in which an impatient Ctrl-C would end in a traceback
(or, in the middle of an extension module's import, in worse).
"""

import os
import signal
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(130)  # nothing was begun yet


def main() -> None:
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else it is ignored, as for a job in the background
        signal.signal(signal.SIGINT, _leave)
    from api.cli.main import main as run

    try:
        signal.signal(signal.SIGINT, usual)
        run()
    except KeyboardInterrupt:  # between the two lines above, or while the command cleans up
        os._exit(130)


if __name__ == "__main__":
    main()
