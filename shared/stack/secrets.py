"""Passwords of the embedded servers: made once for each home, kept in `secrets.json` (mode 600)."""

import json
import secrets
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from shared.errors import StackError
from shared.settings import Settings
from shared.stack.state import write_private


def _password() -> str:
    return secrets.token_urlsafe(24)  # letters, digits, `-` and `_`: safe in a URL and in a config file


@dataclass(frozen=True)
class Secrets:
    """The passwords; none of them shows in a repr."""

    postgres: str = field(default_factory=_password, repr=False)
    valkey: str = field(default_factory=_password, repr=False)
    flower: str = field(default_factory=_password, repr=False)


def secrets_path(home: Path) -> Path:
    return home / "secrets.json"


def read_secrets(home: Path) -> Secrets | None:
    """The passwords of a home; None when it has none yet. Raises StackError when the file is damaged."""
    path = secrets_path(home)
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Secrets(**{one.name: _known(stored[one.name]) for one in fields(Secrets)})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise StackError(
            f"{path} is damaged. Restore it from a copy: it holds the password of the database beside it."
        ) from None


def _known(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("not a password")
    return value


def ensure_secrets(home: Path) -> Secrets:
    """The passwords of a home, made now if it has none. Only the holder of the stack's lock calls this."""
    found = read_secrets(home)
    if found is not None:
        secrets_path(home).chmod(0o600)
        return found
    made = Secrets()
    write_private(secrets_path(home), json.dumps(asdict(made), indent=2) + "\n")
    return made


def flower_login(settings: Settings) -> tuple[str, str]:
    """User and password of Flower: the ones that are set, or the home's own password.

    Raises StackError when there is no password yet, or when Flower could not check it.
    """
    password = settings.flower_password.get_secret_value() if settings.flower_password else None
    if password is None:
        stored = read_secrets(settings.home)
        if stored is None:
            raise StackError(f"{settings.home} has no password for Flower yet: `cragline up` makes one.")
        password = stored.flower
    if not (settings.flower_user + password).isascii():  # Flower compares with a function that refuses these
        raise StackError("Flower takes only ASCII in CRAGLINE_FLOWER_USER and CRAGLINE_FLOWER_PASSWORD.")
    return settings.flower_user, password
