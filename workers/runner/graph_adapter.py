"""The only file that touches LangGraph's inside.

A graph is declared with LangGraph; this adapter lets its nodes be run one at a time, on different
machines, and says after each what LangGraph would have done next. It stands on attributes that behaved
the same on LangGraph 0.2.76, 0.6.11 and 1.2.24: `compiled.nodes[n].invoke`, `builder.edges`,
`builder.branches[n][k].path/.ends`, `builder.channels`.

What it cannot honour (Command, subgraphs, interrupts, LangGraph's own retry, cache or timeout policies,
deferred nodes, waiting edges, channels other than last-value and reducer, states that are not a TypedDict)
is refused when it is made.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, is_typeddict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.last_value import LastValue
from langgraph.errors import EmptyChannelError, GraphRecursionError, InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command, Send

from shared.errors import CraglineError
from shared.queue import QUEUES
from workers.nodes.resources import Resources


class UnsupportedGraph(CraglineError):
    """A graph has something that cannot run as Celery tasks; the message names `graph.node`."""


class NodeBroke(CraglineError):
    """A node returned something that is not a partial update of the state."""


@dataclass(frozen=True)
class Next:
    """One task of the next superstep. `argument` is a Send's payload; None: the node sees the state."""

    node: str
    argument: Any = None

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "argument": self.argument}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Next":
        return cls(value["node"], value["argument"])


