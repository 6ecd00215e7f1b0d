"""The pipelines by name. To add one: a module with `build()`, a line here, its numbers in shared.plan."""

from collections.abc import Callable
from typing import Any

from langgraph.graph import StateGraph

from workers.graphs import crag, rag

BUILDERS: "dict[str, Callable[[], StateGraph[Any, Any, Any, Any]]]" = {"crag": crag.build, "rag": rag.build}
