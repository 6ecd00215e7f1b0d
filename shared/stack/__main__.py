"""`python -m shared.stack`: the supervisor that `cragline up -d` leaves running.

Its standard output is a pipe to the command that started it, one JSON object a line: `{"part", "message"}`
for each step, at last `{"ready": true}` or `{"error": text}`. Nobody has to read it.
"""

import argparse
import json
import os
import sys

from shared.errors import CraglineError
from shared.settings import get_settings
from shared.stack.state import StackState
from shared.stack.supervisor import Supervisor, stack_planner


def _tell(**message: object) -> None:
    try:
        print(json.dumps(message), flush=True)
    except (OSError, ValueError):  # the command has gone; the log has the same
        _stop_telling()


def _stop_telling() -> None:
    """Give up the pipe, so that its reader sees the end and later steps go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m shared.stack")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--flower-port", type=int)
    parser.add_argument("--api-port", type=int)
    words = parser.parse_args()

    def on_ready(state: StackState) -> None:
        _tell(ready=True)
        _stop_telling()

    supervisor = Supervisor(
        get_settings(),
        stack_planner(workers=words.workers, flower_port=words.flower_port, api_port=words.api_port),
        lambda part, message: _tell(part=part, message=message),
    )
    try:
        supervisor.run(on_ready)
    except CraglineError as error:
        _tell(error=str(error))
        return error.exit_code
    except Exception as error:
        _tell(error=f"The stack ended by a mistake of its own ({type(error).__name__}); see supervisor.log.")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
