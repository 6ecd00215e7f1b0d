"""The same graphs without queue and database: `python -m workers.inprocess ask|graph ...`.

The command line starts this module as a process of its own and reads JSON lines from it, so that the front
door never imports a worker. `ask` prints one object for each node as it ends, then the final state.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from shared.clean import clean_json, clean_text
from shared.errors import CallError, CraglineError
from shared.logs import configure_logging
from shared.plan import PIPELINES, make_plan, with_filters
from shared.settings import Settings, get_settings
from workers.bootstrap import Parts
from workers.models.calls import CallRecord, MemoryRecorder
from workers.nodes.resources import Resources
from workers.runner.advance import input_of, out_of_steps
from workers.runner.graph_adapter import GraphAdapter
from workers.runner.pipelines import adapters


def run_in_process(
    adapter: GraphAdapter, state: dict[str, Any], resources: Resources, max_steps: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(node, its update) as each ends, and last ("", the final state); out of steps, the run gives up."""
    final: dict[str, Any] = state
    for node, update in adapter.stream(state, resources, max_steps):
        final = final if node else update
        if node:
            yield node, update
    if "disposition" not in final:
        final = {**final, "disposition": "gave_up", "reason": out_of_steps(max_steps)}
    yield "", final


def _ask(settings: Settings, arguments: argparse.Namespace) -> int:
    sets = with_filters(arguments.set, arguments.filter)
    plan = make_plan(settings, arguments.pipeline, sets, arguments.collection)
    adapter = adapters()[plan.pipeline]
    parts, recorder = Parts(settings, engine=None), MemoryRecorder()
    try:
        question = clean_text(arguments.question)
        state = input_of(adapter, question, plan)
        for node, update in run_in_process(
            adapter, state, parts.make(plan, recorder), plan.params["max_steps"]
        ):
            if node:
                _say({"node": node, "update": update})
            else:
                _say({"final": update, "usage": _usage(recorder.records)})
    finally:
        parts.close()
    return 0


def _usage(records: list[CallRecord]) -> dict[str, Any]:
    def total(values: list[Any]) -> Any:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return {
        "calls": len(records),
        "input_tokens": total([record.input_tokens for record in records]),
        "output_tokens": total([record.output_tokens for record in records]),
        "cost_usd": total([record.cost_usd for record in records]),
    }


def _graph(arguments: argparse.Namespace) -> int:
    print(adapters()[arguments.pipeline].compiled.get_graph().draw_mermaid())
    return 0


def _say(value: dict[str, Any]) -> None:
    print(json.dumps(clean_json(value), ensure_ascii=False), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="workers.inprocess")
    commands = parser.add_subparsers(dest="command", required=True)
    ask = commands.add_parser("ask")
    ask.add_argument("question")
    ask.add_argument("--pipeline", default="crag")
    ask.add_argument("--collection")
    ask.add_argument("--set", action="append", default=[])
    ask.add_argument("--filter", action="append", default=[])
    graph = commands.add_parser("graph")
    graph.add_argument("pipeline", choices=sorted(PIPELINES))
    arguments = parser.parse_args()
    try:
        settings = get_settings()
        configure_logging(settings)
        return _graph(arguments) if arguments.command == "graph" else _ask(settings, arguments)
    except CallError as error:
        _say({"error": f"{error.code}: {error}", "exit_code": 1})
        return 1
    except CraglineError as error:
        _say({"error": str(error), "exit_code": error.exit_code})
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
