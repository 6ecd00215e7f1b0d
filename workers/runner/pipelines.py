"""The adapters of all pipelines, made once a process. Making them refuses what cannot run."""

from functools import lru_cache

from workers.graphs import BUILDERS
from workers.runner.graph_adapter import GraphAdapter


@lru_cache(maxsize=1)
def adapters() -> dict[str, GraphAdapter]:
    return {name: GraphAdapter(name, build()) for name, build in BUILDERS.items()}
