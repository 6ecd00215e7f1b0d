"""Turn the question into a query that a web search engine does well with."""

from typing import Any

from workers.nodes.resources import Resources
from workers.nodes.state import CragState


def rewrite_query(state: CragState, resources: Resources) -> dict[str, Any]:
    """Writes `query`."""
    return {"query": resources.query_rewriter.rewrite(state["question"])}
