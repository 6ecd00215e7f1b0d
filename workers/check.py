"""`python -m workers.check`: whether the graphs can run as tasks, in a second and without any server.

The stack asks this before it starts anything. Exit code 1 and one line on stderr when they cannot; the
line names `graph.node`, or the file and line of a mistake that keeps a graph from being built at all.
"""

import sys
import traceback

from shared.clean import one_line
from shared.errors import CraglineError


def main() -> int:
    try:
        from workers.runner.pipelines import adapters

        adapters()
    except CraglineError as error:
        print(one_line(str(error)), file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001 - a graph is anybody's code: whatever it raises, it cannot run
        print(f"{one_line(f'{type(error).__name__}: {error}', 500)}{_place(error)}", file=sys.stderr)
        return 1
    return 0


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


if __name__ == "__main__":
    sys.exit(main())