class GraphAdapter:
    """One pipeline's graph, ready to be run node by node."""

    def __init__(self, pipeline: str, builder: "StateGraph[Any, Any, Any, Any]") -> None:
        self.pipeline = pipeline
        self.builder = builder
        if not isinstance(builder, StateGraph):  # a compiled one carries interrupts and a checkpointer
            self._refuse(None, f"a {type(builder).__name__} instead of a StateGraph")
        self._refuse_unsupported()
        for name in builder.nodes:
            self._refuse_node(name)
        self.compiled = builder.compile()
        self.nodes = tuple(builder.nodes)

    # -- what a task needs to know about a node --------------------------------------------------------
    def task_name(self, node: str) -> str:
        return f"{self.pipeline}.{node}"

    def queue(self, node: str) -> str:
        return str(self._metadata(node)["queue"])

    def timeout(self, node: str) -> float:
        """Seconds for which a claim of this node is kept alive."""
        return float(self._metadata(node)["timeout"])

    def routes_by_state(self, node: str) -> bool:
        """Whether where `node` leads depends on the state (a conditional edge)."""
        return bool(self.builder.branches.get(node))

    def skips_when_enough(self, node: str) -> bool:
        """Whether branches of `node` are left out once enough documents are relevant."""
        return bool(self._metadata(node).get("skip_when_enough"))

    def _metadata(self, node: str) -> dict[str, Any]:
        return self.builder.nodes[node].metadata or {}

    # -- the four operations ---------------------------------------------------------------------------
    def first_steps(self, state: dict[str, Any]) -> list[Next]:
        """The first superstep for an input state."""
        return self.superstep([self.next_steps(START, state)])

    def run_node(
        self, node: str, state: dict[str, Any], resources: Resources, *, last_attempt: bool = True
    ) -> dict[str, Any]:
        """The node's partial update. Its exceptions pass through; NodeBroke when it is no update."""
        config: RunnableConfig = {"configurable": {"resources": resources, "last_attempt": last_attempt}}
        update = self.compiled.nodes[node].invoke(state, config)
        if not isinstance(update, dict):
            kind = "a Command" if isinstance(update, Command) else type(update).__name__
            raise NodeBroke(f"{self.pipeline}.{node} returned {kind}; a node returns a dict of state keys")
        unknown = sorted(set(update) - set(self.builder.channels))
        if unknown:
            raise NodeBroke(
                f"{self.pipeline}.{node} returned keys that are not in the state: {', '.join(unknown)}"
            )
        for key, value in update.items():
            self._check_json(value, f"{self.pipeline}.{node} returned {key!r}")
        return update

    def stream(
        self, state: dict[str, Any], resources: Resources, max_steps: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """LangGraph's own run in this process: (node, its update) as each ends, ("", the state) after each
        superstep. Ends after `max_steps` supersteps, done or not."""
        config: RunnableConfig = {"configurable": {"resources": resources}, "recursion_limit": max_steps}
        events: Iterator[Any] = self.compiled.stream(state, config, stream_mode=["updates", "values"])
        try:
            for mode, event in events:
                if mode == "values":
                    yield "", event
                else:
                    yield from ((node, update or {}) for node, update in event.items())
        except GraphRecursionError:
            # Raised after the last allowed step, even when nothing was left to do: the caller looks.
            return

    def merge(self, state: dict[str, Any], updates: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The state after one superstep's `updates`, in branch order, with the graph's reducers.

        Two updates of one superstep to a key without a reducer are an error, as in LangGraph.
        """
        merged = dict(state)
        for key in self.builder.channels:
            values = [update[key] for update in updates if key in update]
            if not values:
                continue
            fresh = self._channel(key, state)
            try:
                fresh.update(values)
                merged[key] = fresh.get()
            except (InvalidUpdateError, EmptyChannelError) as error:
                raise NodeBroke(
                    f"{self.pipeline}: {len(values)} branches wrote {key!r} in one step, which has no reducer"
                ) from error
        return merged

    def _channel(self, key: str, state: dict[str, Any]) -> Any:
        """A channel that holds the state's value, or else a reducer's empty one. Copied, because a reducer
        may change its left side in place, and the empty value of `builder` is there for all runs."""
        channel = self.builder.channels[key]
        if key in state:
            return channel.from_checkpoint(deepcopy(state[key]))
        return channel.from_checkpoint(deepcopy(channel.get())) if channel.is_available() else channel.copy()

    def input_state(self, values: dict[str, Any]) -> dict[str, Any]:
        """The state before the first node: the input, and each reducer's empty value."""
        state: dict[str, Any] = {}
        for key, channel in self.builder.channels.items():
            if isinstance(channel, BinaryOperatorAggregate) and channel.is_available():
                state[key] = self._channel(key, {}).get()
        return self.merge(state, [values])

    def next_steps(self, node: str, state: dict[str, Any]) -> list[Next]:
        """Where `node` leads, given the state with the node's own update applied. END is left out.

        Raises NodeBroke for a target that is no node, and for a Send that cannot be a task.
        """
        found = [Next(target) for source, target in sorted(self.builder.edges) if source == node]
        for branch in self.builder.branches.get(node, {}).values():
            for target in self._as_list(branch.path.invoke(state)):
                if isinstance(target, Send):
                    found.append(self._sent(node, target))
                elif branch.ends and target not in branch.ends:
                    raise NodeBroke(f"{self.pipeline}.{node} leads to {target!r}, which its path map lacks")
                else:
                    found.append(Next(branch.ends[target] if branch.ends else target))
        for step in found:
            if step.node != END and step.node not in self.builder.nodes:
                raise NodeBroke(f"{self.pipeline}.{node} leads to {step.node!r}, which is no node")
        return [step for step in found if step.node != END]

    def _sent(self, node: str, send: Send) -> Next:
        what = f"{self.pipeline}.{node} sends to {send.node!r}"
        if send.node == END or send.arg is None:  # None would pass for "the node sees the state"
            raise NodeBroke(
                f"{what} {'nothing' if send.arg is None else 'a state'}; a Send needs a node and its state"
            )
        self._check_json(send.arg, what)
        return Next(send.node, send.arg)

    @staticmethod
    def _check_json(value: Any, what: str) -> None:
        """Everything that passes between nodes is a row, and NaN is no JSON for Postgres."""
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise NodeBroke(f"{what}, which is no JSON value: {error}") from None

    @staticmethod
    def superstep(branches: Iterable[Sequence[Next]]) -> list[Next]:
        """The tasks of the next superstep from what each branch of this one leads to, in LangGraph's
        order: plain nodes once each and by name, then the Sends as they come."""
        plain: set[str] = set()
        sends: list[Next] = []
        for branch in branches:
            for step in branch:
                if step.argument is None:
                    plain.add(step.node)
                else:
                    sends.append(step)
        return [*(Next(node) for node in sorted(plain)), *sends]

    @staticmethod
    def _as_list(result: Any) -> list[Any]:
        return list(result) if isinstance(result, (list, tuple)) else [result]

    # -- refusals --------------------------------------------------------------------------------------
    def _refuse(self, node: str | None, what: str) -> None:
        name = f"{self.pipeline}.{node}" if node else self.pipeline
        raise UnsupportedGraph(f"{name}: {what} cannot run as Celery tasks")

    def _refuse_unsupported(self) -> None:
        builder = self.builder
        for starts, end in getattr(builder, "waiting_edges", ()):
            self._refuse(end, f"a waiting edge (from {', '.join(starts)})")
        for key, channel in builder.channels.items():
            if type(channel) not in (LastValue, BinaryOperatorAggregate):
                self._refuse(None, f"the state key {key!r} with a {type(channel).__name__} channel")
        if getattr(builder, "managed", None):
            self._refuse(None, f"managed values ({', '.join(builder.managed)})")
        if not is_typeddict(builder.state_schema):
            self._refuse(None, f"the state {builder.state_schema.__name__}, which is no TypedDict,")

    def _refuse_node(self, name: str) -> None:
        spec = self.builder.nodes[name]
        if name == "join":
            self._refuse(name, "a node with the name of the task that joins a fan-out")
        if isinstance(spec.runnable, Pregel):
            self._refuse(name, "a subgraph")
        if getattr(spec.runnable, "func", True) is None:
            self._refuse(name, "a node that is only async")
        for wanted in ("runtime", "store", "previous"):
            if wanted in getattr(spec.runnable, "func_accepts", ()):
                self._refuse(name, f"a node that takes LangGraph's {wanted}")
        if spec.ends or (spec.metadata or {}).get("returns_command"):
            self._refuse(name, "a node that returns a Command")
        for policy in ("retry_policy", "cache_policy", "timeout", "defer", "error_handler_node"):
            if getattr(spec, policy, None):
                self._refuse(name, f"LangGraph's own {policy}")
        metadata = spec.metadata or {}
        if metadata.get("queue") not in QUEUES:
            self._refuse(name, f"a node without a queue in its metadata (one of {', '.join(QUEUES)})")
        timeout = metadata.get("timeout")
        if not isinstance(timeout, (int, float)) or timeout <= 0:
            self._refuse(name, "a node without a timeout in its metadata (seconds)")
