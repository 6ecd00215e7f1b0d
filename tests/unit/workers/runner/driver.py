"""Runs a graph through the adapter the way the queue does, and through LangGraph itself, to compare.

Everything that would be a row or a message makes a round trip through JSON, and the branches of a step are
run in any order, as on workers.
"""

import json
import random
from typing import Any

from workers.runner.graph_adapter import GraphAdapter, Next

Path = list[list[str]]  # the nodes of each superstep, sorted: the order of writes shows in the state


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def drive(
    adapter: GraphAdapter, values: dict[str, Any], resources: Any = None, seed: int = 0, most: int = 100
) -> tuple[Path, dict[str, Any]]:
    """Path and final state, one superstep after another, as claims and transitions would have it."""
    shuffle = random.Random(seed).shuffle
    state = through_json(adapter.input_state(values))
    tasks = adapter.first_steps(state)
    path: Path = []
    while tasks:
        assert len(path) < most, f"still going after {most} steps: {path[-3:]}"
        path.append(sorted(task.node for task in tasks))
        updates: dict[int, Any] = {}
        leads: dict[int, list[Next]] = {}
        order = list(range(len(tasks)))
        shuffle(order)
        for branch in order:
            task = Next.from_json(through_json(tasks[branch].to_json()))
            seen = through_json(state) if task.argument is None else task.argument
            update = adapter.run_node(task.node, seen, resources)
            merged = adapter.merge(through_json(state), [update])
            leads[branch] = [
                Next.from_json(through_json(step.to_json())) for step in adapter.next_steps(task.node, merged)
            ]
            updates[branch] = through_json(update)
        state = through_json(adapter.merge(state, [updates[branch] for branch in range(len(tasks))]))
        tasks = adapter.superstep([leads[branch] for branch in range(len(tasks))])
    return path, state


def langgraph(
    adapter: GraphAdapter, values: dict[str, Any], resources: Any = None, most: int = 100
) -> tuple[Path, dict[str, Any]]:
    """The same of LangGraph's own runner."""
    config: Any = {"configurable": {"resources": resources}, "recursion_limit": most}
    steps: dict[int, list[str]] = {}
    final: dict[str, Any] = {}
    for mode, event in adapter.compiled.stream(values, config, stream_mode=["debug", "values"]):
        if mode == "values":
            final = event
        elif event["type"] == "task":
            steps.setdefault(event["step"], []).append(event["payload"]["name"])
    return [sorted(steps[step]) for step in sorted(steps)], final
