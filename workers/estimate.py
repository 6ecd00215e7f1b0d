"""What a question will cost, worked out from its plan before anything is measured: a range, and a wide one.

How often each role is called follows from the graphs in `workers/graphs`; how much it reads, from its prompt,
the size of a chunk and the number of documents. Retries are not in it, nor what is not paid for twice.
"""

from dataclasses import dataclass
from typing import Any

from shared.plan import Plan
from shared.prices import cost_usd, prices_as_of, search_cost_usd
from workers.models.prompts import load_prompts

Range = tuple[float, float]  # least and most

STRIPS = 6  # of a usual chunk
CHARS_PER_TOKEN = 4
_SCHEMA_TOKENS = 80
# Tokens that a role usually writes.
_WRITES: dict[str, Range] = {
    "relevance_grader": (15, 40),
    "query_rewriter": (10, 40),
    "answer_generator": (40, 250),
    "groundedness_grader": (20, 80),
    "answer_grader": (20, 60),
    "router": (5, 15),
    "knowledge_extractor": (20, 200),
    "feedback_writer": (15, 60),
    "apology_writer": (20, 80),
}
# Documents that a role reads at once: None stands for all that were found relevant, at least one.
_READS: dict[str, int | None] = {
    "relevance_grader": 1,
    "knowledge_extractor": 1,
    "answer_generator": None,
    "groundedness_grader": None,
}
SEARCH = "web_search"


def calls_of(plan: Plan) -> dict[str, Range]:
    """How often a question calls each role, and the web search, at the least and at the most."""
    calls = _CALLS[plan.pipeline](plan.params)
    return {role: often for role, often in calls.items() if often[1] > 0}


def _graded(params: dict[str, Any], most: float) -> Range:
    enough = params.get("enough_relevant") or params["k"]
    return (min(params["k"], enough), most)


def _rag(_params: dict[str, Any]) -> dict[str, Range]:
    return {"answer_generator": (1, 1)}


def _crag(params: dict[str, Any]) -> dict[str, Range]:
    k, web = params["k"], float(params["web_search"] == "on")
    least, most = _graded(params, k)
    strips = k * STRIPS if params["refine"] == "on" else 0
    return {
        "relevance_grader": (least, most + strips),
        "query_rewriter": (0, web if params["rewrite"] == "on" else 0),
        SEARCH: (0, web),
        "answer_generator": (0 if not web else 1, 1),  # without the web it may give up unasked
    }


def _self_rag(params: dict[str, Any]) -> dict[str, Range]:
    drafts = params["max_generations"]
    return {
        "router": (1, 1) if params["decide_retrieval"] == "on" else (0, 0),
        "relevance_grader": _graded(params, params["k"] * (1 + params["max_rewrites"])),
        "query_rewriter": (0, params["max_rewrites"]),
        "answer_generator": (1, drafts),
        "groundedness_grader": (1, drafts),
        "answer_grader": (1, drafts),
    }


def _adaptive(params: dict[str, Any]) -> dict[str, Range]:
    drafts, rounds, web = params["max_generations"], params["max_retrievals"], params["web_search"] == "on"
    documents = rounds * (params["k"] + (params["web_k"] if web else 0))
    searches = rounds * (2 if web else 1)
    return {
        "router": (1, 1),
        "query_rewriter": (1, searches),
        "relevance_grader": _graded(params, documents),
        SEARCH: (0, rounds if web else 0),
        "knowledge_extractor": (1, documents),
        "answer_generator": (1, drafts),
        "groundedness_grader": (1, drafts),
        "answer_grader": (1, drafts),
        "feedback_writer": (0, searches + drafts),
        "apology_writer": (0, 1),
    }


_CALLS = {"rag": _rag, "crag": _crag, "self_rag": _self_rag, "adaptive": _adaptive}


@dataclass(frozen=True)
class Estimate:
    """Of one question. `cost_usd` is None when the price of something is not known: `unpriced` names it."""

    calls: Range
    searches: Range
    input_tokens: Range
    output_tokens: Range
    cost_usd: Range | None
    unpriced: list[str]
    prices_as_of: str


def estimate(plan: Plan, chunk_tokens: int, question_tokens: float) -> Estimate:
    """`chunk_tokens`: of a document; `question_tokens`: of a usual question of the batch."""
    total_in = total_out = total_calls = cost = searches = (0.0, 0.0)
    unpriced: set[str] = set()
    for role, often in calls_of(plan).items():
        if role == SEARCH:
            searches = often
            price = search_cost_usd("tavily")
            prices: Range | None = None if price is None else (price, price)
            name = "Tavily"
        else:
            read = _reads(role, plan, chunk_tokens, question_tokens)
            wrote = _WRITES[role]
            prices, name = _price(plan, role, read, wrote), plan.models[role]
            total_calls = _add(total_calls, often)
            total_in, total_out = _add(total_in, often, read), _add(total_out, often, wrote)
        if prices is None:
            unpriced.add(name)
        else:
            cost = _add(cost, often, prices)
    return Estimate(
        calls=total_calls,
        searches=searches,
        input_tokens=total_in,
        output_tokens=total_out,
        cost_usd=None if unpriced else cost,
        unpriced=sorted(unpriced),
        prices_as_of=prices_as_of(),
    )


def _add(total: Range, often: Range, each: Range = (1, 1)) -> Range:
    return (total[0] + often[0] * each[0], total[1] + often[1] * each[1])


def _price(plan: Plan, role: str, read: Range, wrote: Range) -> Range | None:
    if plan.provider == "local":
        return (0.0, 0.0)
    least, most = (
        cost_usd(plan.models[role], round(tokens_in), round(tokens_out), plan.prices)
        for tokens_in, tokens_out in zip(read, wrote, strict=True)
    )
    return None if least is None or most is None else (least, most)


def _reads(role: str, plan: Plan, chunk_tokens: int, question_tokens: float) -> Range:
    prompt = load_prompts()[role]
    fixed = len(prompt.system + prompt.human) / CHARS_PER_TOKEN + _SCHEMA_TOKENS + question_tokens
    documents = _READS.get(role, 0)
    least, most = (documents, documents) if documents is not None else (1, max(1, plan.params["k"]))
    # a chunk is seldom full
    return (fixed + least * chunk_tokens / 2, fixed + most * chunk_tokens)
