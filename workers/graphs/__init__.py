"""The pipelines by name. To add one: a module with `build()`, a line here, its numbers in shared.plan."""

from collections.abc import Callable
from typing import Any

from langgraph.graph import StateGraph

from workers.graphs import adaptive, crag, rag, self_rag

BUILDERS: "dict[str, Callable[[], StateGraph[Any, Any, Any, Any]]]" = {
    "adaptive": adaptive.build,
    "crag": crag.build,
    "rag": rag.build,
    "self_rag": self_rag.build,
}
