"""A batch's plan: everything that decides how its questions are answered, frozen at submit.

The numbers of each pipeline are a pydantic model, so that `--set key=value` is checked before anything is
stored. Scores of local models (a cosine) and of a reasoning model are on different scales, so thresholds
left unset take the provider's default.
"""

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from shared.errors import UsageError
from shared.filters import Filters, parse_filters
from shared.prices import token_prices
from shared.settings import Provider, Reuse, Settings

Switch = Literal["auto", "on", "off"]
Retrieval = Literal["dense", "sparse", "hybrid"]

LOCAL_EMBEDDING = "local/all-MiniLM-L6-v2-int8"

# Local values were chosen on labelled data (docs/pipelines.md, "Thresholds"); those for reasoning models
# are on the scale that the grading prompt defines.
THRESHOLDS: dict[Provider, dict[str, float]] = {
    "local": {
        "relevant_at": 0.45,
        "upper": 0.60,
        "lower": 0.35,
        "strip_at": 0.25,
        "answer_at": 0.52,
        "grounded_at": 0.45,
        "useful_at": 0.25,
    },
    "openai": {
        "relevant_at": 0.50,
        "upper": 0.70,
        "lower": 0.30,
        "strip_at": 0.50,
        "answer_at": 0.0,
        "grounded_at": 0.50,
        "useful_at": 0.50,
    },
}


class RagParams(BaseModel):
    """retrieve -> generate: the baseline."""

    model_config = ConfigDict(extra="forbid")

    k: int = Field(4, ge=1, le=50, description="Documents retrieved for a question.")
    retrieval: Retrieval = Field(
        "hybrid",
        description="What is compared: the meaning (dense), the words (sparse, BM25), or both (hybrid).",
    )
    filter: Filters = Field(
        default_factory=dict,
        description="Only documents that match are retrieved; one `key=value` here, more with `--filter`.",
    )
    sentences: int = Field(3, ge=1, le=20, description="The longest answer, in sentences.")
    answer_at: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Local models: how close a sentence must be to the question to be quoted.",
    )
    append_sources: Switch = Field(
        "off", description="End the answer's text with its sources, each like `file.pdf (page 13)`."
    )
    max_steps: int = Field(40, ge=2, le=1000, description="Supersteps after which a run gives up.")

    @field_validator("filter", mode="before")
    @classmethod
    def _filter_as_typed(cls, value: Any) -> Any:
        """`--set filter=page=3` and the items of `--filter` are text; a program may hand in an object."""
        items = [value] if isinstance(value, str) else value
        if isinstance(value, dict):
            groups = {key: one if isinstance(one, list) else [one] for key, one in value.items()}
            items = [f"{key}={_as_typed(one)}" for key, group in groups.items() for one in group]
        usable = isinstance(items, list) and all(isinstance(item, str) for item in items)
        return parse_filters(items) if usable else value


class CragParams(RagParams):
    """retrieve -> grade each document -> decide -> [refine] -> [rewrite -> web search] -> generate."""

    rule: Literal["ratio", "none_relevant", "confidence"] = Field(
        "ratio", description="How the decision is made; `ratio:0.5` sets the ratio too."
    )
    ratio: float = Field(
        0.7, ge=0, le=1, description="Rule `ratio`: search when relevant/retrieved is not above it."
    )
    relevant_at: float | None = Field(
        None, ge=0, le=1, description="Local models: the score from which a document counts as relevant."
    )
    upper: float | None = Field(
        None, ge=0, le=1, description="Rule `confidence`: one score above it = Correct."
    )
    lower: float | None = Field(
        None, ge=0, le=1, description="Rule `confidence`: all scores below it = Incorrect."
    )
    refine: Switch = Field(
        "auto", description="Keep only the relevant strips of a document. auto: rule `confidence`."
    )
    strip_at: float | None = Field(None, ge=0, le=1, description="The score from which a strip is kept.")
    rewrite: Switch = Field("on", description="Rewrite the question before the web search.")
    web_search: Switch = Field("auto", description="auto: on when a Tavily key is set.")
    web_k: int = Field(3, ge=1, le=20, description="Web results asked for.")
    enough_relevant: int = Field(
        0, ge=0, description="Stop grading once so many documents are relevant; 0: grade every one."
    )

    @model_validator(mode="before")
    @classmethod
    def _rule_with_ratio(cls, values: Any) -> Any:
        """`rule=ratio:0.5` is one setting for a person, two for us."""
        if isinstance(values, dict) and str(values.get("rule", "")).startswith("ratio:"):
            return {**values, "rule": "ratio", "ratio": str(values["rule"]).removeprefix("ratio:")}
        return values


