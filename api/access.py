"""Which batches and runs somebody may see: their own; an admin all. Another's is as if it did not exist."""

from typing import Annotated

from fastapi import Path
from sqlalchemy import Engine

from api.schemas import MAX_ID
from shared import history
from shared.errors import NotFound
from shared.keys import Principal

BatchId = Annotated[int, Path(ge=1, le=MAX_ID, description="The batch's number.")]
RunId = Annotated[int, Path(ge=1, le=MAX_ID, description="The run's number.")]


def visible_batch(engine: Engine, principal: Principal, batch_id: int) -> str | None:
    """The owner of a batch that `principal` may see. Raises NotFound."""
    owner = history.owner_of_batch(engine, batch_id)
    if not principal.is_admin and owner != principal.owner:
        raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
    return owner
