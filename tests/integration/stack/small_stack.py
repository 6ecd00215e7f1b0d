"""A stack of real servers and one idle service, as a program. Arguments: HOME SERVERS [CODE].

SERVERS is `valkey` or `postgres,valkey`, CODE the Python of the service.

It prints one line a step, and `READY`. A StackError goes to standard error, with exit code 1.
"""

import os
import sys
from pathlib import Path

from shared.errors import CraglineError
from shared.settings import Settings
from shared.stack.postgres import postgres_part
from shared.stack.process import Part, free_port
from shared.stack.secrets import ensure_secrets
from shared.stack.state import logs_path
from shared.stack.supervisor import Plan, Report, Supervisor
from shared.stack.valkey import valkey_part

IDLE = "import time; print('idle', flush=True); time.sleep(600)"


def main(home: Path, names: str, code: str = IDLE) -> int:
    def plan(settings: Settings, report: Report) -> Plan:
        secrets = ensure_secrets(home)
        port, servers = free_port(), []
        if "postgres" in names:
            servers.append(postgres_part(home, secrets.postgres, port, fsync=False))
        servers.append(valkey_part(home, secrets.valkey, free_port(avoid=[port])))
        log = logs_path(home) / "worker-1.log"
        service = Part(
            "worker-1",
            [sys.executable, "-c", code],
            dict(os.environ),
            log,
            home,
            lambda: log.exists() and "idle" in log.read_text(),
        )
        return Plan(servers, services=[service])

    settings = Settings(home=home, _env_file=None)  # type: ignore[call-arg]
    supervisor = Supervisor(settings, plan, lambda part, message: print(part, message, flush=True))
    try:
        supervisor.run(lambda state: print("READY", flush=True))
    except CraglineError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
