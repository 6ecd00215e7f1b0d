"""`cragline doctor`: what is set up, what is missing, and what that means."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.table import Table
from rich.text import Text
from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError

from api.cli import probes
from api.cli.output import address, console, print_json
from shared import limits
from shared.db import database_url, make_engine
from shared.errors import CraglineError
from shared.plan import embedding_name
from shared.settings import Settings, get_settings
from shared.stack.secrets import secrets_path
from shared.stack.state import StackState, check_home, logs_path, read_state, running_stack


@dataclass(frozen=True)
class Finding:
    level: str  # ok | note | bad
    what: str
    says: str


def doctor(json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """Look at every part. Exit code 1 when one that is needed does not work."""
    findings = list(examine(get_settings()))
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        styles = {"ok": "green", "note": "yellow", "bad": "bold red"}
        for finding in findings:
            table.add_row(
                Text(finding.level, style=styles[finding.level]), Text(finding.what), Text(finding.says)
            )
        console().print(table)
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


def examine(settings: Settings) -> Iterator[Finding]:
    yield Finding("ok", "python", sys.version.split()[0])
    yield from _stack(settings)
    yield from _database(settings)
    yield from _queue(settings)
    yield from _knowledge(settings)
    yield from _models(settings)


def _stack(settings: Settings) -> Iterator[Finding]:
    try:
        there = check_home(settings.home)
        state = read_state(settings.home)
    except CraglineError as error:
        yield Finding("bad", "home", str(error))
        return
    yield Finding("ok", "home", f"{settings.home}{'' if there else ' (made by `cragline up`)'}")
    if state is not None and state.supervised():
        parts = ", ".join(part.name for part in state.parts)
        yield Finding("ok", "stack", f"{'running' if state.ready else 'starting'}: {parts}")
        yield from _troubled(settings, state)
        if url := state.url("flower"):
            yield Finding("ok", "flower", f"{url}, user {settings.flower_user}, {_password(settings)}")
        if url := state.url("api"):
            yield Finding("ok", "api", url)
        return
    left = [f"{part.name} (pid {part.pid})" for part in state.parts if part.alive()] if state else []
    if left:
        says = f"its supervisor is gone, but parts left behind are running: {', '.join(left)}"
        yield Finding("bad", "stack", f"{says}; `cragline down` stops them.")
    elif settings.database_url and settings.redis_url:
        yield Finding("note", "stack", "none is running here; database and Redis are set by URL.")
    else:
        yield Finding("bad", "stack", "not running. `cragline up -d` starts it.")


def _troubled(settings: Settings, state: StackState) -> Iterator[Finding]:
    """Parts that are down now, or have died lately; the supervisor starts them again by itself."""
    for part in state.parts:
        ends, alive = state.ends.get(part.name), part.alive()
        if alive and ends is None:
            continue
        words = [] if alive else ["down, and about to be started again"]
        if ends is not None:
            times = "once" if ends.times == 1 else f"{ends.times} times"
            words.append(
                f"{'keeps dying' if ends.keeps_dying else 'died'}: {times} lately, last: {ends.last}"
            )
        level = "bad" if not alive or (ends and ends.keeps_dying) else "note"
        log = logs_path(settings.home) / f"{part.name}.log"
        yield Finding(level, part.name, f"{'; '.join(words)}. Its log is {log}")


def _password(settings: Settings) -> str:
    if settings.flower_password is not None:
        return "password: CRAGLINE_FLOWER_PASSWORD"
    return f"password: `flower` in {secrets_path(settings.home)}"


def _database(settings: Settings) -> Iterator[Finding]:
    from shared.migrate import current_revision, head_revision

    kind = "set by CRAGLINE_DATABASE_URL" if settings.database_url else "embedded"
    try:
        engine = make_engine(database_url(settings), pool_size=1)
        try:
            with engine.connect() as connection:
                version = connection.scalar(text("SHOW server_version"))
            found, head = current_revision(engine), head_revision()
        finally:
            engine.dispose()
    except CraglineError as error:
        yield Finding("bad", "database", str(error))
        return
    except SQLAlchemyError:
        yield Finding(
            "bad", "database", f"{kind}, but it does not answer. Nothing can be submitted or asked."
        )
        return
    yield Finding("ok", "database", f"Postgres {version}, {kind}")
    if found != head:
        yield Finding("bad", "schema", f"at {found}, this version wants {head}: `cragline db upgrade`.")
    else:
        yield Finding("ok", "schema", str(found))


def _queue(settings: Settings) -> Iterator[Finding]:
    from redis import Redis
    from redis.exceptions import RedisError

    from shared.queue import redis_url

    kind = "set by CRAGLINE_REDIS_URL" if settings.redis_url else "embedded"
    try:
        url = redis_url(settings)
        with Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
            info = client.info()
            limited = limits.states(client)
            policy = info.get("maxmemory_policy")
            appending = client.config_get("appendonly").get("appendonly")
    except CraglineError as error:
        yield Finding("bad", "redis", str(error))
        return
    except (RedisError, OSError):
        yield Finding("bad", "redis", f"{kind}, but it does not answer. Batches are kept, and wait.")
        return
    yield Finding("ok", "redis", f"{info.get('valkey_version') or info.get('redis_version')}, {kind}")
    if policy != "noeviction":
        yield Finding(
            "note", "redis", f"maxmemory-policy is {policy}; set noeviction, or messages may be evicted."
        )
    if appending == "no":
        yield Finding(
            "note",
            "redis",
            "appendonly is off: after its restart, open work is published again, which takes a while.",
        )
    yield from map(_provider, limited)
    yield from _workers(settings)


def _provider(state: limits.TargetState) -> Finding:
    """A model or search that was called lately: what limits it, and whether its server works."""
    name = f"{state.provider} {state.model}" + (f" at {state.server}" if state.server else "")
    if state.breaker != "closed":
        when = f"tried again in {state.breaker_seconds:.0f} s" if state.breaker == "open" else "being tried"
        says = (
            f"{name}: {state.failures} calls failed in a row; its calls wait, {when}. {state.waiting} wait."
        )
        return Finding("bad", "provider", says)
    known = [
        f"{limit:.0f} {unit} per minute"
        for limit, unit in ((state.requests_per_minute, "calls"), (state.tokens_per_minute, "tokens"))
        if limit is not None
    ]
    says = f"{name}: {', '.join(known) or 'no limit is known'}; {state.waiting} calls wait"
    if state.cooling_seconds:
        return Finding(
            "note", "provider", f"{says}. It asked for a pause: {state.cooling_seconds:.0f} s more."
        )
    return Finding("ok", "provider", says)


def _workers(settings: Settings) -> Iterator[Finding]:
    from redis.exceptions import RedisError

    from shared.queue import QUEUES, make_app

    try:
        inspect = make_app(settings).control.inspect(timeout=2.0, limit=_own_workers(settings))
        queues = {queue["name"] for served in (inspect.active_queues() or {}).values() for queue in served}
    except (RedisError, OSError):
        queues = set()
    missing = [queue for queue in QUEUES if queue not in queues]
    if not queues:
        yield Finding("bad", "workers", "none answers. Batches are kept, and wait.")
    elif missing:
        yield Finding("bad", "workers", f"nobody serves the queue {', '.join(missing)}; runs stop there.")
    else:
        yield Finding("ok", "workers", "every queue is served")


def _own_workers(settings: Settings) -> int | None:
    """How many answers to wait for; None, where others may share the queue: all that come in time."""
    try:
        state = running_stack(settings.home) if settings.redis_url is None else None
    except CraglineError:
        return None
    return sum(part.name.startswith("worker-") for part in state.parts) or None if state else None


def _knowledge(settings: Settings) -> Iterator[Finding]:
    if settings.qdrant_url:
        level, says = probes.qdrant(settings.qdrant_url, _secret(settings.qdrant_api_key))
        yield Finding(level, "vector store", says)
    else:
        yield Finding("ok", "vector store", "local, in the home folder")
    try:
        engine = make_engine(database_url(settings), pool_size=1)
        try:
            with engine.connect() as connection:
                rows = connection.execute(_COLLECTIONS).all()
        finally:
            engine.dispose()
    except (CraglineError, SQLAlchemyError):
        return
    if not rows:
        yield Finding("note", "collections", "none yet: `cragline ingest PATH`.")
    for name, model, dimension, documents in rows:
        says = f"{name}: {documents} documents, {model} ({dimension} dimensions)"
        fits = model == embedding_name(settings)
        yield Finding(
            "ok" if fits else "note",
            "collection",
            says if fits else f"{says}; not usable now, because {embedding_name(settings)} is in use.",
        )


_COLLECTIONS = select(
    text("name"),
    text("embedding_model"),
    text("dimension"),
    text("(SELECT count(*) FROM documents WHERE documents.collection = collections.name)"),
).select_from(text("collections ORDER BY name"))


def _models(settings: Settings) -> Iterator[Finding]:
    if settings.provider == "local":
        says = "local: quotes and cosines, no key needed; they cannot reason. Set OPENAI_API_KEY for a model that can."
        yield Finding("note", "models", says)
    else:
        where = address(settings.openai_base_url) if settings.openai_base_url else "OpenAI"
        yield Finding(
            "ok", "models", f"{settings.chat_model} at {where}; embeddings: {embedding_name(settings)}"
        )
        if not settings.openai_api_key and not settings.openai_base_url:
            yield Finding(
                "bad", "models", "openai is chosen, but OPENAI_API_KEY is not set; every run would fail."
            )
    if "openai" in (settings.provider, settings.embedding_provider):
        yield _model_server(settings)
    if settings.web_search_on:
        yield Finding("ok", "web search", "on (Tavily; not checked: a search costs money)")
    else:
        yield Finding(
            "note",
            "web search",
            "off: no TAVILY_API_KEY. What the store does not hold is given up, and said.",
        )


def _model_server(settings: Settings) -> Finding:
    if not settings.openai_base_url:
        return Finding("note", "model server", "OpenAI itself: neither the key nor the models are checked")
    level, says = probes.models(settings.openai_base_url, _secret(settings.openai_api_key))
    return Finding(level, "model server", says)


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value is not None else None
