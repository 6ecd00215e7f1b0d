"""What goes over the wire: the bodies of requests and answers."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from shared.settings import Reuse

MAX_ID = 2**63 - 1  # what Postgres counts to
BatchName = Annotated[str, Field(min_length=1, max_length=500)]


class Alive(BaseModel):
    status: Literal["alive"]


class Check(BaseModel):
    """One thing that this service depends on."""

    name: str
    ready: bool
    detail: str = Field(description="What was found; without secrets.")


class Ready(BaseModel):
    ready: bool
    checks: list[Check]


class FieldProblem(BaseModel):
    """One thing that is wrong with a request."""

    where: str = Field(description="Place in the request: `body.settings.k`, `query.limit`.")
    message: str


class Problem(BaseModel):
    """An error, as RFC 9457 has it. Its media type is `application/problem+json`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="`urn:cragline:problem:<word>`, or `about:blank`.")
    title: str
    status: int
    detail: str = Field(description="What was wrong, and what to do about it.")
    instance: str | None = Field(None, description="The path that was asked for.")
    row: int | None = Field(None, description="The row or line of the file that cannot be taken.")
    errors: list[FieldProblem] | None = None


class BatchOptions(BaseModel):
    """How the questions of a batch are to be answered."""

    model_config = ConfigDict(extra="forbid")

    pipeline: str = Field("crag", description="`crag`, `rag`, `self_rag` or `adaptive`.")
    name: BatchName | None = Field(None, description="Left out: the file's name.")
    collection: str | None = Field(None, description="Collection or alias. Left out: CRAGLINE_COLLECTION.")
    column: str | None = Field(
        None, description="The column that holds the questions: name or number. Left out: guessed."
    )
    sheet: str | None = Field(None, description="The sheet of a workbook: name or number. Left out: found.")
    header_row: int | None = Field(
        None,
        ge=0,
        le=1_048_576,
        description="The row of that sheet with the header; 0: none. Left out: found.",
    )
    priority: int | None = Field(None, description="Higher ones are admitted first. Left out: 0.")
    weight: float | None = Field(None, description="The share of the window among equals. Left out: 1.")
    max_in_flight: int | None = Field(None, description="Runs of it at once; 0 or left out: no cap.")
    reuse: Reuse | None = Field(
        None,
        description="Identical work is done once: in no case, in the batch, or in all batches that say so.",
    )
    max_cost_usd: float | None = Field(None, description="Pause before it has cost more. Left out: no cap.")
    max_tokens: int | None = Field(None, description="Pause before it has taken more. Left out: no cap.")
    callback_url: str | None = Field(
        None, description="Told, signed, when the batch has ended. Needs CRAGLINE_WEBHOOK_SECRET."
    )


class BatchQuery(BatchOptions):
    """The options beside a file: in the query, or as fields of the form."""

    set: list[str] = Field([], max_length=100, description="`key=value` of the pipeline, e.g. `k=6`.")
    filter: list[str] = Field(
        [], max_length=100, description="`key=value` that documents must match, e.g. `page=3`."
    )
    filename: str | None = Field(
        None, min_length=1, max_length=500, description="The file's name, whose ending says its format."
    )


class BatchBody(BatchOptions):
    """A batch as one JSON document. For more than some thousand questions send a file or JSON lines.

    It may be large, and so might be the list of what is wrong with it: an error takes a thousand times the
    room of the two bytes that cause it. So each kind of error is told once.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})

    settings: dict[str, Any] = Field(
        default_factory=dict, description='The pipeline\'s numbers, e.g. `{"k": 6}`.'
    )
    questions: list[str | dict[str, Any]] = Field(
        min_length=1,
        fail_fast=True,
        description="Texts, or objects with a field `question`; other fields come back with the results.",
    )

    @model_validator(mode="after")
    def _knows_every_field(self) -> "BatchBody":
        if unknown := next(iter(self.model_extra or {}), None):
            raise ValueError(f"there is no field {unknown[:60]!r}")
        return self


class SubmittedBatch(BaseModel):
    """A batch that is stored. It is answered in the background."""

    batch_id: int
    rows: int
    questions: int = Field(description="Distinct questions; each is one run.")
    empty_rows: int = Field(description="Not run, kept in the results.")
    duplicate_rows: int = Field(description="Run once, answered for each.")
    repeated: bool = Field(description="The same request came before; this is its batch.")
    question_column: str | None
    notes: list[str] = Field(description="How the file was understood.")


class BatchProgress(BaseModel):
    """Where a batch stands. submitted = pending + running + answered + gave_up + failed + cancelled."""

    model_config = ConfigDict(extra="allow")

    batch_id: int
    name: str
    pipeline: str
    collection: str
    status: str
    rows: int
    empty_rows: int
    duplicate_rows: int
    submitted: int
    pending: int
    running: int
    answered: int
    gave_up: int
    failed: int
    cancelled: int
    open: int = Field(description="pending + running")
    priority: int
    weight: float
    max_in_flight: int | None
    cost_usd: float | None
    rate_per_minute: float | None
    eta_seconds: float | None
    submitted_at: datetime
    ended_at: datetime | None


class BatchPage(BaseModel):
    batches: list[BatchProgress]
    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last.")


class Delivery(BaseModel):
    """How far the news of a batch's end has come to its `callback_url`."""

    url: str
    status: str
    attempts: int
    last_status: int | None
    last_error: str | None
    next_at: datetime
    ended_at: datetime | None


