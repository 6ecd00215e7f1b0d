"""What a long run leaves behind: 5,000 runs through a real worker, and what the processes hold at each 1,000.

    nice .venv/bin/python -m benchmarks.leaks [--runs 5000] [--every 1000] [--pipeline crag]

Linux only: it reads /proc. Starts a Postgres, a Valkey, a worker with 16 threads and beat of its own, and a
scripted model server without latency, and prints a table and ratios. Each row is taken a few seconds after
its batch has ended, the last one when Celery's own markers of ended chords have expired (5 minutes).

Compare the worker with its first row, by which it has made its threads, connections and caches; compare
Redis with the row before everything.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from redis import Redis
from sqlalchemy import text

from shared.migrate import upgrade
from shared.stack.testing import Servers, embedded_servers
from tests.fakes.openai_server import FakeOpenAI
from tests.integration.cluster import Cluster
from tests.integration.conftest import write_documents

SETTLED = 6.0  # seconds after a batch: the last acknowledgements, and a tick of each kind
MARKERS = 310.0  # seconds for which Celery remembers that a chord has ended


@dataclass(frozen=True)
class Holding:
    """What is held at one moment. Memory in MiB."""

    worker_rss: float
    beat_rss: float
    worker_threads: int
    worker_files: int
    redis_memory: float
    redis_keys: int
    redis_clients: int
    subscriptions: int
    postgres_connections: int


def take_stock(cluster: Cluster, redis: Redis) -> Holding:
    worker, beat = (Path("/proc") / str(cluster.processes[name].pid) for name in ("w1", "beat"))
    memory, clients = redis.info("memory"), redis.info("clients")
    connections = """
        SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()
    """
    with cluster.engine.connect() as connection:
        ours = int(connection.scalar(text(connections)) or 0)
    cluster.engine.dispose()  # our own connections are not the worker's
    return Holding(
        worker_rss=_status(worker, "VmRSS") / 1024,
        beat_rss=_status(beat, "VmRSS") / 1024,
        worker_threads=_status(worker, "Threads"),
        worker_files=len(list((worker / "fd").iterdir())),
        redis_memory=memory["used_memory"] / 2**20,
        redis_keys=redis.dbsize(),
        redis_clients=clients["connected_clients"],
        subscriptions=len(redis.pubsub_channels()) + redis.pubsub_numpat(),
        postgres_connections=ours,
    )


def _status(process: Path, name: str) -> int:
    for line in (process / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


@contextmanager
def running() -> Iterator[tuple[Cluster, Redis]]:
    with tempfile.TemporaryDirectory(prefix="cragline-leaks-") as folder, FakeOpenAI() as openai:
        Path(folder).chmod(0o755)
        with embedded_servers(Path(folder) / "servers") as servers:
            upgrade(servers.database_url)
            cluster = Cluster(
                Path(folder) / "cluster", servers.database_url, servers.redis_url, **_settings(openai)
            )
            try:
                cluster.start()
                texts = {f"Doc {n}": f"The valley number{n}. Fact number{n} of it." for n in range(10)}
                cluster.ingest(write_documents(cluster.home / "docs.jsonl", texts), "docs")
                yield cluster, _client(servers)
            finally:
                cluster.close()


def _settings(openai: FakeOpenAI) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": "sk-leaks-0123456789abcdef",
        "OPENAI_BASE_URL": openai.base_url,
        "CRAGLINE_WORKER_THREADS": "16",
        "CRAGLINE_LEASE_SECONDS": "20",
        "CRAGLINE_HEARTBEAT_SECONDS": "5",
        "CRAGLINE_REPUBLISH_SECONDS": "30",
        "CRAGLINE_LOG_LEVEL": "warning",
    }


def _client(servers: Servers) -> Redis:
    return Redis.from_url(servers.redis_url)


def show(label: str, now: Holding) -> None:
    print(
        f"| {label} | "
        + " | ".join(
            f"{value:.1f}" if isinstance(value, float) else str(value) for value in asdict(now).values()
        )
        + " |",
        flush=True,
    )


def ratios(label: str, now: Holding, base: Holding) -> None:
    pairs = zip(asdict(now).values(), asdict(base).values(), strict=True)
    print(f"| {label} | " + " | ".join(f"{a / b:.2f}" if b else f"+{a}" for a, b in pairs) + " |", flush=True)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--runs", type=int, default=5000)
    words.add_argument("--every", type=int, default=1000)
    words.add_argument("--pipeline", default="crag")
    chosen = words.parse_args()
    with running() as (cluster, redis):
        time.sleep(SETTLED)
        print("| runs | " + " | ".join(Holding.__dataclass_fields__) + " |")
        print("|---" * (len(Holding.__dataclass_fields__) + 1) + "|")
        stock = [take_stock(cluster, redis)]
        show("0", stock[0])
        for begun in range(0, chosen.runs, chosen.every):
            seconds = run_batch(cluster, chosen.pipeline, range(begun, begun + chosen.every))
            time.sleep(SETTLED)
            stock.append(take_stock(cluster, redis))
            show(f"{begun + chosen.every} ({chosen.every / seconds:.0f}/s)", stock[-1])
        time.sleep(MARKERS)
        stock.append(take_stock(cluster, redis))
        show("after", stock[-1])
        ratios("after / first", stock[-1], stock[1])
        ratios("after / before", stock[-1], stock[0])


def run_batch(cluster: Cluster, pipeline: str, numbers: range) -> float:
    """Seconds that a batch took: a fan-out of two, and no document searched on the web."""
    questions = [f"What is fact number{n % 10}, asked for the {n}th time?" for n in numbers]
    params = {"k": 2} if pipeline == "crag" else {}
    started = time.monotonic()
    cluster.wait(cluster.submit(questions, pipeline, **params), timeout=3600)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
