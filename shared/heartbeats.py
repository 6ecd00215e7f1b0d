"""Signs of life of parts that answer on no port: each writes the time now and then."""

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from shared.db import transaction

BEAT, RECONCILER = "beat", "reconciler"
EVERY = 3.0  # seconds between two signs; sooner ones are not written
_NOTE = """
INSERT INTO heartbeats (name) VALUES (:name)
ON CONFLICT (name) DO UPDATE SET at = now() WHERE heartbeats.at < now() - make_interval(secs => :every)
"""


def note(engine: Engine, name: str) -> None:
    """`name` is alive."""
    with transaction(engine) as session:
        session.execute(text(_NOTE), {"name": name, "every": EVERY})


def note_after_a_gap(session: Session, name: str, seconds: float) -> bool:
    """Whether `name` was last heard of more than `seconds` ago. It is alive now, and only one caller is told."""
    return session.execute(text(_AFTER_A_GAP), {"name": name, "gap": seconds}).first() is not None


_AFTER_A_GAP = """
UPDATE heartbeats SET at = now() WHERE name = :name AND at < now() - make_interval(secs => :gap) RETURNING name
"""


def ages(engine: Engine) -> dict[str, float]:
    """Seconds since each was last heard of, by the database's clock."""
    query = "SELECT name, extract(epoch FROM now() - at)::double precision AS age FROM heartbeats"
    with transaction(engine) as session:
        return {row.name: row.age for row in session.execute(text(query))}
