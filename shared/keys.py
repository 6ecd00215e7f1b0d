"""Keys of the HTTP API: made here, shown once, stored as a hash."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, get_args

from sqlalchemy import Engine, func, or_, select, update

from shared.api_tables import ApiKey
from shared.clean import clean_text, one_line
from shared.db import transaction
from shared.errors import NotFound, UsageError

Scope = Literal["submit", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_PREFIX = "crag_"
_TOKEN = re.compile(r"crag_[A-Za-z0-9_-]{43}")
_SHOWN = len(_PREFIX) + 6  # characters of a key that are kept
_LONGEST = 100  # characters of a name or an owner


@dataclass(frozen=True)
class Principal:
    """Who asks, and what is allowed to them."""

    owner: str
    scopes: frozenset[str]
    key_id: int | None = None  # None: this machine, without a key

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    def may(self, scope: Scope) -> bool:
        return self.is_admin or scope in self.scopes


def create(engine: Engine, name: str, owner: str, scopes: Sequence[str]) -> tuple[int, str]:
    """A new key: its number, and the key itself, which nobody can ask for again. Raises UsageError."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise UsageError(f"--scope takes {', '.join(SCOPES)}{f', not {unknown[0]!r}' if unknown else ''}.")
    name, owner = _checked("--name", name), _checked("--owner", owner)
    token = _PREFIX + secrets.token_urlsafe(32)
    with transaction(engine) as session:
        key = ApiKey(
            name=name,
            owner=owner,
            scopes=[scope for scope in SCOPES if scope in scopes],
            token_start=token[:_SHOWN],
            token_hash=_hash(token),
        )
        session.add(key)
        session.flush()
        return key.id, token


def _checked(option: str, text: str) -> str:
    cleaned = one_line(clean_text(text))
    if not cleaned or len(cleaned) > _LONGEST:
        raise UsageError(f"{option} takes 1 to {_LONGEST} characters.")
    return cleaned


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def find(engine: Engine, token: str) -> Principal | None:
    """Whose key `token` is; None when it is nobody's, or revoked. Notes the use, once a minute at the most."""
    if not _TOKEN.fullmatch(token):
        return None
    with transaction(engine) as session:
        key = session.scalar(
            select(ApiKey).where(ApiKey.token_hash == _hash(token), ApiKey.revoked_at.is_(None))
        )
        if key is None:
            return None
        a_minute_ago = func.now() - func.make_interval(0, 0, 0, 0, 0, 1)
        session.execute(
            update(ApiKey)
            .where(
                ApiKey.id == key.id,
                or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < a_minute_ago),
            )
            .values(last_used_at=func.now())
        )
        return Principal(key.owner, frozenset(key.scopes), key.id)


def list_keys(engine: Engine) -> list[dict[str, Any]]:
    """Every key, the revoked ones too, without its hash."""
    columns = ("id", "name", "owner", "scopes", "token_start", "created_at", "last_used_at", "revoked_at")
    with transaction(engine) as session:
        rows = session.execute(select(*(getattr(ApiKey, name) for name in columns)).order_by(ApiKey.id))
        return [dict(row) for row in rows.mappings()]


def revoke(engine: Engine, key_id: int) -> str:
    """End a key at once; returns its name. Ending it again is harmless. Raises NotFound."""
    with transaction(engine) as session:
        name = session.scalar(
            update(ApiKey)
            .where(ApiKey.id == key_id)
            .values(revoked_at=func.coalesce(ApiKey.revoked_at, func.now()))
            .returning(ApiKey.name)
        )
    if name is None:
        raise NotFound(f"There is no key {key_id}. `cragline key list` shows those there are.")
    return str(name)
