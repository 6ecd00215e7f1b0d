"""Collections as rows: what there is, descriptions, aliases, and the order to delete one."""

from typing import Any

from sqlalchemy import Engine, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared.clean import clean_text, one_line
from shared.db import transaction
from shared.errors import NotFound, UsageError
from shared.plan import Plan
from shared.statuses import BatchStatus, FileStatus
from shared.tables import Batch, Collection, CollectionAlias, IngestedDocument, IngestFile

MAX_DESCRIPTION = 2000  # characters; it goes into prompts


def resolve(engine: Engine, name: str) -> str:
    """The collection that `name` stands for now: an alias's target, else the name itself."""
    with transaction(engine) as session:
        return _resolved(session, name)


def resolved(engine: Engine, plan: Plan) -> Plan:
    """`plan` with its collection's alias resolved, so that switching the alias later changes nothing for it,
    and with the collection's description where the pipeline wants one and was given none."""
    name = resolve(engine, plan.collection)
    params = dict(plan.params)
    if params.get("description") == "":
        with transaction(engine) as session:
            found = session.scalar(select(Collection.description).where(Collection.name == name))
        params["description"] = found or ""
    return plan.model_copy(update={"collection": name, "params": params})


def list_collections(engine: Engine) -> list[dict[str, Any]]:
    """Every collection by name: documents, chunks, embedding model, aliases, description, times."""
    statement = (
        select(
            Collection.name,
            Collection.embedding_model,
            Collection.dimension,
            Collection.description,
            Collection.created_at,
            func.count(IngestedDocument.id).label("documents"),
            func.coalesce(func.sum(func.cardinality(IngestedDocument.chunk_ids)), 0).label("chunks"),
            func.max(IngestedDocument.ingested_at).label("ingested_at"),
        )
        .outerjoin(IngestedDocument, IngestedDocument.collection == Collection.name)
        .group_by(Collection.name)
        .order_by(Collection.name)
    )
    with transaction(engine) as session:
        rows = [dict(row) for row in session.execute(statement).mappings()]
        aliases = session.execute(
            select(CollectionAlias.target, CollectionAlias.name).order_by(CollectionAlias.name)
        ).all()
    for row in rows:
        row["chunks"] = int(row["chunks"])
        row["aliases"] = [name for target, name in aliases if target == row["name"]]
    return rows


def show_collection(engine: Engine, name: str) -> dict[str, Any]:
    """One collection (or the target of an alias), with what it was filled from. Raises NotFound."""
    target = resolve(engine, name)
    row = next((one for one in list_collections(engine) if one["name"] == target), None)
    if row is None:
        raise absent(engine, name)
    with transaction(engine) as session:
        roots = session.execute(
            select(IngestedDocument.root, func.count(), func.max(IngestedDocument.ingested_at))
            .where(IngestedDocument.collection == target)
            .group_by(IngestedDocument.root)
            .order_by(func.count().desc(), IngestedDocument.root)
            .limit(50)
        ).all()
        row["open_batches"] = _open_batches(session, target)
    row["sources"] = [
        {"source": root, "documents": count, "ingested_at": when} for root, count, when in roots
    ]
    return row


def describe(engine: Engine, name: str, text: str) -> str:
    """Set the description of a collection; returns the collection's name. Raises NotFound, UsageError."""
    description = one_line(clean_text(text))
    if len(description) > MAX_DESCRIPTION:
        raise UsageError(
            f"A description has at most {MAX_DESCRIPTION} characters; this has {len(description)}."
        )
    target = resolve(engine, name)
    with transaction(engine) as session:
        changed = session.scalar(
            update(Collection)
            .where(Collection.name == target)
            .values(description=description or None)
            .returning(Collection.name)
        )
    if changed is None:
        raise absent(engine, name)
    return target


def set_alias(engine: Engine, name: str, target: str) -> str | None:
    """Let `name` stand for the collection `target` from now on; returns what it stood for before.

    Batches that were submitted before keep their collection. Raises NotFound, UsageError.
    """
    with transaction(engine) as session:
        if session.get(Collection, name) is not None:
            raise UsageError(f"{name!r} is the name of a collection and cannot become an alias as well.")
        if session.get(CollectionAlias, target) is not None:
            raise UsageError(f"{target!r} is an alias itself; name the collection it points to.")
        collection = session.get(Collection, target, with_for_update={"key_share": True})
        if collection is None:
            raise NotFound(_absent(session, target))
        before = session.scalar(select(CollectionAlias.target).where(CollectionAlias.name == name))
        values = {"name": name, "target": target}
        session.execute(
            insert(CollectionAlias)
            .values(values)
            .on_conflict_do_update(index_elements=["name"], set_={"target": target, "set_at": func.now()})
        )
    return before


def remove_alias(engine: Engine, name: str) -> str:
    """Forget an alias; returns the collection it stood for. Raises NotFound."""
    with transaction(engine) as session:
        target = session.scalar(
            delete(CollectionAlias).where(CollectionAlias.name == name).returning(CollectionAlias.target)
        )
    if target is None:
        raise NotFound(f"There is no alias {name!r}.")
    return str(target)


def check_deletable(engine: Engine, name: str, *, force: bool) -> None:
    """Raises UsageError for an alias, for a collection that one points to, that is being filled, or (unless
    `force`) that an open batch was planned with; NotFound for one that is not there."""
    with transaction(engine) as session:
        target = session.scalar(select(CollectionAlias.target).where(CollectionAlias.name == name))
        if target is not None:
            raise UsageError(
                f"{name!r} is an alias of {target!r}. `cragline collection alias {name} --remove` forgets it."
            )
        if session.get(Collection, name) is None:
            raise NotFound(_absent(session, name))
        alias = session.scalar(select(CollectionAlias.name).where(CollectionAlias.target == name).limit(1))
        if alias is not None:
            raise UsageError(f"The alias {alias!r} points to {name!r}. Switch it, or remove it first.")
        open_files = (FileStatus.PENDING, FileStatus.RUNNING)
        waiting = session.scalar(
            select(func.count()).where(IngestFile.collection == name, IngestFile.status.in_(open_files))
        )
        if waiting:
            raise UsageError(f"{name!r} is being worked on ({waiting} open); wait until that has ended.")
        batches = _open_batches(session, name)
        if batches and not force:
            listed = ", ".join(str(one) for one in batches[:10])
            raise UsageError(
                f"{name!r} is in use by open batches ({listed}). --force deletes it nonetheless."
            )


def absent(engine: Engine, name: str) -> NotFound:
    with transaction(engine) as session:
        return NotFound(_absent(session, name))


def _absent(session: Session, name: str) -> str:
    known = ", ".join(session.scalars(select(Collection.name).order_by(Collection.name).limit(20)))
    return f"There is no collection {name!r}. {f'There are: {known}.' if known else 'There is none yet.'}"


def _resolved(session: Session, name: str) -> str:
    target = session.scalar(select(CollectionAlias.target).where(CollectionAlias.name == name))
    return name if target is None else str(target)


def _open_batches(session: Session, name: str) -> list[int]:
    return list(
        session.scalars(
            select(Batch.id)
            .where(Batch.collection == name, Batch.status.in_((BatchStatus.OPEN, BatchStatus.PAUSED)))
            .order_by(Batch.id)
        )
    )
