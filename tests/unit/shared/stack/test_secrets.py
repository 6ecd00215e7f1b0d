from pathlib import Path

import pytest

from shared.errors import StackError
from shared.settings import Settings
from shared.stack.secrets import ensure_secrets, flower_login, read_secrets, secrets_path


def settings(home: Path, **values: object) -> Settings:
    return Settings(home=home, _env_file=None, **values)  # type: ignore[arg-type]


def test_made_once_and_private(tmp_path: Path) -> None:
    assert read_secrets(tmp_path) is None
    made = ensure_secrets(tmp_path)
    assert ensure_secrets(tmp_path) == made == read_secrets(tmp_path)
    assert secrets_path(tmp_path).stat().st_mode & 0o777 == 0o600
    assert len({made.postgres, made.valkey, made.flower}) == 3
    assert min(map(len, (made.postgres, made.valkey, made.flower))) >= 24


def test_a_file_that_became_readable_is_closed_again(tmp_path: Path) -> None:
    ensure_secrets(tmp_path)
    secrets_path(tmp_path).chmod(0o644)
    ensure_secrets(tmp_path)
    assert secrets_path(tmp_path).stat().st_mode & 0o777 == 0o600


def test_each_home_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert ensure_secrets(tmp_path / "a").postgres != ensure_secrets(tmp_path / "b").postgres


def test_no_password_in_a_repr(tmp_path: Path) -> None:
    made = ensure_secrets(tmp_path)
    assert made.postgres not in repr(made)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"postgres": "hunter2"}', '{"postgres": 1, "valkey": 2, "flower": 3}']
)
def test_a_damaged_file_is_not_replaced_and_not_quoted(tmp_path: Path, text: str) -> None:
    """New passwords would lock the person out of the database."""
    secrets_path(tmp_path).write_text(text)
    with pytest.raises(StackError, match=r"secrets\.json is damaged") as caught:
        ensure_secrets(tmp_path)
    assert "hunter2" not in str(caught.value)
    assert secrets_path(tmp_path).read_text() == text


def test_flower_login(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no password for Flower"):
        flower_login(settings(tmp_path))
    made = ensure_secrets(tmp_path)
    assert flower_login(settings(tmp_path)) == ("cragline", made.flower)
    chosen = settings(tmp_path, flower_user="ann", flower_password="a,b:c")
    assert flower_login(chosen) == ("ann", "a,b:c")


def test_a_login_that_flower_could_never_accept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="ASCII") as caught:
        flower_login(settings(tmp_path, flower_password="pässword"))
    assert "pässword" not in str(caught.value)
