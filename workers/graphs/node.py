"""How a plain node function `(state, resources) -> update` becomes a node of a LangGraph graph.

Queue and timeout are data beside the node, in its metadata. The resources travel in
`config["configurable"]`, so that one compiled graph serves every task of a process.
"""

import inspect
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import StateGraph

from shared.errors import CallError
from workers.nodes.resources import Resources

NodeFunction = Callable[[Any, Resources], dict[str, Any]]
Fallback = Callable[[Any, CallError], dict[str, Any]]


def add_node(
    builder: "StateGraph[Any, Any, Any, Any]",
    name: str,
    function: NodeFunction,
    *,
    queue: str,
    timeout: float = 120.0,
    fallback: Fallback | None = None,
    skip_when_enough: bool = False,
) -> None:
    """Add `function` as node `name`.

    `queue` is where its task runs; `timeout` (seconds) is how long its claim is kept alive. `fallback`
    gives the update that stands in when an outside call has failed for good: with a permanent error, or
    with a transient one on the last attempt (`config["configurable"]["last_attempt"]`, true unless the
    runner says otherwise, because in process there is no second attempt). An error that does not count as an
    attempt is never the last.

    `skip_when_enough`: on workers, a branch of this node is not begun any more once `enough_relevant` of
    the plan are relevant among its step's grades. In process all branches start together, so none is left out.
    """

    def run(state: Any, config: RunnableConfig) -> dict[str, Any]:
        configurable = config["configurable"]
        try:
            return function(state, configurable["resources"])
        except CallError as error:
            last = configurable.get("last_attempt", True) and error.counts
            if fallback is None or (error.transient and not last):
                raise
            return fallback(state, error)

    run.__name__ = name
    metadata: dict[str, Any] = {"queue": queue, "timeout": timeout}
    if skip_when_enough:
        metadata["skip_when_enough"] = True
    if "Command" in str(inspect.signature(function).return_annotation):
        metadata["returns_command"] = True  # the adapter refuses it; LangGraph only sees `run`
    builder.add_node(name, run, metadata=metadata)