class JudgedParams(RagParams):
    """What the pipelines share that judge their own answer."""

    relevant_at: float | None = Field(
        None, ge=0, le=1, description="Local models: the score from which a document counts as relevant."
    )
    grounded_at: float | None = Field(
        None, ge=0, le=1, description="Local models: the score from which an answer stands in its documents."
    )
    useful_at: float | None = Field(
        None, ge=0, le=1, description="Local models: the score from which an answer answers its question."
    )
    max_generations: int = Field(3, ge=1, le=20, description="Answers drafted before the run gives up.")
    enough_relevant: int = Field(
        0, ge=0, description="Stop grading once so many documents are relevant; 0: grade every one."
    )
    description: str = Field(
        "",
        max_length=4000,
        description="What the collection holds. Left out: the collection's own description.",
    )


class SelfRagParams(JudgedParams):
    """retrieve -> grade -> generate -> grounded? -> answers the question? with bounded loops."""

    decide_retrieval: Switch = Field("off", description="Decide first whether documents are needed at all.")
    max_rewrites: int = Field(2, ge=0, le=20, description="Rewritten queries before the run gives up.")


class AdaptiveParams(JudgedParams):
    """route -> rewrite -> search -> grade -> extract -> generate -> judge, from the store over to the web."""

    strip_at: float | None = Field(
        None, ge=0, le=1, description="Local models: the score of a passage worth taking."
    )
    max_retrievals: int = Field(2, ge=1, le=20, description="Searches of the store, and as many of the web.")
    web_search: Switch = Field("auto", description="auto: on when a Tavily key is set.")
    web_k: int = Field(3, ge=1, le=20, description="Web results asked for.")


PIPELINES: dict[str, type[RagParams]] = {
    "crag": CragParams,
    "rag": RagParams,
    "self_rag": SelfRagParams,
    "adaptive": AdaptiveParams,
}
ROLES: dict[str, tuple[str, ...]] = {
    "crag": ("relevance_grader", "query_rewriter", "answer_generator"),
    "rag": ("answer_generator",),
    "self_rag": (
        "router",
        "relevance_grader",
        "query_rewriter",
        "answer_generator",
        "groundedness_grader",
        "answer_grader",
    ),
    "adaptive": (
        "router",
        "query_rewriter",
        "relevance_grader",
        "knowledge_extractor",
        "answer_generator",
        "groundedness_grader",
        "answer_grader",
        "feedback_writer",
        "apology_writer",
    ),
}


class Plan(BaseModel):
    """What is stored in `batches.plan`."""

    model_config = ConfigDict(extra="ignore")  # a newer version may have written more

    pipeline: str
    collection: str
    params: dict[str, Any]  # the pipeline's numbers, all resolved
    provider: Provider
    models: dict[str, str]  # role -> model
    embedder: Provider
    embedding_model: str  # "<provider>/<model>", as a collection keeps it
    structured_output: str = "json_schema"
    server: str = ""  # where OpenAI's API is spoken; "": OpenAI itself. Texts go nowhere else.
    max_attempts: int
    prices: dict[str, tuple[float, float]] = {}  # model -> USD per million tokens, before the list prices
    prompts: dict[str, str] = {}  # prompt name -> version; written by the first admission
    reuse: Reuse = "off"  # whose identical work is taken over, and given; a plan without it is an old one
    reuse_owner: str = ""  # of the API key it was submitted with: work is shared with nobody else's batches
    reuse_days: float = 30.0
    reuse_web_hours: float = 24.0


def _known_roles(settings: Settings) -> None:
    known = {role for roles in ROLES.values() for role in roles}
    unknown = sorted(set(settings.role_models) - known)
    if unknown:
        raise UsageError(
            f"CRAGLINE_ROLE_MODELS names {', '.join(unknown)}; the roles are: {', '.join(sorted(known))}."
        )


def params_type(pipeline: str) -> type[RagParams]:
    try:
        return PIPELINES[pipeline]
    except KeyError:
        raise UsageError(f"There is no pipeline {pipeline!r}. There are: {', '.join(PIPELINES)}.") from None


def parse_sets(items: list[str]) -> dict[str, str]:
    """`["k=5", "rule=ratio:0.5"]` as a dict. Raises UsageError for an item without `=`."""
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set takes key=value, not {item!r}.")
        pairs[key.strip()] = value.strip()
    return pairs


