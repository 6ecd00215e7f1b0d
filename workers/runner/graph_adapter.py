"""The only file that touches LangGraph's inside.

A graph is declared with LangGraph; this adapter lets its nodes be run one at a time, on different
machines, and says after each what LangGraph would have done next. It stands on attributes that behaved
the same on LangGraph 0.2.76, 0.6.11 and 1.2.24: `compiled.nodes[n].invoke`, `builder.edges`,
`builder.branches[n][k].path/.ends`, `builder.channels`.

What it cannot honour (Command, subgraphs, interrupts, LangGraph's own retry, cache or timeout policies,
deferred nodes, waiting edges, channels other than last-value and reducer) is refused when it is made.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.last_value import LastValue
from langgraph.errors import EmptyChannelError, InvalidUpdateError
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
        self._refuse_unsupported()
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

    def _metadata(self, node: str) -> dict[str, Any]:
        return self.builder.nodes[node].metadata or {}

    # -- the four operations ---------------------------------------------------------------------------
    def first_steps(self, state: dict[str, Any]) -> list[Next]:
        """The first superstep for an input state."""
        return self.superstep([self.next_steps(START, state)])

    def run_node(
        self, node: str, state: dict[str, Any], resources: Resources, *, last_attempt: bool = True
    ) -> dict[str, Any]:
        """The node's partial update. Its exceptions pass through."""
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
        return update

    def merge(self, state: dict[str, Any], updates: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The state after one superstep's `updates`, in branch order, with the graph's reducers.

        Two updates of one superstep to a key without a reducer are an error, as in LangGraph.
        """
        merged = dict(state)
        for key, channel in self.builder.channels.items():
            values = [update[key] for update in updates if key in update]
            if not values:
                continue
            fresh = channel.copy()
            # A reducer channel starts with its type's empty value; only a known value replaces that.
            if key in state:
                fresh = channel.from_checkpoint(state[key])
            try:
                fresh.update(values)
                merged[key] = fresh.get()
            except (InvalidUpdateError, EmptyChannelError) as error:
                raise NodeBroke(
                    f"{self.pipeline}: {len(values)} branches wrote {key!r} in one step, which has no reducer"
                ) from error
        return merged

    def input_state(self, values: dict[str, Any]) -> dict[str, Any]:
        """The state before the first node: the input, and each reducer's empty value."""
        state: dict[str, Any] = {}
        for key, channel in self.builder.channels.items():
            if isinstance(channel, BinaryOperatorAggregate):
                state[key] = channel.copy().get()
        return self.merge(state, [values])

    def next_steps(self, node: str, state: dict[str, Any]) -> list[Next]:
        """Where `node` leads, given the state with the node's own update applied. END is left out."""
        found = [Next(target) for source, target in sorted(self.builder.edges) if source == node]
        for branch in self.builder.branches.get(node, {}).values():
            for target in self._as_list(branch.path.invoke(state)):
                if isinstance(target, Send):
                    found.append(Next(target.node, target.arg))
                else:
                    found.append(Next(branch.ends[target] if branch.ends else target))
        for step in found:
            if step.node != END and step.node not in self.builder.nodes:
                raise NodeBroke(f"{self.pipeline}.{node} leads to {step.node!r}, which is no node")
        return [step for step in found if step.node != END]

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
        for name, spec in builder.nodes.items():
            if isinstance(spec.runnable, Pregel):
                self._refuse(name, "a subgraph")
            if spec.ends:
                self._refuse(name, "a Command with destinations")
            for policy in ("retry_policy", "cache_policy", "timeout", "defer", "error_handler_node"):
                if getattr(spec, policy, None):
                    self._refuse(name, f"LangGraph's own {policy}")
            metadata = spec.metadata or {}
            if metadata.get("queue") not in QUEUES:
                self._refuse(name, f"a node without a queue in its metadata (one of {', '.join(QUEUES)})")

    def refuse_compiled(self, compiled: "Pregel[Any, Any, Any, Any]") -> None:
        """Refuse a graph that somebody compiled with interrupts or a checkpointer."""
        if compiled.interrupt_before_nodes or compiled.interrupt_after_nodes:
            self._refuse(None, "interrupts")
        if compiled.checkpointer:
            self._refuse(None, "a checkpointer")
