"""A graph that cannot run as tasks ends every process that would use it with one line, not a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A node without a queue in its metadata, put in the place of `crag` before the adapters are made.
INJECTED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "workers.runner.pipelines":
            sys.meta_path.remove(self)
            import workers.graphs
            from typing import TypedDict
            from langgraph.graph import END, START, StateGraph
            class State(TypedDict):
                a: str
            def build():
                builder = StateGraph(State)
                builder.add_node("x", lambda state: {})
                builder.add_edge(START, "x")
                builder.add_edge("x", END)
                return builder
            workers.graphs.BUILDERS["crag"] = build
sys.meta_path.insert(0, Finder())
"""
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("words", "stream"),
    [
        (["-c", "import workers.celery_app"], "err"),
        (["-m", "workers.check"], "err"),
        (["-m", "workers.inprocess", "graph", "crag"], "out"),
        (["-m", "workers.inprocess", "ask", "Who?"], "out"),
    ],
)
def test_one_line(tmp_path: Path, words: list[str], stream: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INJECTED)
    env = {name: value for name, value in os.environ.items() if not name.startswith("CRAGLINE_")}
    env |= {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "CRAGLINE_HOME": str(tmp_path)}
    env |= {
        "CRAGLINE_REDIS_URL": "redis://127.0.0.1:1",
        "CRAGLINE_DATABASE_URL": "postgresql://127.0.0.1:1/d",
    }
    done = subprocess.run(
        [sys.executable, *words], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    said = {"out": done.stdout, "err": done.stderr}
    assert "crag.x: a node without a queue in its metadata" in said[stream]
    assert "".join(said.values()).count("\n") == 1