def _as_typed(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def with_filters(sets: list[str] | None, filters: list[str] | None) -> dict[str, Any]:
    """The items of `--set` and those of `--filter` as one dict for `make_plan`. Raises what `parse_sets` raises."""
    values: dict[str, Any] = dict(parse_sets(sets or []))
    if filters:
        values["filter"] = [*([values["filter"]] if "filter" in values else []), *filters]
    return values


def checked_sets(pipeline: str, sets: dict[str, Any]) -> dict[str, Any]:
    """The values of `sets` as the pipeline's parameters take them; `auto` ones are left out, as if unset.

    Raises UsageError naming the wrong key or value.
    """
    kind = params_type(pipeline)
    try:
        params = kind(**sets)
    except ValidationError as error:
        raise UsageError(_explain(error, pipeline, kind)) from None
    values = params.model_dump(include=params.model_fields_set)
    return {key: value for key, value in values.items() if value != "auto"}


def make_plan(
    settings: Settings,
    pipeline: str,
    sets: dict[str, Any] | None = None,
    collection: str | None = None,
    reuse: Reuse | None = None,
) -> Plan:
    """The plan of a batch submitted now with these settings. Raises UsageError naming the wrong key or value."""
    sets = dict(sets or {})
    _known_roles(settings)
    kind = params_type(pipeline)
    chosen = collection or sets.pop("collection", None) or settings.collection
    if collection:
        sets.pop("collection", None)
    try:
        params = kind(**sets)
    except ValidationError as error:
        raise UsageError(_explain(error, pipeline, kind)) from None
    return Plan(
        pipeline=pipeline,
        collection=chosen,
        params=_resolved(params, settings),
        provider=settings.provider,
        models={role: _model_of(role, settings) for role in ROLES[pipeline]},
        embedder=settings.embedding_provider,
        embedding_model=embedding_name(settings),
        structured_output=settings.structured_output,
        server=server_of(settings) if "openai" in (settings.provider, settings.embedding_provider) else "",
        max_attempts=settings.max_attempts,
        reuse=reuse or settings.reuse,
        reuse_days=settings.reuse_days,
        reuse_web_hours=settings.reuse_web_hours,
        prices=settings.model_prices,
    )


def with_params(plan: Plan, sets: dict[str, Any], settings: Settings) -> Plan:
    """`plan` with other numbers. Raises UsageError naming the wrong key or value."""
    if not sets:
        return plan
    if "collection" in sets:
        raise UsageError(f"The collection stays {plan.collection!r}; it is no number of the pipeline.")
    kind = params_type(plan.pipeline)
    try:
        params = kind(**{**plan.params, **sets})
    except ValidationError as error:
        raise UsageError(_explain(error, plan.pipeline, kind)) from None
    return plan.model_copy(update={"params": _resolved(params, settings)})


def server_of(settings: Settings) -> str:
    """Scheme, host, port and path of the server in use, without a user or password that the URL may hold."""
    if not settings.openai_base_url:
        return ""
    parts = urlsplit(settings.openai_base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def embedding_name(settings: Settings) -> str:
    """The embedding model in use, as a collection keeps it."""
    return LOCAL_EMBEDDING if settings.embedding_provider == "local" else f"openai/{settings.embedding_model}"


def unpriced(plan: Plan) -> list[str]:
    """Models of the plan that cost money, by a price that nobody knows."""
    models = set(plan.models.values()) if plan.provider == "openai" else set()
    if plan.embedder == "openai":
        models.add(plan.embedding_model.removeprefix("openai/"))
    return sorted(model for model in models if token_prices(model, plan.prices) is None)


def _model_of(role: str, settings: Settings) -> str:
    if settings.provider == "local":
        return "local"
    return settings.role_models.get(role, settings.chat_model)


def _resolved(params: RagParams, settings: Settings) -> dict[str, Any]:
    values = params.model_dump()
    for name, default in THRESHOLDS[settings.provider].items():
        if name in values and values[name] is None:
            values[name] = default
    if isinstance(params, CragParams):
        if values["lower"] > values["upper"]:
            raise UsageError(f"lower ({values['lower']}) must not be above upper ({values['upper']}).")
        if values["refine"] == "auto":
            values["refine"] = "on" if params.rule == "confidence" else "off"
    autos = {
        "rewrite": "on",
        "decide_retrieval": "off",
        "append_sources": "off",
        "web_search": "on" if settings.web_search_on else "off",
    }
    for name, choice in autos.items():
        if values.get(name) == "auto":
            values[name] = choice
    return values


def _explain(error: ValidationError, pipeline: str, kind: type[RagParams]) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(
                f"{pipeline} has no setting {key!r}. It has: {', '.join(kind.model_fields)}, collection."
            )
        else:
            lines.append(f"--set {key}={problem['input']}: {problem['msg']}.")
    return " ".join(lines)
