"""Which batches and runs somebody may see: their own; an admin all. Another's is as if it did not exist."""

from typing import Annotated

from fastapi import Path
from sqlalchemy import Engine

from api.problems import ApiError
from api.schemas import MAX_ID
from shared import history
from shared.control import Share
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


def fair(principal: Principal, share: Share) -> Share:
    """`share`, unless it would take places from others' batches, which is for admins. Raises ApiError."""
    if not principal.is_admin and ((share.priority or 0) > 0 or (share.weight or 0) > 1):
        raise ApiError(
            403, "scope", "A priority above 0 and a weight above 1 need a key with the scope 'admin'."
        )
    return share
