"""The only place where real parts are put together: which store, which models, which web, for which plan."""

import threading
from typing import Any

import structlog
from sqlalchemy import Engine, select

from shared.db import get_engine, transaction
from shared.errors import PermanentError
from shared.plan import Plan, Retrieval, embedding_name, server_of
from shared.settings import Settings
from shared.tables import Collection
from workers.ingest import ingest_file
from workers.models.minilm import MiniLM
from workers.models.openai_client import OpenAISettings
from workers.models.openai_embedder import OpenAIEmbedder
from workers.models.roles import CallRecorder, Document, Embedder, RetrievalSpec, WebSearch
from workers.nodes.resources import Resources
from workers.roles_of_plan import local_roles, openai_roles
from workers.runner.execute import Executor
from workers.runner.heartbeat import Heartbeat
from workers.runner.limits.limiter import Limiter
from workers.runner.limits.waiting import WaitingRecorder
from workers.runner.prompts import PromptBook
from workers.runner.runtime import Runtime
from workers.stores.local_owner import open_store
from workers.stores.qdrant import SearchableStore, VectorStore
from workers.stores.tavily import TavilySearch

log = structlog.get_logger()


class Parts:
    """The parts of one process. Makes the `Resources` of a task from its plan; the store opens when needed."""

    def __init__(
        self, settings: Settings, engine: Engine | None, store: SearchableStore | None = None
    ) -> None:
        self._settings = settings
        self._book = PromptBook(engine)
        self._store = store
        self._opening = threading.Lock()
        self._minilm = MiniLM()

    @property
    def store(self) -> SearchableStore:
        with self._opening:
            if self._store is None:
                self._store = open_store(self._settings, own=False)
            return self._store

    def make(self, plan: Plan, recorder: CallRecorder) -> Resources:
        """The resources of one task; every call they make goes through `recorder`.

        Raises PermanentError when this process is not set up as the batch was planned.
        """
        self._check_server(plan)
        if plan.provider == "local":
            roles = local_roles(plan, self._minilm, recorder)
        else:
            settings = openai_settings(self._settings, plan.structured_output)
            roles = openai_roles(plan, settings, self._settings.chat_model, self._book, recorder)
        return Resources(
            retriever=StoreRetriever(self, plan, recorder), web_search=self._web(recorder), **roles
        )

    def embedder(self, provider: str, name: str, recorder: CallRecorder | None = None) -> Embedder:
        """The embedder of a plan, by the name that a collection keeps: `<provider>/<model>`."""
        if provider == "local":
            return self._minilm
        return OpenAIEmbedder(
            openai_settings(self._settings, "json_schema"), name.removeprefix("openai/"), recorder
        )

    def _check_server(self, plan: Plan) -> None:
        """Texts go where the batch was planned to send them, or nowhere. Raises PermanentError."""
        if "openai" not in (plan.provider, plan.embedder):
            return
        settings = self._settings
        if not settings.openai_api_key and not settings.openai_base_url:
            raise PermanentError(
                "this worker has neither OPENAI_API_KEY nor OPENAI_BASE_URL", code="no_key", where="openai"
            )
        if server_of(settings) != plan.server:
            raise PermanentError(
                f"the batch was submitted for {plan.server or 'OpenAI'}, but this worker is set up for "
                f"{server_of(settings) or 'OpenAI'}",
                code="other_server",
                where="openai",
            )

    def _web(self, recorder: CallRecorder) -> WebSearch | None:
        key = self._settings.tavily_api_key
        if key is None:
            return None
        return TavilySearch(
            key.get_secret_value(),
            base_url=self._settings.tavily_base_url,
            timeout=self._settings.web_timeout,
            recorder=recorder,
        )

    def close(self) -> None:
        with self._opening:
            if self._store is not None:
                self._store.close()
                self._store = None


def openai_settings(settings: Settings, method: Any) -> OpenAISettings:
    """How the server in use is reached; `method`: how structured answers are asked for."""
    key = settings.openai_api_key
    return OpenAISettings(
        api_key=key.get_secret_value() if key else None,
        base_url=settings.openai_base_url,
        timeout=settings.model_timeout,
        method=method,
        max_output_tokens=settings.max_output_tokens,
    )


class StoreRetriever:
    """`roles.Retriever`: the plan's embedder and collection, together."""

    def __init__(self, parts: Parts, plan: Plan, recorder: CallRecorder) -> None:
        self._parts = parts
        self._plan = plan
        self._recorder = recorder

    def retrieve(self, query: str, k: int) -> list[Document]:
        plan = self._plan
        mode: Retrieval = plan.params.get("retrieval", "dense")  # as it was before there was a choice
        filters = plan.params.get("filter")
        embedded = mode != "sparse"  # words need no embedding, which may cost money

        def search() -> list[Document]:
            vector: list[float] = []
            if embedded:
                embedder = self._parts.embedder(plan.embedder, plan.embedding_model, self._recorder)
                vector = embedder.embed_query(query)
            return self._parts.store.search(
                plan.collection, vector, k, text=query, mode=mode, filters=filters
            )

        model = plan.embedding_model if embedded else ""
        spec = RetrievalSpec(plan.collection, query, k, mode, filters or {}, model)
        return self._recorder.retrieval(spec, search)


def check_embedding(settings: Settings, engine: Engine) -> None:
    """Say at the start which collections the embedder in use does not fit; their batches would fail."""
    name = embedding_name(settings)
    with transaction(engine) as session:
        others = session.execute(
            select(Collection.name, Collection.embedding_model).where(Collection.embedding_model != name)
        ).all()
    for collection, model in others:
        log.warning("collection was embedded by another model", collection=collection, by=model, in_use=name)


def build_runtime(
    settings: Settings, *, own_store: bool, worker: str, engine: Engine | None = None
) -> Runtime:
    """Everything a worker process needs. With `own_store` this process becomes the local store's owner."""
    engine = engine or get_engine()
    check_embedding(settings, engine)
    store = open_store(settings, own=True) if own_store else None
    parts = Parts(settings, engine, store)
    limiter = Limiter(settings)
    heartbeat = Heartbeat(engine, settings.heartbeat_seconds, settings.lease_seconds)

    def in_line(file_id: int) -> CallRecorder:
        return WaitingRecorder(limiter, server_of(settings), f"ingest {file_id}", settings.model_timeout)

    def ingest(file_id: int) -> None:
        owned = parts.store
        assert isinstance(owned, VectorStore), "ingest runs where the store is owned"
        ingest_file(
            file_id,
            store=owned,
            embedder=parts.embedder(settings.embedding_provider, embedding_name(settings), in_line(file_id)),
            engine=engine,
            chunk_tokens=settings.chunk_tokens,
            chunk_overlap=settings.chunk_overlap,
        )

    def close() -> None:
        heartbeat.stop()
        parts.close()

    return Runtime(
        settings=settings,
        engine=engine,
        executor=Executor(engine, settings, parts, heartbeat, worker, limiter),
        heartbeat=heartbeat,
        ingest_file=ingest,
        close=close,
    )