class BatchDetails(BatchProgress):
    owner: str | None
    plan: dict[str, Any] = Field(description="Everything that decides how questions are answered.")
    source: dict[str, Any] = Field(description="How the file was understood.")
    deliveries: list[Delivery]


class Act(BaseModel):
    """Why something is done to a batch; kept in its events."""

    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(None, max_length=1000)


class NewShare(Act):
    """How a batch shares the window from now on; what is left out stays."""

    priority: int | None = None
    weight: float | None = None
    max_in_flight: int | None = Field(None, description="0 takes the cap away.")


class Resumption(Act):
    """Go on, if wanted with another cap; 0 takes a cap away."""

    max_cost_usd: float | None = None
    max_tokens: int | None = None


class Again(Act):
    """Which ended runs are done again: those that fit everything that is given."""

    dispositions: list[str] = Field(["failed"], min_length=1, max_length=10)
    error_class: str | None = Field(None, description="Short word or class, e.g. `rate_limited`.")
    node: str | None = Field(None, description="At which they ended.")
    since: AwareDatetime | None = Field(None, description="They ended then or later.")
    from_failed_node: bool = Field(
        True, description="Failed and cancelled runs go on where they stopped; false: all begin anew."
    )
    dry_run: bool = Field(False, description="Only count them.")


class Fork(Act):
    """Go on from the middle of a run, with other numbers."""

    step: int = Field(ge=1, le=1_000_000, description="The step to begin with, as the timeline counts them.")
    settings: dict[str, Any] = Field(default_factory=dict, description="What is to be different.")


class Forked(BaseModel):
    """The new run, in a batch of its own."""

    model_config = ConfigDict(extra="allow")

    run_id: int
    batch_id: int


class Event(BaseModel):
    """Something that was done to a batch or a run."""

    model_config = ConfigDict(extra="allow")

    at: datetime
    actor: str
    action: str
    run_id: int | None
    reason: str | None
    detail: dict[str, Any]


class ActDone(BaseModel):
    """What an act came to."""

    batch_id: int
    action: str
    status: str = Field(description="Of the batch, now.")
    changed: bool = Field(description="False where it was so already.")
    runs: int = Field(description="Runs that it touched.")
    reason: str | None


class RunDetails(BaseModel):
    """One question's way through its pipeline."""

    model_config = ConfigDict(extra="allow")

    run_id: int
    batch_id: int
    question: str
    status: str
    answer: str | None
    reason: str | None
    error: str | None
    sources: list[dict[str, Any]] | None
    timeline: list[dict[str, Any]] = Field(description="Every attempt of every node, in order.")
    open: list[dict[str, Any]] = Field(description="What it is waiting for at this moment.")


class IngestBody(BaseModel):
    """Pages, sites and repositories to bring into a collection."""

    model_config = ConfigDict(extra="forbid")

    collection: str | None = None
    urls: list[str] = Field([], max_length=1000, description="`https://...`, `git+https://host/path[@ref]`.")
    paths: list[str] = Field(
        [], max_length=1000, description="Files and folders of the workers. For admins on loopback only."
    )
    include: list[str] = Field([], max_length=100)
    exclude: list[str] = Field([], max_length=100)
    depth: int = Field(0, ge=0, le=20, description="Pages: follow links so far, within the host.")
    sitemap: bool = False
    max_pages: int = Field(100, ge=1, le=100_000)
    prune: bool = Field(False, description="Remove documents of these sources that are gone. For admins.")


class IngestStarted(BaseModel):
    ingest_id: str
    collection: str
    files: int


class PathNote(BaseModel):
    path: str
    note: str


class IngestProgress(BaseModel):
    ingest_id: str
    ended: bool
    files: int
    pending: int
    running: int
    done: int
    failed: int
    documents: int
    documents_removed: int
    chunks_added: int
    chunks_unchanged: int
    chunks_removed: int
    errors: list[PathNote]
    notes: list[PathNote]


class CollectionFacts(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str
    documents: int
    chunks: int
    aliases: list[str]
    embedding_model: str
    dimension: int
    description: str | None
    created_at: datetime
    ingested_at: datetime | None


class CollectionSource(BaseModel):
    source: str
    documents: int
    ingested_at: datetime | None


class CollectionDetails(CollectionFacts):
    sources: list[CollectionSource]
    open_batches: list[int]
